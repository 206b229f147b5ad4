"""A bounded series of measurements, downsampled as it grows."""

from __future__ import annotations

from collections.abc import Iterable

from tfckpt_trainer.rundir.records.event import SeriesPoint

MOST_POINTS = 4096
"""Maximum number of points. A chart 200 cells wide has 400 columns of dots."""


class Series:
    """The points of a run. Older points become sparser; the ends of branches stay."""

    def __init__(self, most: int = MOST_POINTS) -> None:
        self._most = most
        self._points: list[SeriesPoint] = []
        self._frozen: tuple[SeriesPoint, ...] = ()

    @property
    def points(self) -> tuple[SeriesPoint, ...]:
        """The points, oldest first."""
        return self._frozen

    def add(self, points: Iterable[SeriesPoint]) -> None:
        """Appends newer points."""
        before = len(self._points)
        self._points.extend(points)
        if len(self._points) == before:
            return
        while len(self._points) > self._most:
            self._points = _thinned(self._points)
        self._frozen = tuple(self._points)


def _thinned(points: list[SeriesPoint]) -> list[SeriesPoint]:
    """Drops every second point, except the newest quarter, ends of branches and first NaNs."""
    settled = len(points) * 3 // 4
    kept = [
        point
        for place, point in enumerate(points[:settled])
        if place % 2 == 0 or _is_turn(points, place)
    ]
    if len(kept) > settled * 0.9:
        kept = points[:settled:2]
    return kept + points[settled:]


def _is_turn(points: list[SeriesPoint], place: int) -> bool:
    """Whether a branch begins or ends here, or a metric first becomes NaN."""
    point, before = points[place], points[place - 1]
    after = points[place + 1] if place + 1 < len(points) else point
    if point.branch != before.branch or point.branch != after.branch or after.step < point.step:
        return True
    broken = {name for name, value in point.metrics.items() if value is None}
    return bool(broken - {name for name, value in before.metrics.items() if value is None})
