"""An axis: its labels (steps or times of day), and zooming and panning along it."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from tfckpt_trainer.words.times import seconds_ahead_of_utc
from tfckpt_tui.formats import units

Labels = Callable[[float, float, int], list[tuple[float, str]]]
"""Returns positions and labels for an axis from `low` to `high`, at most about `most` of them."""

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_TIMES = (
    *(1, 2, 5, 10, 15, 30),
    *(unit * _MINUTE for unit in (1, 2, 5, 10, 15, 30)),
    *(unit * _HOUR for unit in (1, 2, 3, 6, 12)),
    *(unit * _DAY for unit in (1, 2, 7, 14, 30, 90, 365)),
)


def step_labels(low: float, high: float, most: int) -> list[tuple[float, str]]:
    """Returns labels at round steps."""
    apart = max(1.0, units.nice_step((high - low) / max(1, most)))
    first = math.ceil(low / apart)
    return [
        (number * apart, f"{number * apart:,.0f}")
        for number in range(first, math.floor(high / apart) + 1)
    ]


def clock_labels(low: float, high: float, most: int) -> list[tuple[float, str]]:
    """Returns labels at round times or days; `low` and `high` are seconds since the epoch."""
    rough = (high - low) / max(1, most)
    apart = next((seconds for seconds in _TIMES if seconds >= rough), _TIMES[-1])
    form = "%H:%M:%S" if apart < _MINUTE else "%H:%M" if apart < _DAY else "%m-%d"
    # Round in local time.
    shift = seconds_ahead_of_utc(low)
    first = math.ceil((low + shift) / apart)
    last = math.floor((high + shift) / apart)
    places = [number * apart - shift for number in range(first, min(last, first + 2 * most) + 1)]
    return [(float(place), units.local_time(place, form)) for place in places]


_CLOSEST = 1e-3
"""Closest zoom, as a part of the whole axis."""


class Window(msgspec.Struct, frozen=True):
    """A part of an axis; `low` is less than `high`."""

    low: float
    high: float

    @property
    def span(self) -> float:
        """Its length."""
        return self.high - self.low

    def contains(self, place: float) -> bool:
        """Whether a position is in it."""
        return self.low <= place <= self.high


EVERYWHERE = Window(-math.inf, math.inf)


def zoom(window: Window | None, whole: Window, factor: float) -> Window | None:
    """Returns a window `factor` times as long, with the same middle.

    A window at the right end stays there, to keep showing the newest points. None is the whole
    axis, which grows with the run.
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
    """Returns the window moved right by `share` times its length; the whole axis does not move."""
    return window and _inside(window.low + share * window.span, window.span, whole)


def _inside(low: float, span: float, whole: Window) -> Window:
    low = max(whole.low, min(low, whole.high - span))
    return Window(low, low + span)
