"""Which part of an axis is looked at: zoomed and moved, and never out of what there is."""

from __future__ import annotations

import math
from dataclasses import dataclass

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


def zoomed(window: Window | None, whole: Window, factor: float) -> Window | None:
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


def moved(window: Window | None, whole: Window, share: float) -> Window | None:
    """Returns the part so many times its own length further right; the whole cannot move."""
    return window and _inside(window.low + share * window.span, window.span, whole)


def _inside(low: float, span: float, whole: Window) -> Window:
    low = max(whole.low, min(low, whole.high - span))
    return Window(low, low + span)
