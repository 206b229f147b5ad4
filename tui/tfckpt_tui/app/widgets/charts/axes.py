"""Where an axis has its numbers, and what they say: steps, or times of day."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from tfckpt_tui.formats import units

Labels = Callable[[float, float, int], list[tuple[float, str]]]
"""Gives places and their labels for an axis from `low` to `high` with room for so many."""

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_TIMES = (
    *(1, 2, 5, 10, 15, 30),
    *(unit * _MINUTE for unit in (1, 2, 5, 10, 15, 30)),
    *(unit * _HOUR for unit in (1, 2, 3, 6, 12)),
    *(unit * _DAY for unit in (1, 2, 7, 14, 30, 90, 365)),
)


def nice_step(rough: float) -> float:
    """Returns the round number (1, 2 or 5 times a power of ten) from `rough` upwards."""
    if not 0 < rough < math.inf:
        return rough
    size = 10.0 ** math.floor(math.log10(rough))
    return next((size * nice for nice in (1, 2, 5) if size * nice >= rough), size * 10)


def step_labels(low: float, high: float, most: int) -> list[tuple[float, str]]:
    """Returns round steps between two, at most about `most` of them."""
    apart = max(1.0, nice_step((high - low) / max(1, most)))
    first = math.ceil(low / apart)
    return [
        (number * apart, f"{number * apart:,.0f}")
        for number in range(first, math.floor(high / apart) + 1)
    ]


def clock_labels(low: float, high: float, most: int) -> list[tuple[float, str]]:
    """Returns round times of day, or days, between two moments in seconds since the epoch."""
    rough = (high - low) / max(1, most)
    apart = next((one for one in _TIMES if one >= rough), _TIMES[-1])
    form = "%H:%M:%S" if apart < _MINUTE else "%H:%M" if apart < _DAY else "%m-%d"
    # Round in local time: noon is noon wherever the person sits.
    shift = time.localtime(low).tm_gmtoff
    first = math.ceil((low + shift) / apart)
    last = math.floor((high + shift) / apart)
    places = [number * apart - shift for number in range(first, min(last, first + 2 * most) + 1)]
    return [(float(place), units.moment(place, form)) for place in places]
