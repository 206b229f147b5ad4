"""Slices of tensors that were saved in parts, and the index keys of the parts.

Keys use `OrderedCode` (`tensorflow/core/lib/strings/ordered_code.cc`), like
`EncodeTensorNameSlice` in `tensorflow/core/util/saved_tensor_slice_util.cc`.
"""

from __future__ import annotations

import re

import msgspec

from tfckpt_trainer.bundle.wire import BYTES, VARINT, WireError, signed64, typed_fields

_ESCAPES = {b"\x00": b"\x00\xff", b"\xff": b"\xff\x00"}
_ESCAPED = re.compile(b"[\x00\xff]")

_EXTENT = {1: VARINT, 2: VARINT}

WHOLE = -1
"""Length of a slice that spans the whole dimension."""


class Slice(msgspec.Struct, frozen=True):
    """A block of a tensor: start and length per dimension. Length -1 spans the dimension."""

    extents: tuple[tuple[int, int], ...]

    @property
    def is_whole(self) -> bool:
        """Whether it spans every dimension."""
        return all(extent == (0, WHOLE) for extent in self.extents)


def parse_slice(data: bytes) -> Slice:
    """Decodes a `TensorSliceProto`."""
    extents = []
    for number, _, _, content in typed_fields(data, {1: BYTES}):
        if number == 1:
            start, length = 0, WHOLE
            for inner, _, value, _ in typed_fields(content, _EXTENT):
                if inner == 1:
                    start = signed64(value)
                elif inner == 2:
                    length = signed64(value)
            extents.append((start, length))
    return Slice(tuple(extents))


def slice_key(name: str, part: Slice) -> bytes:
    """Returns the index key of `part` of tensor `name`."""
    text = name.encode("utf-8", "surrogateescape")
    escaped = _ESCAPED.sub(lambda byte: _ESCAPES[byte[0]], text)
    numbers = b"".join(_signed(start) + _signed(length) for start, length in part.extents)
    return b"\x00" + escaped + b"\x00\x01" + _unsigned(len(part.extents)) + numbers


def decode_slice_key(key: bytes) -> tuple[str, Slice]:
    """Returns the tensor name and the part that `key` encodes.

    Raises:
        WireError: `key` is not a valid slice key.
    """
    if key[:1] != b"\x00":
        raise WireError("a slice key does not start with a zero byte")
    name, position = _read_string(key, 1)
    rank, position = _read_unsigned(key, position)
    if rank > 254:
        raise WireError(f"a slice has {rank} dimensions")
    extents = []
    for _ in range(rank):
        start, position = _read_signed(key, position)
        length, position = _read_signed(key, position)
        extents.append((start, length))
    if position != len(key):
        raise WireError("a slice key is too long")
    name_and_slice = name.decode("utf-8", "surrogateescape"), Slice(tuple(extents))
    if slice_key(*name_and_slice) != key:
        raise WireError("a slice key is not encoded as TensorFlow does")
    return name_and_slice


def _read_string(data: bytes, position: int) -> tuple[bytes, int]:
    text = bytearray()
    while True:
        pair = data[position : position + 2]
        if pair == b"\x00\x01":
            return bytes(text), position + 2
        if pair == b"\x00\xff":
            text.append(0)
            position += 2
        elif pair == b"\xff\x00":
            text.append(0xFF)
            position += 2
        elif pair and pair[0] not in (0, 0xFF):
            text.append(pair[0])
            position += 1
        else:
            raise WireError("a name in a slice key is truncated")


def _unsigned(value: int) -> bytes:
    size = (value.bit_length() + 7) // 8
    return bytes([size]) + value.to_bytes(size, "big")


def _read_unsigned(data: bytes, position: int) -> tuple[int, int]:
    end = position + 1 + (data[position] if position < len(data) else 0)
    if position >= len(data) or end > len(data):
        raise WireError("a number in a slice key is truncated")
    return int.from_bytes(data[position + 1 : end], "big"), end


def _signed(value: int) -> bytes:
    size = (value if value >= 0 else ~value).bit_length() // 7 + 1
    bits = 8 * size
    header = ((1 << size) - 1) << (bits - size)
    return ((value & ((1 << bits) - 1)) ^ header).to_bytes(size, "big")


def _read_signed(data: bytes, position: int) -> tuple[int, int]:
    head = int.from_bytes(data[position : position + 2].ljust(2, b"\x00"), "big")
    negative = not head & 0x8000
    ones = f"{head ^ 0xFFFF if negative else head:016b}"
    size = len(ones) - len(ones.lstrip("1"))
    raw = data[position : position + size]
    if len(raw) != size or size > 10:
        raise WireError("a number in a slice key is truncated")
    bits = 8 * size
    header = ((1 << size) - 1) << (bits - size)
    value = int.from_bytes(raw, "big") ^ header
    return value - (1 << bits) if negative else value, position + size
