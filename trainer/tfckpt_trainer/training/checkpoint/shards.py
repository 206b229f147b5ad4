"""Divides a checkpoint into files: by the worker that writes them, and by their largest size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Extent:
    """Type and shape of one tensor, as far as dividing goes.

    Attributes:
        shape: Its dimensions.
        item_bytes: Of one element; 0 where that is not known, as for strings.
    """

    shape: tuple[int, ...]
    item_bytes: int

    @property
    def size(self) -> int:
        """Bytes of all elements."""
        size = self.item_bytes
        for length in self.shape:
            size *= length
        return size


@dataclass(frozen=True)
class Piece:
    """A tensor, or the rows of it from `begin` on.

    Attributes:
        rows: How many; None is the whole tensor.
    """

    key: str
    begin: int = 0
    rows: int | None = None

    def specification(self, shape: tuple[int, ...]) -> str:
        """Returns what `tf.raw_ops.SaveV2` takes as `shape_and_slices`."""
        if self.rows is None:
            return ""
        first = f"{self.begin},{self.rows}"
        dimensions = " ".join(map(str, shape))
        return f"{dimensions} {':'.join([first, *['-'] * (len(shape) - 1)])}"


Shard = tuple[Piece, ...]


def divide(
    extents: Mapping[str, Extent], writers: int, largest: int | None
) -> tuple[tuple[Shard, ...], ...]:
    """Returns the shards of each writer; a pure function, so that all workers agree on it.

    Args:
        extents: Of all tensors, in the order in which they are written.
        writers: How many workers write: each a run of tensors of about the same size.
        largest: How many bytes of tensors a shard may have. A larger tensor is cut along its
            first dimension; a row that is larger still is a shard of its own.
    """
    total = max(1, sum(extent.size for extent in extents.values()))
    keys: list[list[str]] = [[] for _ in range(writers)]
    before = 0
    for key, extent in extents.items():
        # By its middle: a tensor goes to the writer in whose part most of it lies.
        writer = (2 * before + extent.size) * writers // (2 * total)
        keys[min(writer, writers - 1)].append(key)
        before += extent.size
    return tuple(_shards_of(own, extents, largest) for own in keys)


def _shards_of(
    keys: list[str], extents: Mapping[str, Extent], largest: int | None
) -> tuple[Shard, ...]:
    if largest is None:
        return (tuple(Piece(key) for key in keys),) if keys else ()
    shards: list[Shard] = []
    current: list[Piece] = []
    filled = 0
    for key in keys:
        size = extents[key].size
        if size > largest:
            shards += [(piece,) for piece in _cut(key, extents[key], largest)]
            continue
        if current and filled + size > largest:
            shards.append(tuple(current))
            current, filled = [], 0
        current.append(Piece(key))
        filled += size
    if current:
        shards.append(tuple(current))
    return tuple(shards)


def _cut(key: str, extent: Extent, largest: int) -> list[Piece]:
    count = extent.shape[0] if extent.shape else 1
    if count < 2:
        return [Piece(key)]
    rows = max(1, largest // (extent.size // count))
    return [Piece(key, begin, min(rows, count - begin)) for begin in range(0, count, rows)]
