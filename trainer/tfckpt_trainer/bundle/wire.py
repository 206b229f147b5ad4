"""Varints and protocol buffer fields, without a schema or a dependency."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

_LARGEST_TAG = (1 << 32) - 1
_LONGEST_TAG = 5

Field = tuple[int, int, int, bytes]
"""Field number, wire type, integer value, and the bytes of a length-delimited field."""


class WireError(ValueError):
    """The bytes are not a valid encoding."""


class UnsupportedError(WireError):
    """The bytes are a valid encoding that is not read here."""


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Returns the unsigned varint at `position` and the position after it."""
    value = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise WireError("a number is truncated or too long")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                raise WireError("a number has more than 64 bits")
            return value, position
        shift += 7


def encode_varint(value: int) -> bytes:
    """Encodes an integer; a negative one as TensorFlow does, in ten bytes."""
    value &= (1 << 64) - 1
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def fields(data: bytes) -> Iterator[Field]:
    """Yields the fields of one message, in file order."""
    position, end = 0, len(data)
    while position < end:
        # Most numbers take one byte; inlined because a call for each dominates the run time.
        key = data[position]
        position += 1
        if key >= 0x80:
            start = position - 1
            key, position = read_varint(data, start)
            if key > _LARGEST_TAG or position - start > _LONGEST_TAG:
                raise WireError("a field number is too large")
        number, kind = key >> 3, key & 7
        if not number:
            raise WireError("a field has the number 0")
        if kind in (VARINT, BYTES):
            if position < end and data[position] < 0x80:
                value = data[position]
                position += 1
            else:
                value, position = read_varint(data, position)
            if kind == VARINT:
                yield number, kind, value, b""
                continue
            length = value
        elif kind in (FIXED32, FIXED64):
            length = 4 if kind == FIXED32 else 8
        else:
            raise WireError(f"wire type {kind} is invalid")
        content = data[position : position + length]
        if len(content) != length:
            raise WireError("a field is truncated")
        position += length
        value = int.from_bytes(content, "little") if kind != BYTES else 0
        yield number, kind, value, content


def typed_fields(data: bytes, kinds: Mapping[int, int]) -> Iterator[Field]:
    """Yields the fields of one message whose fields have these wire types by number.

    Raises:
        WireError: A field has another wire type. Protocol buffers would ignore it.
    """
    for field in fields(data):
        if kinds.get(field[0], field[1]) != field[1]:
            raise WireError(f"field {field[0]} has wire type {field[1]}")
        yield field


def signed64(value: int) -> int:
    """Converts an unsigned varint to a signed 64-bit integer."""
    return value - (1 << 64) if value >= 1 << 63 else value
