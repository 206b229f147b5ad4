"""What changed between two checkpoints: at once from their indexes, then how much."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from tfckpt_trainer.bundle.index import Index, TensorEntry
from tfckpt_trainer.bundle.slices import WHOLE
from tfckpt_trainer.bundle.values import is_numeric, numeric_chunks

if TYPE_CHECKING:
    from tfckpt_trainer.bundle.values import Numbers


class Difference(StrEnum):
    """How a tensor of one checkpoint relates to that of the same name in another."""

    ADDED = "added"
    REMOVED = "removed"
    SHAPE = "shape"
    DTYPE = "dtype"
    CHANGED = "changed"
    EQUAL = "equal"


@dataclass(frozen=True)
class Compared:
    """One tensor in two checkpoints; the side where it is missing is None.

    Attributes:
        unknown: Whether the checksums cannot tell: it was saved in other parts each time.
    """

    name: str
    difference: Difference
    before: TensorEntry | None
    after: TensorEntry | None
    unknown: bool = False


@dataclass(frozen=True)
class Change:
    """How much a tensor changed.

    Attributes:
        distance: Norm of the difference.
        relative: That, divided by the norm before; infinite where that was zero.
        not_finite: Elements that are not finite on either side, and were left out.
    """

    name: str
    norm_before: float
    norm_after: float
    distance: float
    relative: float
    not_finite: int

    @property
    def rank(self) -> tuple[bool, float]:
        """Sorts by how bad it is, the worst last: what is not finite is worse than any change."""
        return self.not_finite > 0, math.inf if math.isnan(self.relative) else self.relative


def compare(before: Index, after: Index) -> tuple[Compared, ...]:
    """Compares two checkpoints by what their indexes say, in the order of the names.

    Equal checksums stand for equal bytes: one pair in four billion of different ones has them.
    """
    names = sorted(before.entries.keys() | after.entries.keys())
    return tuple(_compared(name, before, after) for name in names)


def change(
    prefixes: tuple[Path, Path], indexes: tuple[Index, Index], compared: Compared
) -> Change | None:
    """Reads a tensor on both sides and says how far apart they are, in bounded memory.

    Returns:
        None where its elements are no numbers, it is not on both sides in one shape, or it was
        saved in other parts that are no rows.

    Raises:
        BundleError: The elements are not where they should be, or damaged.
        FileNotFoundError: A data file is missing.
    """
    before, after = compared.before, compared.after
    if before is None or after is None or before.shape != after.shape:
        return None
    if not (is_numeric(before) and is_numeric(after)):
        return None
    # Parts that are the same on both sides come in the same order, whatever it is.
    if before.slices != after.slices and not (_is_rows(before) and _is_rows(after)):
        return None
    sums = _Sums()
    chunks = numeric_chunks(prefixes[0], indexes[0], before)
    for left, right in _in_step(chunks, numeric_chunks(prefixes[1], indexes[1], after)):
        sums.add(left, right)
    return sums.result(compared.name)


def _compared(name: str, before: Index, after: Index) -> Compared:
    old, new = before.entries.get(name), after.entries.get(name)
    if old is None or new is None:
        return Compared(name, Difference.ADDED if old is None else Difference.REMOVED, old, new)
    if old.dtype != new.dtype:
        return Compared(name, Difference.DTYPE, old, new)
    if old.shape != new.shape:
        return Compared(name, Difference.SHAPE, old, new)
    if old.slices != new.slices:
        return Compared(name, Difference.CHANGED, old, new, unknown=True)
    equal = _checksums(before, old) == _checksums(after, new)
    return Compared(name, Difference.EQUAL if equal else Difference.CHANGED, old, new)


def _checksums(index: Index, entry: TensorEntry) -> list[tuple[int, int]]:
    stored = [index.parts.get((entry.name, part)) for part in entry.slices] or [entry]
    return [(one.size, one.crc32c) if one is not None else (0, 0) for one in stored]


class _Sums:
    """Adds up the squares of two tensors and of their difference."""

    def __init__(self) -> None:
        self._before = self._after = self._apart = 0.0
        self._not_finite = 0

    def add(self, left: Numbers, right: Numbers) -> None:
        import numpy as np

        finite = np.isfinite(left) & np.isfinite(right)
        count = int(np.count_nonzero(finite))
        if count < len(finite):
            self._not_finite += len(finite) - count
            left, right = left[finite], right[finite]
        with np.errstate(over="ignore", invalid="ignore"):
            self._before += float(np.square(np.abs(left)).sum())
            self._after += float(np.square(np.abs(right)).sum())
            self._apart += float(np.square(np.abs(right - left)).sum())

    def result(self, name: str) -> Change:
        before, apart = math.sqrt(self._before), math.sqrt(self._apart)
        relative = apart / before if before else (math.inf if apart else 0.0)
        return Change(name, before, math.sqrt(self._after), apart, relative, self._not_finite)


def _is_rows(entry: TensorEntry) -> bool:
    """Whether its elements come in the order of memory, part after part."""
    return all(
        len(part.extents) == len(entry.shape)
        and all(
            length in (WHOLE, size)
            for (_, length), size in zip(part.extents[1:], entry.shape[1:], strict=True)
        )
        for part in entry.slices
    )


def _in_step(
    left: Iterator[Numbers], right: Iterator[Numbers]
) -> Iterator[tuple[Numbers, Numbers]]:
    """Cuts two streams of the same length into pieces of equal lengths."""
    a, b = next(left, None), next(right, None)
    while a is not None and b is not None:
        count = min(len(a), len(b))
        yield a[:count], b[:count]
        a = a[count:] if count < len(a) else next(left, None)
        b = b[count:] if count < len(b) else next(right, None)
