"""How statistics and changes of tensors are printed, in tables and as JSON."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from tfckpt_trainer.bundle.analysis.compare import (
    ArrayComparison,
    TensorChange,
    TensorComparison,
    TensorDifference,
)
from tfckpt_trainer.bundle.analysis.statistics import Statistics
from tfckpt_trainer.bundle.dtypes import format_tensor
from tfckpt_trainer.bundle.exchange.array_file import Array
from tfckpt_trainer.bundle.index import TensorEntry
from tfckpt_tui.formats import units
from tfckpt_tui.formats.units import finite
from tfckpt_tui.reports.tensors import (
    Bins,
    ComparedTensor,
    CompareReport,
    TensorDistance,
    TensorStatistics,
)

STATISTICS = ("MIN", "MAX", "MEAN", "NORM", "NOT FINITE")
CHANGES = ("CHANGE", "NORM BEFORE", "NORM AFTER")
"""Headings of the columns."""

DIFFERENCE_WORDS = {
    TensorDifference.ADDED: "added",
    TensorDifference.REMOVED: "removed",
    TensorDifference.SHAPE: "other shape",
    TensorDifference.DTYPE: "other type",
    TensorDifference.CHANGED: "changed",
    TensorDifference.EQUAL: "equal",
}


def difference_counts(count: Callable[[TensorDifference], int]) -> str:
    """Returns how many tensors differ in which way, as words."""
    counts = (
        f"{count(kind):,} {DIFFERENCE_WORDS[kind]}" for kind in TensorDifference if count(kind)
    )
    return ", ".join(counts) or "no tensors"


def statistics_cells(figures: Statistics | None) -> tuple[str, ...]:
    """Returns the cells of the columns `STATISTICS`."""
    if figures is None:
        return ("–",) * 5
    numbers = (figures.minimum, figures.maximum, figures.mean, figures.norm)
    shown = ("–" if number is None else units.metric(number) for number in numbers)
    return (*shown, str(figures.nan + figures.infinite))


def statistics_report(figures: Statistics | None) -> TensorStatistics | None:
    """Returns the statistics of a tensor for JSON; values that are not finite are null."""
    if figures is None:
        return None
    bins = figures.histogram
    return TensorStatistics(
        elements=figures.elements,
        zeros=figures.zeros,
        nan=figures.nan,
        infinite=figures.infinite,
        minimum=figures.minimum,
        maximum=figures.maximum,
        mean=finite(figures.mean),
        deviation=finite(figures.deviation),
        norm=finite(figures.norm),
        histogram=None if bins is None else Bins(bins.low, bins.high, bins.counts),
    )


def tensor_words(entry: TensorEntry | Array | None) -> str:
    """Returns the type and shape of a tensor; a dash if there is none."""
    return "–" if entry is None else format_tensor(entry.dtype, entry.shape)


def change_cells(change: TensorChange | None) -> tuple[str, str, str]:
    """Returns the cells of the columns `CHANGES`."""
    if change is None:
        return "–", "–", "–"
    if change.not_finite:
        relative = f"{change.not_finite:,} not finite"
    elif math.isfinite(change.relative):
        relative = f"{100 * change.relative:.3g} %"
    else:
        relative = "from 0"
    return relative, units.metric(change.norm_before), units.metric(change.norm_after)


def compared_report(
    comparison: TensorComparison | ArrayComparison, path: str, problem: str
) -> ComparedTensor:
    """Returns a tensor of a comparison for JSON, without by how much it changed."""
    before, after = comparison.before, comparison.after
    return ComparedTensor(
        name=comparison.name,
        path=path,
        difference=comparison.difference,
        unknown=isinstance(comparison, TensorComparison) and comparison.unknown,
        dtype=(before.dtype if before else None, after.dtype if after else None),
        shape=(before.shape if before else None, after.shape if after else None),
        problem=problem,
    )


def comparison_report(
    before: str, after: str, problems: Sequence[str], tensors: Sequence[ComparedTensor]
) -> CompareReport:
    """Returns a comparison for JSON."""
    kinds = Counter(tensor.difference for tensor in tensors)
    return CompareReport(
        before=before,
        after=after,
        problems=tuple(problems),
        counts={kind: kinds[kind] for kind in TensorDifference},
        tensors=tuple(tensors),
        hyperparameters={},
    )


def change_report(change: TensorChange | None) -> TensorDistance | None:
    """Returns a change for JSON; values that are not finite are null."""
    if change is None:
        return None
    return TensorDistance(
        norm_before=finite(change.norm_before),
        norm_after=finite(change.norm_after),
        distance=finite(change.distance),
        relative=finite(change.relative),
        not_finite=change.not_finite,
    )
