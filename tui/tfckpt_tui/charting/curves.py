"""Curves: the values of a measurement on each branch, along steps, time or epochs."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import islice, pairwise
from operator import le

import msgspec
from msgspec.structs import replace

from tfckpt_trainer.catalog.scan.lineage import Lineage
from tfckpt_trainer.rundir.thinning import EPOCH, extremes
from tfckpt_tui.charting.axis import Window
from tfckpt_tui.charting.series import (
    AT,
    AVERAGE,
    EPOCHS,
    STEP,
    VALUE,
    WEIGHTS,
    Samples,
    Segment,
    steps_before_restarts,
)
from tfckpt_tui.formats.units import finite


class Across(StrEnum):
    """What the x axis of a chart counts."""

    STEPS = "steps"
    TIME = "time"
    EPOCHS = "epochs"


def possible_axes(samples: Samples, epoch_steps: int | None) -> list[Across]:
    """Returns the x axes of a run.

    Args:
        samples: Its values.
        epoch_steps: Steps of an epoch; None if the run does not tell. Then epochs are an axis only
            if the script reports a metric named `epoch`.
    """
    reported = samples.channels.get(EPOCH)
    has_epochs = epoch_steps or (reported and reported.not_finite < reported.recorded)
    return [Across.STEPS, Across.TIME, *([Across.EPOCHS] if has_epochs else [])]


XOf = Callable[[Segment], Sequence[float]]
"""Returns the positions of samples on the x axis; NaN for those that have none."""


def x_axis(across: Across, epoch_steps: int | None = None) -> XOf:
    """Returns what places the samples of a run.

    Args:
        across: What the axis counts.
        epoch_steps: Steps of an epoch of this run; None if it does not tell.
    """
    if across is Across.EPOCHS and epoch_steps:
        return lambda segment: [step / epoch_steps for step in segment.column(STEP)]
    field = {Across.TIME: AT, Across.STEPS: STEP, Across.EPOCHS: EPOCHS}[across]
    return lambda segment: segment.column(field)


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
        smoothed: Its points with moving averages in place of values; empty if it is not smoothed.
    """

    points: tuple[Place, ...]
    style: str
    label: str = ""
    branch: int = 0
    is_past: bool = False
    dim: str = ""
    smoothed: tuple[Place, ...] = ()

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
    segments: Sequence[Segment],
    kept: Mapping[int, float],
    style_of: Callable[[int, bool], str],
    x_of: XOf | None = None,
    name: str = "",
    smoothing: float = 0.0,
) -> list[Curve]:
    """Returns the curves of a measurement; those of the present model come last.

    What a restart trained again is of the past.

    Args:
        segments: Its values.
        kept: The result of `kept_until`.
        style_of: Returns the style of a branch, by whether training left this part of it.
        x_of: The x axis; by default steps.
        name: The label of the curves of the present model; others also name their branch.
        smoothing: The weight of the moving average; 0 does not smooth.
    """
    past: list[Curve] = []
    present: list[Curve] = []
    # Of each branch, what its next segment may go on from.
    begun: dict[int, _Drawn] = {}

    def present_curve(branch: int, drawn: _Drawn) -> Curve:
        style, dim = style_of(branch, False), style_of(branch, True)
        dim = "" if dim == style else dim
        return Curve(drawn[0], style, name, branch, dim=dim, smoothed=drawn[1])

    for segment, last in zip(segments, steps_before_restarts(segments), strict=True):
        branch, left_at = segment.branch, kept.get(segment.branch, -math.inf)
        rising = _rising(segment, x_of or x_axis(Across.STEPS), smoothing)
        for part, (steps, places, averages) in enumerate(rising):
            split = bisect_right(steps, min(last, left_at))
            if split:
                before, averages_before = begun.pop(branch, ((), ()))
                # Without a place between them, or after a clock was set back, it is another curve.
                if before and (part or before[-1][0] > places[0][0]):
                    present.append(present_curve(branch, (before, averages_before)))
                    before, averages_before = (), ()
                begun[branch] = before + places[:split], averages_before + averages[:split]
            if split < len(steps):
                # The past begins where the present model left it.
                begin = max(0, split - 1)
                past_name = name
                if left_at < last:
                    past_name = f"{name}, branch {branch}" if name else f"branch {branch}"
                style = style_of(branch, True)
                past.append(
                    Curve(
                        places[begin:],
                        style,
                        past_name,
                        branch,
                        is_past=True,
                        smoothed=averages[begin:],
                    )
                )
    return [*past, *present, *(present_curve(*one) for one in begun.items())]


_Drawn = tuple[tuple[Place, ...], tuple[Place, ...]]
"""The places of a curve, and those of its moving averages, if it is smoothed."""

_Rising = tuple[Sequence[float], tuple[Place, ...], tuple[Place, ...]]


def _rising(segment: Segment, x_of: XOf, smoothing: float) -> Iterator[_Rising]:
    """Splits a segment where the position goes back.

    Yields:
        Of each part the steps, the places, and those of the moving averages, if it is smoothed.
    """
    steps, xs, values = segment.column(STEP), x_of(segment), segment.column(VALUE)
    ys: Sequence[float | None] = values
    averages: Sequence[float | None] = ()
    if smoothing:
        averages = segment.column(AVERAGE + WEIGHTS.index(smoothing) - 1)
    if not math.isfinite(sum(values)):
        averages = [
            None if finite(y) is None else average
            for y, average in zip(values, averages, strict=False)
        ]
        ys = [finite(y) for y in values]
    places = tuple(zip(xs, ys, strict=True))
    smoothed = tuple(zip(xs, averages, strict=False))
    begin = 0
    for end in (*_breaks(xs), len(xs)):
        if begin < end and math.isfinite(xs[begin]):
            yield steps[begin:end], places[begin:end], smoothed[begin:end]
        begin = end


def _breaks(xs: Sequence[float]) -> list[int]:
    """Returns where positions go back, or one begins or ends that is none."""
    if all(map(le, xs, islice(xs, 1, None))):
        return []
    return [n for n, (x, after) in enumerate(pairwise(xs), 1) if not x <= after]


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
        ys = [math.nan if y is None else y for _, y in points[start:end]]
        kept.extend(points[start + place] for place in extremes(ys))
        start = end
    return kept


def _x(point: Place) -> float:
    return point[0]


def _crossing(before: Place, after: Place, x: float) -> tuple[Place, ...]:
    """Returns the point at `x` on the line between two points; none if there is no line."""
    (x0, y0), (x1, y1) = before, after
    if y0 is None or y1 is None or not x0 < x < x1:
        return ()
    share = (x - x0) / (x1 - x0)
    return ((x, y0 * (1 - share) + y1 * share),)
