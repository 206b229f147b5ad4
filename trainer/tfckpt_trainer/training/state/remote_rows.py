"""Reads values that parameter servers hold, a few rows at a time.

An embedding may be larger than the memory of the process that compares it with a checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfckpt_trainer.training.state.variables import components, is_partitioned

_BLOCK_BYTES = 16 << 20
"""Bytes that this process gets at a time. A few copies of a block exist during its transfer."""


@dataclass(frozen=True)
class _Held:
    """The first row of a value that one server holds, and the value, which stays there."""

    begin: int
    value: tf.Tensor


def is_remote(variable: Any) -> bool:
    """Whether parameter servers hold the value of a variable, or partitions as servers do."""
    return is_partitioned(variable) or "/job:ps/" in str(components(variable)[0].device)


class RemoteRows:
    """The value of a variable on parameter servers, as it was when this was created."""

    def __init__(self, variable: Any) -> None:
        """Has each server keep the present value of its partition; nothing is transferred."""
        self._held: list[_Held] = []
        begin = 0
        for component in components(variable):
            with tf.device(component.device):
                value = component.read_value()
            self._held.append(_Held(begin, value))
            begin += value.shape[0] if value.shape.rank else 1

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole value."""
        shapes = [tuple(held.value.shape.as_list()) for held in self._held]
        if len(shapes) == 1:
            return shapes[0]
        return sum(rows for rows, *_ in shapes), *shapes[0][1:]

    def blocks(self, begin: int, end: int) -> Iterator[npt.NDArray[Any]]:
        """Yields the rows from `begin` to before `end`, in order; a scalar has one row."""
        for held in self._held:
            first, last = max(0, begin - held.begin), end - held.begin
            yield from _blocks_of(held.value, first, last)

    def whole(self) -> npt.NDArray[Any]:
        """Returns all rows at once."""
        values = [np.asarray(held.value) for held in self._held]
        return values[0] if len(values) == 1 else np.concatenate(values)


def _blocks_of(value: tf.Tensor, first: int, last: int) -> Iterator[npt.NDArray[Any]]:
    if not value.shape.rank:
        yield np.asarray(value)
        return
    last = min(last, value.shape[0])
    row_bytes = value.dtype.size * (value.shape.num_elements() // max(1, value.shape[0]))
    rows = max(1, _BLOCK_BYTES // max(1, row_bytes))
    for row in range(first, last, rows):
        with tf.device(value.device):
            block = value[row : min(row + rows, last)]
        yield np.asarray(block)
