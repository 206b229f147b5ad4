"""Compares two checkpoints: first by their indexes, then tensor by tensor."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from tfckpt_trainer.bundle.analysis.norms import Norm
from tfckpt_trainer.bundle.checksum import combine
from tfckpt_trainer.bundle.exchange.whole_tensors import in_step
from tfckpt_trainer.bundle.index import Index, TensorEntry
from tfckpt_trainer.bundle.object_graph import tensors_of
from tfckpt_trainer.bundle.slices import WHOLE
from tfckpt_trainer.bundle.tensors import is_numeric, numeric_chunks, to_double
from tfckpt_trainer.errors import TfckptError, describe_error

if TYPE_CHECKING:
    from tfckpt_trainer.bundle.exchange.array_file import Array
    from tfckpt_trainer.bundle.tensors import Numbers


class TensorDifference(StrEnum):
    """How a tensor differs between two checkpoints."""

    ADDED = "added"
    REMOVED = "removed"
    SHAPE = "shape"
    DTYPE = "dtype"
    CHANGED = "changed"
    EQUAL = "equal"


@dataclass(frozen=True)
class TensorComparison:
    """One tensor in two checkpoints.

    Attributes:
        before: Its entry in the first checkpoint; None if it is missing there.
        after: Its entry in the second checkpoint; None if it is missing there.
        unknown: Whether checksums cannot decide, because the tensor was split differently.
    """

    name: str
    difference: TensorDifference
    before: TensorEntry | None
    after: TensorEntry | None
    unknown: bool = False


@dataclass(frozen=True)
class TensorChange:
    """How much a tensor changed.

    Attributes:
        distance: L2 norm of the difference.
        relative: `distance` divided by `norm_before`; infinite if that is zero.
        not_finite: Number of elements that are not finite on either side. Norms exclude them.
    """

    name: str
    norm_before: float
    norm_after: float
    distance: float
    relative: float
    not_finite: int

    @property
    def rank(self) -> tuple[bool, float]:
        """Sort key: the largest change comes last, after it tensors that are not finite."""
        return self.not_finite > 0, math.inf if math.isnan(self.relative) else self.relative


def compare(before: Index, after: Index) -> tuple[TensorComparison, ...]:
    """Compares two checkpoints by their indexes; returns tensors in the order of their names.

    Tensors with equal checksums count as equal. CRC32C collides for one pair in 4 billion.
    """
    old, new = tensors_of(before), tensors_of(after)
    return tuple(_compared(name, before, after) for name in sorted(old.keys() | new.keys()))


def measure_change(
    prefixes: tuple[Path, Path], indexes: tuple[Index, Index], compared: TensorComparison
) -> TensorChange | None:
    """Reads a tensor from both checkpoints and measures its change, in bounded memory.

    Returns:
        The change, or None if the tensor is not numeric, its shapes differ, or it was split
        differently and not by rows.

    Raises:
        BundleError: The tensor is damaged.
        FileNotFoundError: A data file is missing.
    """
    before, after = compared.before, compared.after
    if before is None or after is None or before.shape != after.shape:
        return None
    if not (is_numeric(before) and is_numeric(after)):
        return None
    # Equal parts come in the same order on both sides; rows come in row-major order.
    if before.slices != after.slices and not (_is_rows(before) and _is_rows(after)):
        return None
    sums = _Sums()
    chunks = numeric_chunks(prefixes[0], indexes[0], before)
    for left, right in _in_step(chunks, numeric_chunks(prefixes[1], indexes[1], after)):
        sums.add(left, right)
    return sums.result(compared.name)


@dataclass(frozen=True)
class ArrayComparison:
    """One tensor in two files.

    Attributes:
        before: The tensor in the first; None if it is missing there.
        after: The tensor in the second; None if it is missing there.
        change: How much it changed; None if its values were not compared.
        problem: Why it could not be read; empty if it could.
    """

    name: str
    difference: TensorDifference
    before: Array | None
    after: Array | None
    change: TensorChange | None = None
    problem: str = ""


def compare_arrays(
    before: Mapping[str, Array], after: Mapping[str, Array]
) -> Iterator[ArrayComparison]:
    """Compares tensors of files without checksums: reads both, in bounded memory.

    Args:
        before: Tensors by the names to compare them by.
        after: The same of the second file.

    Yields:
        The tensors in the order of their names. Those that cannot be read count as changed.
    """
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            kind = TensorDifference.ADDED if old is None else TensorDifference.REMOVED
        elif old.dtype != new.dtype:
            kind = TensorDifference.DTYPE
        elif old.shape != new.shape:
            kind = TensorDifference.SHAPE
        else:
            yield _values_compared(name, old, new)
            continue
        yield ArrayComparison(name, kind, old, new)


def _values_compared(name: str, old: Array, new: Array) -> ArrayComparison:
    import numpy as np

    sums, is_equal = _Sums(), True
    try:
        for left, right in in_step([old.chunks(), new.chunks()]):
            is_equal = is_equal and np.array_equal(left.view(np.uint8), right.view(np.uint8))
            sums.add(to_double(left), to_double(right))
    except (TfckptError, OSError) as error:
        problem = describe_error(error)
        return ArrayComparison(name, TensorDifference.CHANGED, old, new, problem=problem)
    kind = TensorDifference.EQUAL if is_equal else TensorDifference.CHANGED
    return ArrayComparison(name, kind, old, new, sums.result(name))


def _compared(name: str, before: Index, after: Index) -> TensorComparison:
    old, new = before.entries.get(name), after.entries.get(name)
    if old is None or new is None:
        return TensorComparison(
            name, TensorDifference.ADDED if old is None else TensorDifference.REMOVED, old, new
        )
    if old.dtype != new.dtype:
        return TensorComparison(name, TensorDifference.DTYPE, old, new)
    if old.shape != new.shape:
        return TensorComparison(name, TensorDifference.SHAPE, old, new)
    if old.slices == new.slices:
        equal = _checksums(before, old) == _checksums(after, new)
    else:
        whole = _checksum_of_rows(before, old)
        if whole is None or (other := _checksum_of_rows(after, new)) is None:
            return TensorComparison(name, TensorDifference.CHANGED, old, new, unknown=True)
        equal = whole == other
    return TensorComparison(
        name, TensorDifference.EQUAL if equal else TensorDifference.CHANGED, old, new
    )


def _checksums(index: Index, entry: TensorEntry) -> list[tuple[int, int]]:
    stored = [index.parts.get((entry.name, part)) for part in entry.slices] or [entry]
    return [(piece.size, piece.crc32c) if piece is not None else (0, 0) for piece in stored]


def _checksum_of_rows(index: Index, entry: TensorEntry) -> tuple[int, int] | None:
    """Returns size and checksum of a tensor in row-major order; None if its parts are no rows."""
    if not (is_numeric(entry) and _is_rows(entry)):
        return None
    parts = sorted(entry.slices, key=lambda part: part.extents)
    stored = [index.parts.get((entry.name, part)) for part in parts] or [entry]
    size = checksum = 0
    for piece in stored:
        if piece is None:
            return None
        size, checksum = size + piece.size, combine(checksum, piece.crc32c, piece.size)
    return size, checksum


class _Sums:
    """The norms of two tensors and of their difference."""

    def __init__(self) -> None:
        self._before, self._after, self._apart = Norm(), Norm(), Norm()
        self._not_finite = 0

    def add(self, left: Numbers, right: Numbers) -> None:
        import numpy as np

        finite = np.isfinite(left) & np.isfinite(right)
        count = int(np.count_nonzero(finite))
        if count < len(finite):
            self._not_finite += len(finite) - count
            left, right = left[finite], right[finite]
        self._before.add(left)
        self._after.add(right)
        with np.errstate(over="ignore", invalid="ignore"):
            self._apart.add(right - left)

    def result(self, name: str) -> TensorChange:
        before, apart = self._before.value, self._apart.value
        relative = apart / before if before else (math.inf if apart else 0.0)
        return TensorChange(name, before, self._after.value, apart, relative, self._not_finite)


def _is_rows(entry: TensorEntry) -> bool:
    """Whether the parts, one after another, are in row-major order."""
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
    """Splits two streams of equal total length into pairs of chunks of equal length."""
    a, b = next(left, None), next(right, None)
    while a is not None and b is not None:
        count = min(len(a), len(b))
        yield a[:count], b[:count]
        a = a[count:] if count < len(a) else next(left, None)
        b = b[count:] if count < len(b) else next(right, None)
