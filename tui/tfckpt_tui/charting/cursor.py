"""The cursor of charts: it stands on positions that have a point."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from tfckpt_tui.charting.curves import XOf
from tfckpt_tui.charting.series import Segment


def places_of(segments: Iterable[Segment], x_of: XOf) -> list[float]:
    """Returns the positions of samples on an axis, from left to right, each once."""
    return sorted({x for segment in segments for x in x_of(segment) if x == x})


def snapped(places: Sequence[float], x: float) -> float | None:
    """Returns the nearest position at or before `x`, or the first one; None if there is none."""
    return places[max(0, bisect_right(places, x) - 1)] if places else None


def moved(places: Sequence[float], x: float, distance: float) -> float | None:
    """Returns the nearest position that is at least `distance` from `x`, or the last one."""
    if not places:
        return None
    if distance > 0:
        place = bisect_left(places, x + distance)
        return places[min(place, len(places) - 1)]
    return places[max(0, bisect_right(places, x + distance) - 1)]
