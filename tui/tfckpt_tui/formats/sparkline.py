"""Recent values as one line of bars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

BARS = "▁▂▃▄▅▆▇█"
_NOT_FINITE = "✗"


def sparkline(values: Sequence[float | None], width: int) -> str:
    """Returns values as bars, oldest first, in at most `width` cells.

    A bar is the mean of the values that share its cell. One that is not finite, or None, is a
    cross.

    Args:
        values: The values.
        width: The number of cells.
    """
    count = min(width, len(values))
    ends = [place * len(values) // count for place in range(count + 1)] if count else []
    means = [_mean(values[begin:end]) for begin, end in pairwise(ends)]
    finite = [mean for mean in means if mean is not None]
    if not finite:
        return _NOT_FINITE * len(means)
    low, high = min(finite), max(finite)
    return "".join(_NOT_FINITE if mean is None else _bar(mean, low, high) for mean in means)


def _mean(values: Sequence[float | None]) -> float | None:
    """Returns the mean; None if a value is not finite."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    # Divided first: a sum of large values is infinite.
    return sum(value / len(known) for value in known) if len(known) == len(values) else None


def _bar(value: float, low: float, high: float) -> str:
    # Halved: the difference of large values is infinite.
    span = high / 2 - low / 2
    share = (value / 2 - low / 2) / span if span > 0 else 0.0
    return BARS[min(len(BARS) - 1, round(share * (len(BARS) - 1)))]
