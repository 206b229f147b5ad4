"""Divides a checkpoint into shards, by the worker that writes them and by their maximum size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class TensorSize:
    """Shape and element size of one tensor.

    Attributes:
        shape: Its dimensions.
        element_bytes: Bytes of one element; 0 if that is unknown, as for strings.
    """

    shape: tuple[int, ...]
    element_bytes: int

    @property
    def size(self) -> int:
        """Bytes of all elements."""
        size = self.element_bytes
        for length in self.shape:
            size *= length
        return size


@dataclass(frozen=True)
class TensorRows:
    """A tensor, or a range of its rows.

    Attributes:
        key: Key of the tensor.
        begin: First row.
        rows: Number of rows; None is the whole tensor.
    """

    key: str
    begin: int = 0
    rows: int | None = None


Shard = tuple[TensorRows, ...]


def assign_shards(
    sizes: Mapping[str, TensorSize], writers: int, largest: int | None
) -> tuple[tuple[Shard, ...], ...]:
    """Returns the shards of each writer. A pure function, so that all workers agree.

    Args:
        sizes: Sizes of all tensors, in the order in which they are written.
        writers: Number of workers that write; each gets about the same number of bytes.
        largest: Maximum bytes of tensors in a shard; None means no limit. A larger tensor is split
            along its first dimension. A row that is larger still is a shard of its own.
    """
    total = max(1, sum(tensor.size for tensor in sizes.values()))
    keys: list[list[str]] = [[] for _ in range(writers)]
    before = 0
    for key, tensor in sizes.items():
        # By its middle: a tensor goes to the writer whose range contains most of it.
        writer = (2 * before + tensor.size) * writers // (2 * total)
        keys[min(writer, writers - 1)].append(key)
        before += tensor.size
    return tuple(_shards_of(of_writer, sizes, largest) for of_writer in keys)


def _shards_of(
    keys: list[str], sizes: Mapping[str, TensorSize], largest: int | None
) -> tuple[Shard, ...]:
    if largest is None:
        return (tuple(TensorRows(key) for key in keys),) if keys else ()
    shards: list[Shard] = []
    current: list[TensorRows] = []
    filled = 0
    for key in keys:
        size = sizes[key].size
        if size > largest:
            shards += [(rows,) for rows in _split(key, sizes[key], largest)]
            continue
        if current and filled + size > largest:
            shards.append(tuple(current))
            current, filled = [], 0
        current.append(TensorRows(key))
        filled += size
    if current:
        shards.append(tuple(current))
    return tuple(shards)


def _split(key: str, tensor: TensorSize, largest: int) -> list[TensorRows]:
    count = tensor.shape[0] if tensor.shape else 1
    if count < 2:
        return [TensorRows(key)]
    rows = max(1, largest // (tensor.size // count))
    return [TensorRows(key, begin, min(rows, count - begin)) for begin in range(0, count, rows)]
