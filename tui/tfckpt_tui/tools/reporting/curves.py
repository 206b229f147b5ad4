"""The curves of a report: the series that charts show, in the columns of a figure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from tfckpt_trainer.rundir.records.event import EventEntry, EventKind, SeriesPoint
from tfckpt_tui.charting.curves import Place, thin
from tfckpt_tui.charting.measurements import Measurement, measurements
from tfckpt_tui.charting.quantities import Quantity
from tfckpt_tui.charting.series import STEP, VALUE, Channel, Segment, Series
from tfckpt_tui.charting.statistics import statistics_of
from tfckpt_tui.tools.reporting.json_report import BranchCurve, CurveFacts, CurvesFacts, MarkFacts

COLUMNS = 600
"""Intervals of steps that a curve has on one branch at most: a figure has as many columns."""

MOST_CELLS = 24_000
"""Intervals of all curves together: four points each are about 1 MB of a figure."""

MOST_CURVES = 2000
"""Curves of branches that are shown at most."""

MOST_METRICS = 100
_MOST_MARKS = 200

MARKED = frozenset({EventKind.RESTORE, EventKind.RESTART, EventKind.SET, EventKind.GUARD})
"""Kinds of events that curves show."""


class CurveReader:
    """Takes the points of a series, and places the events between them."""

    def __init__(self, events: Sequence[EventEntry] = ()) -> None:
        """Makes a reader.

        Args:
            events: The event log, oldest first. Some become marks.
        """
        self._series = Series()
        self._step: int | None = None
        marked = [entry for entry in events if entry.kind in MARKED][-_MOST_MARKS:]
        # Supervisors know no step.
        self._waiting = [entry for entry in marked if entry.step is None][::-1]
        self._marks = [_mark(entry, entry.step) for entry in marked if entry.step is not None]

    def add(self, points: Iterable[SeriesPoint]) -> None:
        """Takes the next points."""
        points = list(points)
        for point in points:
            while self._waiting and self._waiting[-1].at <= point.at:
                self._place_mark(point.step if self._step is None else self._step)
            self._step = point.step
        self._series.add(points)

    def facts(self, kept_until: Mapping[int, int]) -> CurvesFacts:
        """Returns the curves.

        Args:
            kept_until: By branch, the last step that the present model was trained on; empty if
                that is not known, so that all are shown as such.
        """
        while self._waiting and self._step is not None:
            self._place_mark(self._step)
        samples = self._series.samples
        by_branch = {key: _by_branch(channel) for key, channel in samples.channels.items()}
        recorded = [one for one in measurements(samples.metrics) if one.key in by_branch]
        shown = [
            one
            for place, one in enumerate(recorded)
            if place < MOST_METRICS or isinstance(one.key, Quantity)
        ]
        drawn = min(MOST_CURVES, sum(len(by_branch[one.key]) for one in shown))
        columns = max(1, min(COLUMNS, MOST_CELLS // max(1, drawn)))
        curves: list[CurveFacts] = []
        room = drawn
        for one in shown:
            own = [*by_branch[one.key].items()][:room]
            room -= len(own)
            branches = tuple(_branch(*branch, columns, kept_until) for branch in own)
            curves.append(_facts(one, samples.channels[one.key], branches))
        return CurvesFacts(
            points=samples.points,
            curves=tuple(curves),
            left_out=samples.left_out + sum(map(len, by_branch.values())) - drawn,
            marks=tuple(sorted(self._marks, key=lambda mark: mark.step)),
        )

    def _place_mark(self, step: int) -> None:
        self._marks.append(_mark(self._waiting.pop(), step))


def _mark(entry: EventEntry, step: int) -> MarkFacts:
    return MarkFacts(step=step, kind=entry.kind, message=entry.message)


def _by_branch(channel: Channel) -> Mapping[int, list[Segment]]:
    """Returns the segments of each branch, in the order of the branches."""
    found: dict[int, list[Segment]] = {}
    for segment in channel.segments:
        found.setdefault(segment.branch, []).append(segment)
    return dict(sorted(found.items()))


def _facts(shown: Measurement, channel: Channel, branches: tuple[BranchCurve, ...]) -> CurveFacts:
    found = statistics_of([one for segment in channel.segments for one in segment.samples])
    assert found is not None
    lowest, highest, last = found.values
    lowest_step, highest_step, last_step = found.steps
    return CurveFacts(
        name=shown.name,
        quantity=shown.key.name if isinstance(shown.key, Quantity) else "metric",
        points=channel.recorded,
        lowest=lowest,
        lowest_step=lowest_step,
        highest=highest,
        highest_step=highest_step,
        last=last,
        last_step=last_step,
        not_finite=channel.not_finite,
        not_finite_steps=channel.not_finite_steps,
        branches=branches,
    )


def _branch(
    branch: int, segments: Sequence[Segment], columns: int, kept_until: Mapping[int, int]
) -> BranchCurve:
    # Steps repeat after a restart; in a figure, both values are at the same place.
    places: list[Place] = sorted(
        {
            (step, value)
            for segment in segments
            for step, value in zip(segment.column(STEP), segment.column(VALUE), strict=True)
            if math.isfinite(value)
        }
    )
    low, high = (places[0][0], places[-1][0]) if places else (0.0, 0.0)
    width = (high - low) / columns or 1.0
    points = thin(places, columns, lambda step: int((step - low) / width))
    last = int(points[-1][0]) if points else None
    return BranchCurve(
        branch=branch,
        kept_until=kept_until.get(branch) if kept_until else last,
        steps=tuple(int(step) for step, _ in points),
        values=tuple(value for _, value in points if value is not None),
    )
