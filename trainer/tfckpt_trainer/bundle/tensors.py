"""Reads tensors as bytes, strings or numbers, and checks them against their checksums."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tfckpt_trainer.bundle.checksum import crc32c
from tfckpt_trainer.bundle.dtypes import ITEM_SIZES, numpy_dtype
from tfckpt_trainer.bundle.index import Index, TensorEntry, index_path, shard_path
from tfckpt_trainer.bundle.shard import Shard
from tfckpt_trainer.bundle.tensor_checksums import CHECKSUM_SIZE, compute_checksum
from tfckpt_trainer.bundle.wire import read_varint
from tfckpt_trainer.errors import BundleError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64] | NDArray[np.complex128]

_CHUNK_ELEMENTS = 1 << 18
"""Elements yielded at a time, few enough to stay in the CPU cache."""


def read_tensor_bytes(prefix: Path, entry: TensorEntry) -> bytes:
    """Reads the stored bytes of a whole tensor or of one part.

    Raises:
        BundleError: The bytes are missing or do not match their checksum.
        FileNotFoundError: The data file is missing.
        OSError: The data file cannot be read.
    """
    pieces: list[bytes] = []
    with Shard(shard_path(prefix, entry.shard, entry.shard_count)) as shard:
        if compute_checksum(shard, entry, pieces.append) != entry.crc32c:
            raise _checksum_error(shard, entry)
    return b"".join(pieces)


def read_strings(prefix: Path, entry: TensorEntry) -> list[bytes]:
    """Reads the elements of a string tensor, in row-major order.

    Raises:
        BundleError: The tensor is damaged or not a string tensor.
        FileNotFoundError: The data file is missing.
        OSError: The data file cannot be read.
    """
    if entry.dtype != "string":
        file = shard_path(prefix, entry.shard, entry.shard_count).name
        raise BundleError(file, entry.offset, f"{entry.name} is {entry.dtype}; expected string")
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


def read_integer(prefix: Path, entry: TensorEntry) -> int | None:
    """Reads an integer scalar; returns None for other tensors. Does not check its checksum.

    Raises:
        BundleError: The data file is too short.
        FileNotFoundError: The data file is missing.
    """
    if entry.shape != () or not entry.dtype.startswith(("int", "uint")):
        return None
    if entry.size != ITEM_SIZES[entry.dtype]:
        return None
    with Shard(shard_path(prefix, entry.shard, entry.shard_count)) as shard:
        data = shard.read(entry.offset, entry.size)
    return int.from_bytes(data, "little", signed=entry.dtype.startswith("int"))


def is_numeric(entry: TensorEntry) -> bool:
    """Whether the elements of a tensor are numbers."""
    return entry.dtype in ITEM_SIZES


def numeric_chunks(prefix: Path, index: Index, entry: TensorEntry) -> Iterator[Numbers]:
    """Yields all elements of a numeric tensor in double precision; see `stored_chunks`."""
    for values in stored_chunks(prefix, index, entry):
        yield to_double(values)


def stored_chunks(prefix: Path, index: Index, entry: TensorEntry) -> Iterator[NDArray[np.generic]]:
    """Yields all elements of a numeric tensor in the type in which they are stored.

    Elements come in the order of the file. The parts of a tensor that was saved in parts come
    in the order of their positions.

    Raises:
        BundleError: The tensor is not numeric or the data file is too short. Also raised after
            the last element of a part if the part does not match its checksum.
        FileNotFoundError: A data file is missing.
    """
    if not is_numeric(entry):
        problem = f"{entry.name} is {entry.dtype}; expected a numeric type"
        raise BundleError(index_path(prefix).name, None, problem)
    for stored in stored_entries(prefix, index, entry):
        yield from part_chunks(prefix, stored)


def part_chunks(prefix: Path, stored: TensorEntry) -> Iterator[NDArray[np.generic]]:
    """Yields all elements of a whole tensor or of one part; see `stored_chunks`."""
    import numpy as np

    dtype = numpy_dtype(stored.dtype)
    with Shard(shard_path(prefix, stored.shard, stored.shard_count)) as shard:
        if stored.size % dtype.itemsize:
            problem = (
                f"{stored.name} has {stored.size} bytes, not a multiple of the "
                f"{dtype.itemsize} bytes of {stored.dtype}"
            )
            raise BundleError(shard.name, stored.offset, problem)
        checksum = 0
        for data in shard.chunks(stored.offset, stored.size):
            checksum = crc32c(data, checksum)
            values = np.frombuffer(data, dtype)
            for start in range(0, len(values), _CHUNK_ELEMENTS):
                yield values[start : start + _CHUNK_ELEMENTS]
        if checksum != stored.crc32c:
            raise _checksum_error(shard, stored)


def to_double(values: NDArray[np.generic]) -> Numbers:
    """Returns numbers in double precision."""
    import numpy as np

    # NumPy warns when it converts a signalling NaN to a quiet one.
    with np.errstate(invalid="ignore"):
        if np.iscomplexobj(values):
            return values.astype(np.complex128)
        return values.astype(np.float64)


def stored_entries(prefix: Path, index: Index, entry: TensorEntry) -> list[TensorEntry]:
    """Returns the entries with the bytes of a tensor: its own, or those of its parts in order.

    Raises:
        BundleError: A part is missing.
    """
    if not entry.slices:
        return [entry]
    try:
        parts = sorted(entry.slices, key=lambda part: part.extents)
        return [index.parts[entry.name, part] for part in parts]
    except KeyError as error:
        problem = f"{entry.name}: a part is missing"
        raise BundleError(index_path(prefix).name, None, problem) from error


def _checksum_error(shard: Shard, entry: TensorEntry) -> BundleError:
    return BundleError(shard.name, entry.offset, f"{entry.name} does not match its checksum")
