"""Where an axis has its numbers, and what they say: steps, or times of day."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

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


_CLOSEST = 1e-3
"""The smallest part of the whole that can be looked at."""


@dataclass(frozen=True)
class Window:
    """A part of an axis, `low` < `high`."""

    low: float
    high: float

    @property
    def span(self) -> float:
        """How long it is."""
        return self.high - self.low

    def shows(self, place: float) -> bool:
        """Whether a place is in it."""
        return self.low <= place <= self.high


def zoom(window: Window | None, whole: Window, factor: float) -> Window | None:
    """Returns the part that is `factor` times as long, about the same middle.

    At the right end of the whole it stays there: the newest is what most people look for. None
    stands for the whole, which grows with the run.
    """
    now = window or whole
    span = max(now.span * factor, whole.span * _CLOSEST)
    if not 0 < span < whole.span or not math.isfinite(span):
        return None if span >= whole.span else window
    if now.high >= whole.high:
        return Window(whole.high - span, whole.high)
    middle = (now.low + now.high) / 2
    return _inside(middle - span / 2, span, whole)


def pan(window: Window | None, whole: Window, share: float) -> Window | None:
    """Returns the part so many times its own length further right; the whole cannot move."""
    return window and _inside(window.low + share * window.span, window.span, whole)


def _inside(low: float, span: float, whole: Window) -> Window:
    low = max(whole.low, min(low, whole.high - span))
    return Window(low, low + span)
