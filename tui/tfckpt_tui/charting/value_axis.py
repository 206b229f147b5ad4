"""The y axis: its ends, and labels that are evenly spaced in values and in lines."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import msgspec

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

_LEAST_WITH_OUTLIERS = 20
_OUTLIER_PARTS = 20
"""One in so many of the values may be cut off at each end."""

_AIR = 0.2
"""Room beyond the values that are not cut off, as a part of half their range."""

_UNITS = ((1e9, "G"), (1e6, "M"), (1e4, "k"))
_THOUSAND = 1e3
_PLAIN = (1e-4, 1e12)
"""Labels beyond these have an exponent."""


class ValueAxis(msgspec.Struct, frozen=True):
    """The y axis of a chart.

    Attributes:
        low: The value of its lowest dot.
        high: The value of its highest dot.
        labels: Its labels by line, counted from the top.
    """

    low: float
    high: float
    labels: Mapping[int, str]


class _Grid(msgspec.Struct, frozen=True):
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


def fit_log_axis(low: float, high: float, rows: int) -> ValueAxis:
    """Returns a logarithmic axis of `rows` lines; its ends are logarithms to the base 10.

    Args:
        low: The logarithm of the lowest value.
        high: The logarithm of the highest value; more than `low`.
        rows: At least one.
    """
    size = DOTS * rows - 1
    decades = high - low
    # Few decades leave room for 2 and 5, many for every second or third decade alone.
    digits = (1, 2, 5) if decades < 3 else (1,)
    every = max(1, math.ceil(decades * _LEAST_GAP / rows))
    labels: dict[int, str] = {}
    for exponent in range(math.floor(low), math.ceil(high) + 1):
        for digit in digits:
            place = exponent + math.log10(digit)
            if exponent % every or not low <= place <= high:
                continue
            row = rows - 1 - round((place - low) / (high - low) * size) // DOTS
            if digit == 1 or not {row - 1, row, row + 1} & labels.keys():
                labels[row] = f"{float(f'{digit}e{exponent}'):g}"
    if len(labels) < 2:
        labels = {rows - 1: f"{10.0**low:.3g}", 0: f"{10.0 ** min(high, 308):.3g}"}
    return ValueAxis(low, high, labels)


def value_range(
    values: Sequence[float], *, from_zero: bool = False, clips_outliers: bool = True
) -> tuple[float, float]:
    """Returns the ends of the values to show, by default without a few that flatten the others.

    That is how a first loss, or a first step that is traced, compares with all that follow.
    """
    ends = sorted([*values, 0.0] if from_zero else values)
    if len(values) < _LEAST_WITH_OUTLIERS or not clips_outliers:
        return (ends[0], ends[-1]) if ends else (0.0, 0.0)
    cut = len(ends) // _OUTLIER_PARTS
    low, high = (0.0 if from_zero else ends[cut]), ends[-1 - cut]
    # Halves, because the difference of two values may be too large for a number.
    half = high / 2 - low / 2
    air = half * _AIR
    top = high + air if ends[-1] / 2 - high / 2 > half > 0 else ends[-1]
    bottom = low - air if low / 2 - ends[0] / 2 > half > 0 else ends[0]
    return bottom, top


def apart(low: float, high: float) -> tuple[float, float]:
    """Returns two values that always differ: the given ones, with room around equal ones."""
    if low < high:
        return low, high
    air = abs(low) * 0.1 or 1.0
    return max(low - air, -1.7e308), min(high + air, 1.7e308)


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
