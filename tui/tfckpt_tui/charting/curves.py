"""Curves: the values of a measurement on each branch, along steps, time or epochs."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from tfckpt_trainer.catalog.scan.lineage import Lineage
from tfckpt_trainer.rundir.records.event import SeriesPoint
from tfckpt_tui.charting.axis import Window
from tfckpt_tui.charting.measurements import ValueOf, names_in

EPOCH = "epoch"
"""The metric that places points on the axis of epochs, if the run does not tell its epochs."""


class Across(StrEnum):
    """What the x axis of a chart counts."""

    STEPS = "steps"
    TIME = "time"
    EPOCHS = "epochs"


def possible_axes(points: Sequence[SeriesPoint], epoch_steps: int | None) -> list[Across]:
    """Returns the x axes of a run.

    Args:
        points: Its points.
        epoch_steps: Steps of an epoch; None if the run does not tell. Then epochs are an axis only
            if the script reports a metric named `epoch`.
    """
    has_epochs = epoch_steps or (
        EPOCH in names_in(points) and any(point.metrics.get(EPOCH) is not None for point in points)
    )
    return [Across.STEPS, Across.TIME, *([Across.EPOCHS] if has_epochs else [])]


XOf = Callable[[SeriesPoint], float | None]
"""Returns the position of a point on the x axis; None if it has none."""


def x_axis(across: Across, epoch_steps: int | None = None) -> XOf:
    """Returns what places the points of a run.

    Args:
        across: What the axis counts.
        epoch_steps: Steps of an epoch of this run; None if it does not tell.
    """
    if across is Across.TIME:
        return _time_of
    if across is Across.STEPS:
        return step_of
    if epoch_steps:
        return lambda point: point.step / epoch_steps
    return _reported_epoch


def step_of(point: SeriesPoint) -> float:
    """Returns the step of a point."""
    return float(point.step)


def _time_of(point: SeriesPoint) -> float:
    return point.at


def _reported_epoch(point: SeriesPoint) -> float | None:
    return finite(point.metrics.get(EPOCH))


Place = tuple[float, float | None]
"""The x and the y of a point. A y of None stands for a value that is not finite."""


class Curve(msgspec.Struct, frozen=True):
    """One curve.

    Attributes:
        points: Its points; x never decreases. Values that are not finite are drawn as gaps with a
            mark.
        style: Name of the style of its dots.
        label: What tells it from the other curves of a chart; empty for the main one.
        branch: The branch that it belongs to.
        is_past: Whether training left this part of the branch.
        dim: Name of the style of its values while it is smoothed; empty to leave them out.
    """

    points: tuple[Place, ...]
    style: str
    label: str = ""
    branch: int = 0
    is_past: bool = False
    dim: str = ""

    @property
    def ends(self) -> tuple[float, ...]:
        """The first and the last x; none if it has no points."""
        return (self.points[0][0], self.points[-1][0]) if self.points else ()

    def at(self, x: float) -> float | None:
        """Returns the value of the nearest point at or before `x`; None if there is none."""
        place = bisect_right(self.points, x, key=_x)
        return self.points[place - 1][1] if place else None

    def within(self, window: Window) -> Curve:
        """Returns the part in a window; lines that cross its edges end there."""
        first = bisect_left(self.points, window.low, key=_x)
        last = bisect_right(self.points, window.high, key=_x)
        inside = self.points[first:last]
        if first > 0 and first < len(self.points):
            inside = (*_crossing(self.points[first - 1], self.points[first], window.low), *inside)
        if 0 < last < len(self.points):
            inside = (*inside, *_crossing(self.points[last - 1], self.points[last], window.high))
        return replace(self, points=inside)


def kept_until(lineage: Lineage, branch: int) -> Mapping[int, float]:
    """Returns, by branch, the last step that the present model was trained on.

    Args:
        lineage: What it was trained on.
        branch: The branch in training.
    """
    return {**lineage.last_steps, branch: math.inf}


def curves_of(
    points: Sequence[SeriesPoint],
    value_of: ValueOf,
    kept: Mapping[int, float],
    style_of: Callable[[int, bool], str],
    x_of: XOf = step_of,
    name: str = "",
) -> list[Curve]:
    """Returns the curves of a measurement; those of the present model come last.

    Args:
        points: The points of a run, oldest first.
        value_of: Returns the value of a point.
        kept: The result of `kept_until`.
        style_of: Returns the style of a branch, by whether training left this part of it.
        x_of: The x axis.
        name: The label of the curves of the present model; others also name their branch.
    """
    past: list[Curve] = []
    present: list[Curve] = []
    for branch, steps, places in _segments(points, value_of, x_of):
        split = bisect_right(steps, kept.get(branch, -math.inf))
        if split:
            style, dim = style_of(branch, False), style_of(branch, True)
            kept_points = tuple(places[:split])
            present.append(Curve(kept_points, style, name, branch, dim="" if dim == style else dim))
        if split < len(steps):
            # The past begins where the present model left it.
            rest = tuple(places[max(0, split - 1) :])
            label = f"{name}, branch {branch}" if name else f"branch {branch}"
            past.append(Curve(rest, style_of(branch, True), label, branch, is_past=True))
    return [*past, *present]


def _segments(
    points: Sequence[SeriesPoint], value_of: ValueOf, x_of: XOf
) -> list[tuple[int, list[int], list[Place]]]:
    """Splits points where the branch changes or the position goes back.

    Returns:
        The branch, the steps and the places of each part.
    """
    segments: list[tuple[int, list[int], list[Place]]] = []
    steps: list[int] = []
    places: list[Place] = []
    branch, last_step, last_x = -1, 0, 0.0
    by_step = x_of is step_of
    # This runs for thousands of points of each chart: little is called for them.
    for point in points:
        value, step = value_of(point), point.step
        x = float(step) if by_step else x_of(point)
        if value is None or x is None:
            continue
        if point.branch != branch or step < last_step or x < last_x or not segments:
            steps, places = [], []
            segments.append((point.branch, steps, places))
        branch, last_step, last_x = point.branch, step, x
        steps.append(step)
        places.append((x, value if value - value == 0 else None))
    return segments


def thin(points: Sequence[Place], columns: int, column_of: Callable[[float], int]) -> list[Place]:
    """Returns at most the first, lowest, highest and last point of each column.

    Args:
        points: Points; x never decreases.
        columns: The number of columns.
        column_of: Returns the column of an x.
    """
    if len(points) <= 2 * columns:
        return list(points)
    kept: list[Place] = []
    start, size = 0, len(points)
    while start < size:
        column = column_of(points[start][0])
        end = bisect_right(points, column, lo=start, key=lambda point: column_of(point[0]))
        kept.extend(_ends_of(points[start:end]))
        start = end
    return kept


def _ends_of(points: Sequence[Place]) -> Sequence[Place]:
    """Returns the first, lowest, highest, last and the first broken one of points, in order."""
    if len(points) <= 2:
        return points
    ys = [y for _, y in points]
    values = [y for y in ys if y is not None]
    wanted = {0, len(points) - 1}
    if values:
        wanted |= {ys.index(min(values)), ys.index(max(values))}
    if len(values) < len(points):
        known = [place for place, y in enumerate(ys) if y is not None]
        wanted |= {ys.index(None), *known[:1], *known[-1:]}
    return [points[place] for place in sorted(wanted)]


def finite(value: float | None) -> float | None:
    """Returns a value, or None if it is not finite."""
    return value if value is not None and math.isfinite(value) else None


def _x(point: Place) -> float:
    return point[0]


def _crossing(before: Place, after: Place, x: float) -> tuple[Place, ...]:
    """Returns the point at `x` on the line between two points; none if there is no line."""
    (x0, y0), (x1, y1) = before, after
    if y0 is None or y1 is None or not x0 < x < x1:
        return ()
    share = (x - x0) / (x1 - x0)
    return ((x, y0 * (1 - share) + y1 * share),)
