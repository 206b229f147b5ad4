"""The measurements that charts can draw: metrics, throughput and step time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec

from tfckpt_trainer.rundir.records.event import SeriesPoint
from tfckpt_tui.formats import units
from tfckpt_tui.formats.metric_names import main_of

ValueOf = Callable[[SeriesPoint], float | None]
"""Returns a value of a point; None if the point has none."""


class Measurement(msgspec.Struct, frozen=True):
    """A quantity that a chart can draw.

    Attributes:
        name: Its name.
        value_of: Returns its value at a point; None if it has none.
        show: Formats a value.
        from_zero: Whether the axis starts at zero.
    """

    name: str
    value_of: ValueOf
    show: Callable[[float | None], str] = units.metric
    from_zero: bool = False


def metric(name: str) -> Measurement:
    """Returns a metric as a measurement."""
    return Measurement(name, metric_of(name))


THROUGHPUT = Measurement(
    "throughput",
    lambda point: point.examples_per_second,
    lambda value: units.rate(value, " examples"),
    from_zero=True,
)
STEP_TIME = Measurement(
    "step time", lambda point: point.step_seconds, units.step_time, from_zero=True
)


def measurements(points: Sequence[SeriesPoint]) -> list[Measurement]:
    """Returns all measurements: the main metric, others by name, throughput, step time."""
    names = names_in(points)
    first = main_of(names)
    return [
        *(metric(name) for name in (first, *sorted(names - {first}))),
        THROUGHPUT,
        STEP_TIME,
    ]


def main_metric(points: Sequence[SeriesPoint]) -> str:
    """Returns the metric to draw first: `loss`, or else another loss, or else any other metric."""
    return main_of(names_in(points))


class _NamesOfMetrics:
    """The names of all metrics of some points.

    Thousands of points with a hundred names each take many milliseconds. Of points that were added
    to those that it was asked for last, it looks at the new ones alone.
    """

    def __init__(self) -> None:
        self._points: tuple[SeriesPoint, ...] = ()
        self._names: frozenset[str] = frozenset()

    def __call__(self, points: Sequence[SeriesPoint]) -> frozenset[str]:
        points = tuple(points)
        known = len(self._points)
        if points[:known] != self._points:
            known, self._names = 0, frozenset()
        self._names = self._names.union(*(point.metrics for point in points[known:]))
        self._points = points
        return self._names


names_in = _NamesOfMetrics()


def metric_of(name: str) -> ValueOf:
    """Returns a function for the value of a metric at a point: None if it was not reported."""

    def value_of(point: SeriesPoint) -> float | None:
        value = point.metrics.get(name)
        return math.nan if value is None and name in point.metrics else value

    return value_of
