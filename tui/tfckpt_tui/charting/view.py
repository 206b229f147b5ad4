"""How charts are looked at, and the curves that they draw then."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise

import msgspec
from msgspec.structs import replace

from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.rundir.records.event import EventEntry, EventKind, SeriesPoint
from tfckpt_tui.charting.axis import EVERYWHERE, Window
from tfckpt_tui.charting.curves import Across, Curve, XOf, curves_of, x_axis
from tfckpt_tui.charting.measurements import Measurement
from tfckpt_tui.charting.series import AT, STEP, Sample, Samples, Segment


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


RAW = "raw"
"""The label of the values under a smoothed curve."""

REFERENCE_STYLE = "muted"

MARKED = (EventKind.SAVE, EventKind.SET, EventKind.GUARD, EventKind.RESTART, EventKind.RESTORE)
"""Kinds of events that charts mark; later ones are drawn over earlier ones."""


class View(msgspec.Struct, frozen=True):
    """How charts are looked at.

    Attributes:
        across: The x axis.
        epoch_steps: Steps of an epoch of the run; None if it does not tell.
        window: The visible part of it; None is all of it, also when it grows.
        smoothing: The weight of the moving average; 0 does not smooth.
        logarithmic: Whether the y axis is logarithmic.
        clips_outliers: Whether the y axis leaves out a few values far from the others.
        hidden: Branches that are not drawn.
    """

    across: Across = Across.STEPS
    epoch_steps: int | None = None
    window: Window | None = None
    smoothing: float = 0.0
    logarithmic: bool = False
    clips_outliers: bool = True
    hidden: frozenset[int] = frozenset()

    def lasting(self) -> View:
        """Returns the view without what belongs to one moment of the run."""
        return replace(self, window=None, hidden=frozenset(), epoch_steps=None)

    @property
    def x_of(self) -> XOf:
        """What places the points of the run on the x axis."""
        return x_axis(self.across, self.epoch_steps)

    def x_of_event(self, entry: EventEntry | SeriesPoint) -> float | None:
        """Returns the position of an event or a point; None if it has none."""
        if self.across is Across.TIME:
            return entry.at
        if entry.step is None or self.across is Across.STEPS:
            return entry.step
        return entry.step / self.epoch_steps if self.epoch_steps else None

    def shows(self, x: float) -> bool:
        """Whether a position is in the visible part; NaN, which is none, is not."""
        return (self.window or EVERYWHERE).contains(x)

    def visible(self, segments: Sequence[Segment]) -> list[tuple[int, Sample]]:
        """Returns the samples in the visible part, each after its branch.

        These are all recorded extremes of the part from the first to the last of them: an interval
        that is cut by an edge is left out, unless there is no other. So is what has no place there.
        """
        shown = [one for one in segments if one.branch not in self.hidden]
        whole: list[tuple[int, Sample]] = []
        every: list[tuple[int, Sample]] = []
        for segment in shown:
            placed = zip(self.x_of(segment), segment.samples, strict=True)
            for size in segment.sizes:
                # A sample at NaN has no place on the axis.
                interval = [(x, sample) for x, sample in islice(placed, size) if x == x]
                found = [(segment.branch, sample) for x, sample in interval if self.shows(x)]
                every += found
                if len(found) == len(interval):
                    whole += found
        return whole or every


class RunSeries(msgspec.Struct, frozen=True):
    """The values of a run, and how much of each branch led to its present model.

    Attributes:
        samples: The values.
        kept: By branch, the last step that its present model was trained on.
        name: What tells it from other runs.
        epoch_steps: Steps of an epoch of the run; None if it does not tell.
    """

    samples: Samples = Samples()
    kept: Mapping[int, float] = {}
    name: str = ""
    epoch_steps: int | None = None

    def present(self) -> RunSeries:
        """Returns only the values that led to the present model."""
        return replace(self, samples=self.samples.until(self.kept))


def curves_in(
    view: View,
    series: RunSeries,
    measurements: Sequence[Measurement],
    style_of: Callable[[int, bool], str],
    reference: RunSeries | None = None,
) -> list[Curve]:
    """Returns the curves of a chart, in the order in which they are drawn.

    Args:
        view: How the chart is looked at.
        series: The run.
        measurements: What the chart draws; several measurements have a colour each.
        style_of: Returns the style of a branch, or of one of several measurements, by its number
            and by whether training left this part of it.
        reference: Another run, or a branch, that is drawn under the others.
    """
    under: list[Curve] = []
    curves: list[Curve] = []
    ahead = 0.0
    if reference is not None and view.across is Across.TIME:
        began, theirs_began = series.samples.began, reference.samples.began
        if began is not None and theirs_began is not None:
            # Another run begins where this one does.
            ahead = began - theirs_began
    for number, one in enumerate(measurements):
        name = one.name if len(measurements) > 1 else ""

        def style(branch: int, past: bool, number: int | None = number if name else None) -> str:
            return style_of(branch if number is None else number, past)

        if reference is not None:
            label = _joined(name, reference.name)
            theirs = curves_of(
                reference.samples.segments(one.key),
                reference.kept,
                _reference_style,
                x_axis(view.across, reference.epoch_steps),
                smoothing=view.smoothing,
            )
            under += [_shifted(curve, label, ahead) for curve in theirs]
        own = [one for one in series.samples.segments(one.key) if one.branch not in view.hidden]
        curves += curves_of(own, series.kept, style, view.x_of, name, view.smoothing)
    return under + curves


def _shifted(curve: Curve, label: str, ahead: float) -> Curve:
    points, averages = (
        tuple((x + ahead, y) for x, y in places) for places in (curve.points, curve.smoothed)
    )
    return replace(curve, label=label, points=points, smoothed=averages)


def _reference_style(branch: int, past: bool) -> str:
    return REFERENCE_STYLE


def _joined(name: str, label: str) -> str:
    return f"{name}, {label}" if name else label


def smoothed_curves(curves: Sequence[Curve]) -> list[Curve]:
    """Returns what is drawn of curves: of smoothed ones the averages, with the values under them.

    Args:
        curves: Curves, in the order in which they are drawn.
    """
    drawn = [
        replace(one, points=one.smoothed, smoothed=()) if one.smoothed else one for one in curves
    ]
    raw = [
        replace(curve, label=_joined(curve.label, RAW), style=curve.dim, smoothed=())
        for curve in curves
        if curve.dim and curve.smoothed
    ]
    reference = [curve for curve in drawn if curve.style == REFERENCE_STYLE]
    own = [curve for curve in drawn if curve.style != REFERENCE_STYLE]
    return [*reference, *raw, *own]


class ValueAt(msgspec.Struct, frozen=True):
    """The value of a curve at a position.

    Attributes:
        label: That of the curve; empty for the present model.
        style: That of the curve.
        value: None if it is not finite.
        is_earlier: Whether the curve ends before the position.
    """

    label: str
    style: str
    value: float | None
    is_earlier: bool = False


def values_at(curves: Sequence[Curve], x: float) -> list[ValueAt]:
    """Returns the nearest value at or before a position, one for each label.

    Those of the reference come last. It and curves of the past have none after their end.
    """
    found: dict[str, ValueAt] = {}
    for curve in curves:
        begun = curve.points and curve.points[0][0] <= x
        may_go_on = not curve.is_past and curve.style != REFERENCE_STYLE
        has_ended = begun and x > curve.points[-1][0]
        if begun and (may_go_on or not has_ended):
            found[curve.label] = ValueAt(curve.label, curve.style, curve.at(x), bool(has_ended))
    return sorted(
        found.values(), key=lambda value: (value.style == REFERENCE_STYLE, value.label != "")
    )


def saves_along(
    checkpoints: Iterable[Checkpoint], segments: Iterable[Segment]
) -> Iterator[EventEntry]:
    """Yields an event for each checkpoint of a program that records none, placed on a curve.

    The number in a name may count steps, epochs or saves, and a curve steps or epochs. So a
    checkpoint is where the curve was when it was written, and at its number only if that is there
    too. It is left out if it was written before or after the curve, as copies are.

    Args:
        checkpoints: The checkpoints.
        segments: The values of the curve.
    """
    places = sorted(
        place
        for segment in segments
        for place in zip(segment.column(AT), segment.column(STEP), strict=True)
    )
    if not places:
        return
    # The first and the last value may be as far from a save as any two from each other.
    wait = max((later[0] - earlier[0] for earlier, later in pairwise(places)), default=0.0)
    for one in checkpoints:
        if not places[0][0] - wait <= one.saved_at <= places[-1][0] + wait:
            continue
        after = bisect_right(places, (one.saved_at, math.inf))
        low = places[after - 1][1] if after else -math.inf
        high = places[after][1] if after < len(places) else math.inf
        is_there = one.step is not None and low <= one.step <= high
        step = one.step if is_there else int(low if after else high)
        yield EventEntry(
            at=one.saved_at,
            kind=EventKind.SAVE,
            message=f"{one.name} was written.",
            step=step,
            checkpoint=one.name,
        )


def marked_events(entries: Sequence[EventEntry], view: View) -> list[tuple[float, EventEntry]]:
    """Returns the visible events that charts mark, with their positions, from left to right."""
    placed: list[tuple[float, EventEntry]] = []
    for entry in entries:
        x = view.x_of_event(entry)
        if entry.kind in MARKED and x is not None:
            placed.append((float(x), entry))
    return sorted((one for one in placed if view.shows(one[0])), key=lambda one: one[0])
