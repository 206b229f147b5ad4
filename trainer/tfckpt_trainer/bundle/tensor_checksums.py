"""Computes the checksum that TensorFlow stores for a tensor, in one streaming pass.

Format: `WriteTensor`, `WriteStringTensor` and `WriteVariantTensor` in
`tensorflow/core/util/tensor_bundle/tensor_bundle.cc`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from tfckpt_trainer.bundle.checksum import crc32c, mask, unmask
from tfckpt_trainer.bundle.index import TensorEntry
from tfckpt_trainer.bundle.shard import CHUNK, Shard
from tfckpt_trainer.bundle.wire import WireError, read_varint
from tfckpt_trainer.errors import BundleError

_LENGTHS_BLOCK = 64 << 10
_LONGEST_VARINT = 10
CHECKSUM_SIZE = 4
"""Size in bytes of the checksums inside a string or variant tensor."""

OnChunk = Callable[[bytes], None]


def compute_checksum(shard: Shard, entry: TensorEntry, on_chunk: OnChunk) -> int:
    """Reads a tensor and returns the checksum that TensorFlow would store for it.

    Args:
        shard: The data file that holds the tensor.
        entry: The tensor.
        on_chunk: Called with all bytes in order, at most `shard.CHUNK` at a time.

    Raises:
        BundleError: The file is too short, or a string or variant tensor is malformed.
    """
    if entry.dtype == "string":
        return _of_strings(shard, entry, on_chunk)
    if entry.dtype == "variant":
        return _of_variants(shard, entry, on_chunk)
    return _streamed(shard, entry.offset, entry.size, 0, on_chunk)


def checksum_of_strings(strings: Sequence[bytes]) -> int:
    """Returns the checksum that TensorFlow would store for a tensor of these strings."""
    value = crc32c(_packed([len(string) for string in strings]))
    value = crc32c(struct.pack("<I", mask(value)), value)
    for string in strings:
        value = crc32c(string, value)
    return value


def _streamed(shard: Shard, offset: int, size: int, value: int, on_chunk: OnChunk) -> int:
    if size <= CHUNK:
        data = shard.read(offset, size)
        value = crc32c(data, value)
        on_chunk(data)
        return value
    for data in shard.chunks(offset, size):
        value = crc32c(data, value)
        on_chunk(data)
        del data
    return value


def _of_strings(shard: Shard, entry: TensorEntry, on_chunk: OnChunk) -> int:
    """Covers the lengths as fixed-size integers, the checksum of the lengths, and the bytes."""
    value, position, characters = 0, entry.offset, 0
    end = entry.offset + entry.size
    missing = entry.element_count
    # Each string takes at least one byte for its length.
    if missing > entry.size:
        raise BundleError(shard.name, position, f"{entry.name} has more strings than bytes")
    while missing:
        block = shard.read(position, min(_LENGTHS_BLOCK, end - position))
        lengths, used = _lengths(block, missing)
        if not lengths:
            raise BundleError(shard.name, position, f"{entry.name}: a length is truncated")
        value = crc32c(_packed(lengths), value)
        on_chunk(block[:used])
        characters += sum(lengths)
        missing -= len(lengths)
        position += used
    if position + CHECKSUM_SIZE + characters != end:
        problem = f"{entry.name}: string lengths do not add up to its size"
        raise BundleError(shard.name, entry.offset, problem)
    if _stored(shard, position) != value:
        problem = f"{entry.name}: string lengths do not match their checksum"
        raise BundleError(shard.name, entry.offset, problem)
    return _streamed(shard, position, end - position, value, on_chunk)


def _of_variants(shard: Shard, entry: TensorEntry, on_chunk: OnChunk) -> int:
    """Covers, per element, its length as a fixed-size integer, its bytes and their checksum.

    Iterator state, for example, is stored as a variant tensor.
    """
    value, position, count = 0, entry.offset, 0
    end = entry.offset + entry.size
    while position < end:
        count += 1
        head = shard.read(position, min(_LONGEST_VARINT, end - position))
        try:
            length, used = read_varint(head, 0)
        except WireError as error:
            raise BundleError(shard.name, position, f"{entry.name}: {error}") from error
        stop = position + used + length
        if stop + CHECKSUM_SIZE > end:
            raise BundleError(shard.name, position, f"{entry.name} is truncated")
        on_chunk(head[:used])
        value = crc32c(struct.pack("<Q", length), value)
        value = _streamed(shard, position + used, length, value, on_chunk)
        if _stored(shard, stop) != value:
            problem = f"{entry.name} does not match its checksum"
            raise BundleError(shard.name, position, problem)
        value = _streamed(shard, stop, CHECKSUM_SIZE, value, on_chunk)
        position = stop + CHECKSUM_SIZE
    if count != entry.element_count:
        problem = f"{entry.name} has {count} elements; expected {entry.element_count}"
        raise BundleError(shard.name, entry.offset, problem)
    return value


def _lengths(block: bytes, most: int) -> tuple[list[int], int]:
    """Returns the complete varints at the start of `block`, and how many bytes they take."""
    lengths: list[int] = []
    position = 0
    try:
        while len(lengths) < most and position < len(block):
            length, position = read_varint(block, position)
            lengths.append(length)
    except WireError:
        # The end of the block splits this varint; the next block starts with it.
        return lengths, position
    return lengths, position


def _packed(lengths: Sequence[int]) -> bytes:
    if all(length < 1 << 32 for length in lengths):
        return struct.pack(f"<{len(lengths)}I", *lengths)
    return b"".join(struct.pack("<I" if n < 1 << 32 else "<Q", n) for n in lengths)


def _stored(shard: Shard, position: int) -> int:
    masked: int = struct.unpack("<I", shard.read(position, CHECKSUM_SIZE))[0]
    return unmask(masked)
