"""The elements of a tensor as numbers, some megabytes at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tfckpt_trainer.bundle.checksum import crc32c
from tfckpt_trainer.bundle.dtypes import ITEM_SIZES, numpy_dtype
from tfckpt_trainer.bundle.index import Index, TensorEntry, shard_path
from tfckpt_trainer.bundle.shard import Shard
from tfckpt_trainer.errors import BundleError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64] | NDArray[np.complex128]

_PIECE = 1 << 18
"""Elements handed out at a time: what is computed from them fits a processor's cache."""


def is_numeric(entry: TensorEntry) -> bool:
    """Whether the elements of a tensor are numbers."""
    return entry.dtype in ITEM_SIZES


def numeric_chunks(prefix: Path, index: Index, entry: TensorEntry) -> Iterator[Numbers]:
    """Yields all elements of a tensor in the order of the file, as double precision.

    A tensor that was saved in parts comes part by part, in the order of their places.

    Raises:
        BundleError: The elements are no numbers, or not where they should be; or, once all of a
            part was handed out, they do not match their checksum.
        FileNotFoundError: A data file is missing.
    """
    import numpy as np

    if not is_numeric(entry):
        raise BundleError(f"{prefix.name}.index", None, f"{entry.name} is {entry.dtype}, no number")
    dtype = numpy_dtype(entry.dtype)
    for stored in _stored(prefix, index, entry):
        with Shard(shard_path(prefix, stored.shard, stored.shard_count)) as shard:
            if stored.size % dtype.itemsize:
                problem = f"{stored.name} has {stored.size} bytes, no whole number of elements"
                raise BundleError(shard.name, stored.offset, problem)
            checksum = 0
            for data in shard.chunks(stored.offset, stored.size):
                checksum = crc32c(data, checksum)
                values = np.frombuffer(data, dtype)
                for start in range(0, len(values), _PIECE):
                    yield _widened(values[start : start + _PIECE])
            if checksum != stored.crc32c:
                problem = f"{stored.name} does not match its checksum"
                raise BundleError(shard.name, stored.offset, problem)


def _widened(values: NDArray[np.generic]) -> Numbers:
    import numpy as np

    # A signalling NaN becomes a quiet one, which is nothing to warn of.
    with np.errstate(invalid="ignore"):
        if np.iscomplexobj(values):
            return values.astype(np.complex128)
        return values.astype(np.float64)


def _stored(prefix: Path, index: Index, entry: TensorEntry) -> list[TensorEntry]:
    if not entry.slices:
        return [entry]
    try:
        parts = sorted(entry.slices, key=lambda part: part.extents)
        return [index.parts[entry.name, part] for part in parts]
    except KeyError as error:
        raise BundleError(f"{prefix.name}.index", None, f"{entry.name} lacks a part") from error


def read_integer(prefix: Path, entry: TensorEntry) -> int | None:
    """Returns the value of a scalar of an integer type; None for any other tensor.

    Raises:
        BundleError: It is not where it should be.
        FileNotFoundError: The data file is missing.
    """
    if entry.shape != () or not entry.dtype.startswith(("int", "uint")):
        return None
    if entry.size != ITEM_SIZES[entry.dtype]:
        return None
    with Shard(shard_path(prefix, entry.shard, entry.shard_count)) as shard:
        data = shard.read(entry.offset, entry.size)
    return int.from_bytes(data, "little", signed=entry.dtype.startswith("int"))
