"""The bytes of single tensors, by positioned reads: the file is never mapped or read whole."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from tfckpt_trainer.bundle.checksum import crc32c, unmask
from tfckpt_trainer.bundle.index import TensorEntry, shard_path
from tfckpt_trainer.bundle.wire import WireError, read_varint
from tfckpt_trainer.errors import BundleError


def read_tensor_bytes(prefix: Path, entry: TensorEntry) -> bytes:
    """Reads the stored bytes of a tensor that has bytes of its own.

    Raises:
        BundleError: They are not there, or do not match their checksum.
        FileNotFoundError: The data file is missing.
    """
    path = shard_path(prefix, entry.shard, entry.shard_count)
    data = read_range(path, entry.offset, entry.size)
    found = stored_checksum(data, entry, path.name)
    if found != entry.crc32c:
        raise BundleError(path.name, entry.offset, f"{entry.name} does not match its checksum")
    return data


def read_strings(prefix: Path, entry: TensorEntry) -> list[bytes]:
    """Reads the elements of a tensor of strings, in the order of memory.

    Raises:
        BundleError: It is damaged or has another type.
        FileNotFoundError: The data file is missing.
    """
    path = shard_path(prefix, entry.shard, entry.shard_count)
    if entry.dtype != "string":
        raise BundleError(path.name, entry.offset, f"{entry.name} is {entry.dtype}, not string")
    data = read_tensor_bytes(prefix, entry)
    lengths, position = string_lengths(data, entry, path.name)
    position += 4
    texts = []
    for length in lengths:
        texts.append(data[position : position + length])
        position += length
    return texts


def read_range(path: Path, offset: int, size: int) -> bytes:
    """Reads `size` bytes at `offset`; allocates no more than the file can give.

    Raises:
        BundleError: The file ends before.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        length = os.fstat(descriptor).st_size
        if offset + size > length:
            raise BundleError(
                path.name, offset, f"ends at byte {length}; byte {offset + size} was expected"
            )
        data = os.pread(descriptor, size, offset)
        while len(data) < size:
            more = os.pread(descriptor, size - len(data), offset + len(data))
            if not more:
                raise BundleError(path.name, offset + len(data), "became shorter while it was read")
            data += more
        return data
    finally:
        os.close(descriptor)


def string_lengths(data: bytes, entry: TensorEntry, file: str) -> tuple[list[int], int]:
    """Returns the lengths of the strings of a tensor and the position after them."""
    count = 1
    for size in entry.shape:
        count *= size
    if count > len(data):
        raise BundleError(file, entry.offset, f"{entry.name} has more strings than bytes")
    lengths, position = [], 0
    try:
        for _ in range(count):
            length, position = read_varint(data, position)
            lengths.append(length)
    except WireError as error:
        raise BundleError(file, entry.offset, f"{entry.name}: {error}") from error
    if position + 4 + sum(lengths) != len(data):
        raise BundleError(file, entry.offset, f"{entry.name}: lengths do not add up to its size")
    return lengths, position


def stored_checksum(data: bytes, entry: TensorEntry, file: str) -> int:
    """Returns the checksum that TensorFlow stores of a tensor with these bytes.

    Raises:
        BundleError: A tensor of strings or variants is damaged within.
    """
    if entry.dtype == "string":
        return _string_checksum(data, entry, file)
    if entry.dtype == "variant":
        return _variant_checksum(data, entry, file)
    return crc32c(data)


def _string_checksum(data: bytes, entry: TensorEntry, file: str) -> int:
    """Returns the checksum of a tensor of strings as TensorFlow computes it.

    It covers the lengths as fixed-size integers, their own checksum, and the bytes
    (`WriteStringTensor` in `tensor_bundle.cc`).

    Raises:
        BundleError: The lengths are damaged.
    """
    lengths, position = string_lengths(data, entry, file)
    packed = b"".join(struct.pack("<I" if length < 1 << 32 else "<Q", length) for length in lengths)
    value = crc32c(packed)
    stored = data[position : position + 4]
    if unmask(struct.unpack("<I", stored)[0]) != value:
        raise BundleError(file, entry.offset, f"{entry.name}: lengths do not match their checksum")
    return crc32c(data[position:], value)


def _variant_checksum(data: bytes, entry: TensorEntry, file: str) -> int:
    """Returns the checksum of a tensor of variants, such as the state of an iterator.

    Each element is its length, its bytes, and the checksum up to there, which in turn is part
    of what follows; the length counts as a fixed-size integer (`WriteVariantTensor` in
    `tensor_bundle.cc`).
    """
    value = position = 0
    while position < len(data):
        try:
            length, start = read_varint(data, position)
        except WireError as error:
            raise BundleError(file, entry.offset + position, f"{entry.name}: {error}") from error
        end = start + length
        if end + 4 > len(data):
            raise BundleError(file, entry.offset + position, f"{entry.name} is cut off")
        value = crc32c(data[start:end], crc32c(struct.pack("<Q", length), value))
        if unmask(struct.unpack_from("<I", data, end)[0]) != value:
            problem = f"{entry.name} does not match its checksum"
            raise BundleError(file, entry.offset + position, problem)
        value = crc32c(data[end : end + 4], value)
        position = end + 4
    return value
