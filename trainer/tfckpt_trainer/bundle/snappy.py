"""Decompresses Snappy, which builds of TensorFlow inside Google use for indexes.

Format: https://github.com/google/snappy/blob/main/format_description.txt
"""

from __future__ import annotations

from tfckpt_trainer.bundle.wire import WireError, read_varint

_LITERAL, _SHORT_COPY, _COPY = 0, 1, 2
_LONGEST = (1 << 32) - 1
_INLINE_LITERAL = 60
"""Literals up to this length have it in their tag; longer ones have it in 1 to 4 bytes."""


def expanded_size(data: bytes) -> int:
    """Returns the size that the start of a compressed stream declares, in bytes.

    Raises:
        WireError: It declares none.
    """
    size, _ = read_varint(data[:5], 0)
    if size > _LONGEST:
        raise WireError("the compressed data is longer than Snappy allows")
    return size


def decompress(data: bytes) -> bytes:
    """Decompresses one stream. Takes memory for the declared size at most.

    Raises:
        WireError: The stream is damaged.
    """
    size = expanded_size(data)
    _, position = read_varint(data, 0)
    result = bytearray()
    end = len(data)
    while position < end:
        tag = data[position]
        position += 1
        if tag & 3 == _LITERAL:
            length, position = _literal_length(data, tag, position)
            piece = data[position : position + length]
            position += length
        else:
            length, distance, position = _copy(data, tag, position)
            start = len(result) - distance
            if distance == 0 or start < 0:
                raise WireError("the compressed data refers to bytes before its start")
            # A copy that overlaps its own end repeats it.
            piece = bytes(result[start : start + length])
            piece = (piece * (length // distance + 1))[:length] if distance < length else piece
        if len(piece) != length:
            raise WireError("the compressed data is truncated")
        if len(result) + length > size:
            raise WireError(f"the compressed data is longer than the {size} bytes that it declares")
        result += piece
    if len(result) != size:
        raise WireError(f"the compressed data has {len(result)} bytes; it declares {size}")
    return bytes(result)


def _literal_length(data: bytes, tag: int, position: int) -> tuple[int, int]:
    length = tag >> 2
    if length < _INLINE_LITERAL:
        return length + 1, position
    following = position + length - _INLINE_LITERAL + 1
    return _number(data, position, following) + 1, following


def _copy(data: bytes, tag: int, position: int) -> tuple[int, int, int]:
    """Returns length and distance of a copy, and the position after it."""
    kind = tag & 3
    if kind == _SHORT_COPY:
        low = _number(data, position, position + 1)
        return 4 + (tag >> 2 & 7), tag >> 5 << 8 | low, position + 1
    following = position + (2 if kind == _COPY else 4)
    return 1 + (tag >> 2), _number(data, position, following), following


def _number(data: bytes, start: int, end: int) -> int:
    if end > len(data):
        raise WireError("the compressed data is truncated")
    return int.from_bytes(data[start:end], "little")
