"""Reads tensors in row-major order, also those that were saved in parts, in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfckpt_trainer.bundle.checksum import crc32c
from tfckpt_trainer.bundle.dtypes import numpy_dtype
from tfckpt_trainer.bundle.index import Index, TensorEntry, index_path, shard_path
from tfckpt_trainer.bundle.shard import Shard
from tfckpt_trainer.bundle.slices import WHOLE
from tfckpt_trainer.bundle.structure import slice_problem
from tfckpt_trainer.bundle.tensors import stored_chunks
from tfckpt_trainer.errors import BundleError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BAND = 16 << 20
"""Bytes of a tensor in parts that are put together at a time."""


def row_major_chunks(
    prefix: Path, index: Index, entry: TensorEntry, band: int = BAND
) -> Iterator[NDArray[Any]]:
    """Yields all elements of a numeric tensor, in row-major order and in the stored type.

    Args:
        prefix: The checkpoint.
        index: Its index.
        entry: The tensor.
        band: Bytes to put together at a time, if the tensor was saved in parts.

    Raises:
        BundleError: The tensor is not numeric or damaged, or a part is missing.
        FileNotFoundError: A data file is missing.
    """
    if not entry.slices:
        yield from stored_chunks(prefix, index, entry)
        return
    problem = slice_problem(index, entry)
    if problem:
        raise BundleError(index_path(prefix).name, None, f"{entry.name}: {problem}")
    with ExitStack() as stack:
        shards: dict[int, Shard] = {}
        parts = []
        for extents in entry.slices:
            stored = index.parts[entry.name, extents]
            if stored.shard not in shards:
                path = shard_path(prefix, stored.shard, stored.shard_count)
                shards[stored.shard] = stack.enter_context(Shard(path))
            box = tuple(
                (start, size if length == WHOLE else length)
                for (start, length), size in zip(extents.extents, entry.shape, strict=True)
            )
            parts.append(_Part(stored, box, shards[stored.shard]))
        yield from _put_together(entry, parts, band)


def in_step(streams: Sequence[Iterator[NDArray[Any]]]) -> Iterator[list[NDArray[Any]]]:
    """Splits streams of equal total length into chunks of equal length."""
    rest = [next(stream, None) for stream in streams]
    while True:
        chunks = [chunk for chunk in rest if chunk is not None]
        if len(chunks) < len(streams):
            return
        count = min(map(len, chunks))
        yield [chunk[:count] for chunk in chunks]
        rest = [
            chunk[count:] if count < len(chunk) else next(stream, None)
            for chunk, stream in zip(chunks, streams, strict=True)
        ]


def bands(shape: Sequence[int], item: int, size: int) -> Iterator[tuple[tuple[int, ...], int, int]]:
    """Divides a tensor into bands of consecutive rows.

    Args:
        shape: Its shape, of at least one dimension.
        item: Bytes of an element.
        size: Bytes of a band, unless one row is larger.

    Yields:
        For each band, its place in the outer dimensions, and its first and last row plus one.
    """
    # The first axis whose rows are small enough to take several of them.
    axis = next(
        (place for place in range(len(shape)) if math.prod(shape[place + 1 :]) * item <= size),
        len(shape) - 1,
    )
    row = math.prod(shape[axis + 1 :]) * item
    count = max(1, size // row) if row else shape[axis]
    for outer in product(*map(range, shape[:axis])):
        for start in range(0, shape[axis], max(1, count)):
            yield outer, start, min(shape[axis], start + count)


@dataclass
class _Part:
    """A part that is read from its start to its end."""

    stored: TensorEntry
    box: tuple[tuple[int, int], ...]
    shard: Shard
    done: int = 0
    checksum: int = 0

    def read(self, elements: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Returns the next elements; checks the checksum with the last one."""
        import numpy as np

        size = elements * dtype.itemsize
        data = self.shard.read(self.stored.offset + self.done, size)
        self.done += size
        self.checksum = crc32c(data, self.checksum)
        if self.done == self.stored.size and self.checksum != self.stored.crc32c:
            problem = f"{self.stored.name} does not match its checksum"
            raise BundleError(self.shard.name, self.stored.offset, problem)
        return np.frombuffer(data, dtype)


def _put_together(entry: TensorEntry, parts: list[_Part], band: int) -> Iterator[NDArray[Any]]:
    """Yields bands of consecutive rows; each part is read in its own order."""
    import numpy as np

    dtype, shape = numpy_dtype(entry.dtype), entry.shape
    for outer, start, end in bands(shape, dtype.itemsize, band):
        whole = np.empty((end - start, *shape[len(outer) + 1 :]), dtype)
        for part in parts:
            _fill(whole, part, outer, start, end)
        yield whole.reshape(-1)


def _fill(whole: NDArray[Any], part: _Part, outer: tuple[int, ...], start: int, end: int) -> None:
    """Fills in what a part has of the rows from `start` to `end`."""
    axis = len(outer)
    inside = zip(outer, part.box[:axis], strict=True)
    if not all(first <= place < first + length for place, (first, length) in inside):
        return
    first, length = part.box[axis]
    begin, stop = max(start, first), min(end, first + length)
    if begin >= stop:
        return
    inner = part.box[axis + 1 :]
    lengths = tuple(size for _, size in inner)
    values = part.read((stop - begin) * math.prod(lengths), whole.dtype)
    place = (slice(begin - start, stop - start), *(slice(a, a + n) for a, n in inner))
    whole[place] = values.reshape(stop - begin, *lengths)
