"""Single tensors, checked against their checksums: their bytes, or their strings."""

from __future__ import annotations

from pathlib import Path

from tfckpt_trainer.bundle.index import TensorEntry, shard_path
from tfckpt_trainer.bundle.shard import Shard
from tfckpt_trainer.bundle.stored import CHECKSUM_SIZE, computed_checksum
from tfckpt_trainer.bundle.wire import read_varint
from tfckpt_trainer.errors import BundleError


def read_tensor_bytes(prefix: Path, entry: TensorEntry) -> bytes:
    """Reads the stored bytes of a tensor that has bytes of its own.

    Raises:
        BundleError: They are not there, or do not match their checksum.
        FileNotFoundError: The data file is missing.
        OSError: It cannot be read.
    """
    pieces: list[bytes] = []
    with Shard(shard_path(prefix, entry.shard, entry.shard_count)) as shard:
        if computed_checksum(shard, entry, pieces.append) != entry.crc32c:
            raise BundleError(shard.name, entry.offset, f"{entry.name} does not match its checksum")
    return b"".join(pieces)


def read_strings(prefix: Path, entry: TensorEntry) -> list[bytes]:
    """Reads the elements of a tensor of strings, in the order of memory.

    Raises:
        BundleError: It is damaged or has another type.
        FileNotFoundError: The data file is missing.
        OSError: It cannot be read.
    """
    if entry.dtype != "string":
        file = shard_path(prefix, entry.shard, entry.shard_count).name
        raise BundleError(file, entry.offset, f"{entry.name} is {entry.dtype}, not string")
    data = read_tensor_bytes(prefix, entry)
    lengths, position = [], 0
    for _ in range(entry.element_count):
        length, position = read_varint(data, position)
        lengths.append(length)
    position += CHECKSUM_SIZE
    texts = []
    for length in lengths:
        texts.append(data[position : position + length])
        position += length
    return texts
