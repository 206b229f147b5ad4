"""The y axis: its ends, and labels that are evenly spaced in values and in lines."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tfckpt_tui.formats.units import nice_step

DOTS = 4
"""Dots in one line of a chart."""

_LEAST_GAP, _MOST_GAP = 2, 7
"""Lines from one label to the next."""

_GAP_COST = 0.05
"""Part of the height that each line more or less than the best gap is worth."""

_FEW_LABELS_COST = 0.4
_MOST_SPAN = 1.6
"""How much longer than its values an axis may be."""

_STEPS_TRIED = 5
_LARGEST = 1e300
_LEAST_STEP = 1e-12
"""Relative to the largest value; labels that are closer cannot be told apart."""

_UNITS = ((1e9, "G"), (1e6, "M"), (1e4, "k"))
_THOUSAND = 1e3
_PLAIN = (1e-4, 1e12)
"""Labels beyond these have an exponent."""


@dataclass(frozen=True)
class ValueAxis:
    """The y axis of a chart.

    Attributes:
        low: The value of its lowest dot.
        high: The value of its highest dot.
        labels: Its labels by line, counted from the top.
    """

    low: float
    high: float
    labels: Mapping[int, str]


@dataclass(frozen=True)
class _Grid:
    """Labels at multiples of `step`, `gap` lines apart; the first is `below` dots up."""

    step: float
    gap: int
    first: int
    below: int

    @property
    def dot(self) -> float:
        """The height of a dot."""
        return self.step / (DOTS * self.gap)

    @property
    def low(self) -> float:
        """The value of the lowest dot."""
        return self.first * self.step - self.below * self.dot


def fit_axis(low: float, high: float, rows: int) -> ValueAxis:
    """Returns an axis of `rows` lines with round labels that has both values, and little else.

    Args:
        low: The lowest value.
        high: The highest value; more than `low`.
        rows: At least one.
    """
    size = DOTS * rows - 1
    best_gap = min(5, max(_LEAST_GAP, round(rows / 5)))

    def cost(grid: _Grid) -> float:
        few = _FEW_LABELS_COST if _count(grid, size) < min(3, rows / 2) else 0.0
        return grid.dot * size / (high - low) + _GAP_COST * abs(grid.gap - best_gap) + few

    best = min(_grids(low, high, rows), key=cost, default=None)
    if best is None:
        bottom, top = _texts([low, high], high / 10 - low / 10)
        return ValueAxis(low, high, {rows - 1: bottom, 0: top})
    values = [(best.first + number) * best.step for number in range(_count(best, size))]
    lowest = rows - 1 - best.below // DOTS
    labels = {
        lowest - best.gap * number: text for number, text in enumerate(_texts(values, best.step))
    }
    return ValueAxis(best.low, best.low + size * best.dot, labels)


def _grids(low: float, high: float, rows: int) -> Iterator[_Grid]:
    """Yields ways to label an axis that reach from `low` to `high`."""
    size = DOTS * rows - 1
    step = nice_step((high - low) / rows)
    largest = max(abs(low), abs(high))
    if largest > _LARGEST or not step > largest * _LEAST_STEP:
        return
    for _ in range(_STEPS_TRIED):
        first = math.ceil(low / step - 1e-9)
        for gap in range(min(_LEAST_GAP, rows - 1) or 1, _MOST_GAP + 1):
            dot = step / (DOTS * gap)
            below = max(0, math.ceil((first * step - low) / dot - 1e-9))
            grid = _Grid(step, gap, first, below)
            reaches = grid.low + size * dot >= high - dot * 1e-9
            if reaches and size * dot <= _MOST_SPAN * (high - low) and _count(grid, size) >= 2:
                yield grid
        step = nice_step(step * 1.01)


def _count(grid: _Grid, size: int) -> int:
    """Returns the number of labels on an axis whose highest dot is `size` above its lowest."""
    return (size - grid.below) // (DOTS * grid.gap) + 1 if grid.below <= size else 0


def _texts(values: Sequence[float], step: float) -> list[str]:
    """Returns labels for values that are `step` apart, with as many digits as they need."""
    largest = max(map(abs, values))
    if not largest or not math.isfinite(largest):
        return [f"{value:g}" for value in values]
    order = math.floor(math.log10(step) + 1e-9) if step > 0 else math.floor(math.log10(largest))
    if not _PLAIN[0] <= 10.0**order or largest >= _PLAIN[1]:
        digits = max(0, math.floor(math.log10(largest)) - order)
        return [_with_exponent(value, digits) for value in values]
    unit, letter = next(((u, name) for u, name in _UNITS if largest >= u), (1.0, ""))
    unit = min(unit, _THOUSAND) if letter == "k" else unit
    digits = max(0, round(math.log10(unit)) - order)
    return [f"{value / unit:.{digits}f}{letter}" if value else "0" for value in values]


def _with_exponent(value: float, digits: int) -> str:
    if not value:
        return "0"
    mantissa, exponent = f"{value:.{digits}e}".split("e")
    return f"{mantissa}e{int(exponent)}"
