"""Thins points of the metric series to the ends and extremes of step intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from tfckpt_trainer.rundir.records.event import SeriesPoint

EPOCH = "epoch"
"""The metric that places points on the axis of epochs, if the run does not tell its epochs."""

_FIELDS = ("examples_per_second", "step_seconds")

_MOST_POINTS = 4096
"""Points of an interval that are held at once."""

_Recorded = dict[str, tuple[list[int], list[float]]]
"""By measurement: the places of its points, and its values there."""


def thin_points(points: Iterable[SeriesPoint], width: int) -> Iterator[SeriesPoint]:
    """Yields the values that are ends or extremes of an interval.

    An interval has the points of one branch that follow each other, up to a multiple of `width`
    steps. A restart that goes back begins another one. Thinning the result again keeps what
    thinning the points themselves would keep.

    Args:
        points: In the order in which they were recorded.
        width: Steps of an interval.
    """
    held: list[SeriesPoint] = []
    most = _MOST_POINTS
    for point in points:
        if held and not _is_of_interval(point, held[-1], width):
            yield from _ends_and_extremes(held)
            held, most = [], _MOST_POINTS
        held.append(point)
        if len(held) >= most:
            held = _ends_and_extremes(held)
            most = max(_MOST_POINTS, 2 * len(held))
    yield from _ends_and_extremes(held)


def _is_of_interval(point: SeriesPoint, last: SeriesPoint, width: int) -> bool:
    return (
        point.branch == last.branch
        and point.step >= last.step
        and point.step // width == last.step // width
    )


def _ends_and_extremes(points: Sequence[SeriesPoint]) -> list[SeriesPoint]:
    """Returns the points with the values alone that are ends or extremes of a measurement."""
    metrics: _Recorded = {}
    fields: _Recorded = {}
    for place, point in enumerate(points):
        for name, value in point.metrics.items():
            _record(metrics, name, place, math.nan if value is None else value)
        for name in _FIELDS:
            value = getattr(point, name)
            if value is not None:
                _record(fields, name, place, value)
    kept_metrics, kept_fields = _names_by_place(metrics), _names_by_place(fields)
    return [
        _only(points[place], kept_metrics.get(place, ()), kept_fields.get(place, ()))
        for place in sorted({*kept_metrics, *kept_fields})
    ]


def _record(recorded: _Recorded, name: str, place: int, value: float) -> None:
    found = recorded.get(name)
    if found is None:
        found = recorded[name] = [], []
    found[0].append(place)
    found[1].append(value)


def _names_by_place(recorded: _Recorded) -> Mapping[int, set[str]]:
    found: dict[int, set[str]] = {}
    for name, (places, values) in recorded.items():
        for one in extremes(values):
            found.setdefault(places[one], set()).add(name)
    return found


def _only(point: SeriesPoint, metrics: Iterable[str], fields: Iterable[str]) -> SeriesPoint:
    """Returns a point with some of its values, and its epoch, which is its place on an axis."""
    wanted = {EPOCH, *metrics}
    kept = {name: value for name, value in point.metrics.items() if name in wanted}
    dropped = {name: None for name in _FIELDS if name not in fields}
    return replace(point, metrics=kept, **dropped)


def extremes(values: Sequence[float]) -> Sequence[int]:
    """Returns which of some values are the first, lowest, highest, last and the first broken one.

    Broken values are NaN or infinite. If there are any, also the first and the last other one:
    lines end there.

    Args:
        values: At least one value.
    """
    last = len(values) - 1
    if last < 2:
        return range(last + 1)
    if math.isfinite(sum(values)):
        return sorted({0, values.index(min(values)), values.index(max(values)), last})
    known = [place for place, value in enumerate(values) if math.isfinite(value)]
    wanted = {0, last, *known[:1], *known[-1:]}
    if known:
        wanted |= {min(known, key=values.__getitem__), max(known, key=values.__getitem__)}
    if len(known) <= last:
        wanted.add(next(place for place, value in enumerate(values) if not math.isfinite(value)))
    return sorted(wanted)
