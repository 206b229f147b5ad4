"""The curves of a report: the whole series, downsampled while it is read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from tfckpt_trainer.rundir.records.event import EventEntry, EventKind, SeriesPoint
from tfckpt_tui.formats.metric_names import main_of
from tfckpt_tui.reports.reporting import BranchCurve, CurveFacts, CurvesFacts, MarkFacts

COLUMNS = 600
"""Intervals of steps that a curve has on one branch at most: a figure has as many columns."""

MOST_CELLS = 24_000
"""Intervals of all curves together: four points each are about 1 MB of a figure."""

MOST_CURVES = 2000
"""Metrics on a branch that are kept at most."""

MOST_METRICS = 100
_MOST_LEFT_OUT = 10_000
_MOST_NOT_FINITE = 100
_MOST_MARKS = 200

MARKED = frozenset({EventKind.RESTORE, EventKind.RESTART, EventKind.SET, EventKind.GUARD})
"""Kinds of events that curves show."""

_Quantity = Literal["metric", "throughput", "step time"]
_THROUGHPUT: tuple[_Quantity, str] = ("throughput", "throughput")
_STEP_TIME: tuple[_Quantity, str] = ("step time", "step time")


class _Value(NamedTuple):
    step: int
    value: float


class _Curve:
    """One quantity: its figures, and by branch the first, lowest, highest and last value of each
    interval of steps.
    """

    __slots__ = ("broken", "broken_steps", "cells", "highest", "last", "lowest", "points")

    def __init__(self) -> None:
        self.points = self.broken = 0
        self.broken_steps: list[int] = []
        self.lowest: _Value | None = None
        self.highest: _Value | None = None
        self.last: _Value | None = None
        self.cells: dict[int, dict[int, list[_Value]]] = {}

    def note_broken(self, step: int) -> None:
        """Counts a value that is not finite."""
        self.broken += 1
        if len(self.broken_steps) < _MOST_NOT_FINITE:
            self.broken_steps.append(step)

    def note(self, found: _Value) -> None:
        """Takes a finite value into the figures."""
        self.last = found
        if self.lowest is None or found.value < self.lowest.value:
            self.lowest = found
        if self.highest is None or found.value > self.highest.value:
            self.highest = found


class CurveReader:
    """Takes the points of a series and keeps what a figure shows of them.

    The steps are divided into equal intervals. When there are too many, two become one.
    """

    def __init__(self, events: Sequence[EventEntry] = ()) -> None:
        """Makes a reader.

        Args:
            events: The event log, oldest first. Some become marks.
        """
        self._width = 1
        self._count = self._parts = self._points = 0
        self._curves: dict[tuple[_Quantity, str], _Curve] = {}
        self._left_out: set[tuple[str, int]] = set()
        self._step: int | None = None
        self._marks: list[MarkFacts] = []
        marked = [entry for entry in events if entry.kind in MARKED][-_MOST_MARKS:]
        # Supervisors know no step.
        self._waiting = [entry for entry in marked if entry.step is None][::-1]
        self._marks = [_mark(entry, entry.step) for entry in marked if entry.step is not None]

    def add(self, points: Iterable[SeriesPoint]) -> None:
        """Takes the next points."""
        for point in points:
            step, branch = point.step, point.branch
            while self._waiting and self._waiting[-1].at <= point.at:
                self._place_mark(step if self._step is None else self._step)
            self._points += 1
            self._step = step
            for name, value in point.metrics.items():
                self._add(("metric", name), branch, step, value)
            if point.examples_per_second is not None:
                self._add(_THROUGHPUT, branch, step, point.examples_per_second)
            if point.step_seconds is not None:
                self._add(_STEP_TIME, branch, step, point.step_seconds)

    def facts(self, kept_until: Mapping[int, int]) -> CurvesFacts:
        """Returns the curves.

        Args:
            kept_until: By branch, the last step that the present model was trained on.
        """
        while self._waiting and self._step is not None:
            self._place_mark(self._step)
        metrics = [name for quantity, name in self._curves if quantity == "metric"]
        first = main_of(metrics)
        order = sorted(
            self._curves,
            key=lambda key: (key[0] != "metric", key[0] == "step time", key[1] != first, key[1]),
        )
        marks = sorted(self._marks, key=lambda mark: mark.step)
        return CurvesFacts(
            points=self._points,
            curves=tuple(_facts(key, self._curves[key], kept_until) for key in order),
            left_out=len(self._left_out),
            marks=tuple(marks),
        )

    def _place_mark(self, step: int) -> None:
        self._marks.append(_mark(self._waiting.pop(), step))

    def _add(self, key: tuple[_Quantity, str], branch: int, step: int, value: float | None) -> None:
        curve = self._curves.get(key)
        cells = curve.cells.get(branch) if curve is not None else None
        if curve is None or cells is None:
            if self._is_full(key):
                if len(self._left_out) < _MOST_LEFT_OUT:
                    self._left_out.add((key[1], branch))
                return
            curve = self._curves.setdefault(key, _Curve())
            cells = curve.cells.setdefault(branch, {})
            self._parts += 1
        curve.points += 1
        if value is None or not math.isfinite(value):
            curve.note_broken(step)
            return
        found = _Value(step, value)
        curve.note(found)
        place = step // self._width
        cell = cells.get(place)
        if cell is not None:
            _take(cell, found)
            return
        cells[place] = [found] * 4
        self._count += 1
        while self._count > MOST_CELLS or len(curve.cells[branch]) > COLUMNS:
            self._double_width()

    def _is_full(self, key: tuple[_Quantity, str]) -> bool:
        is_new = key[0] == "metric" and key not in self._curves
        return self._parts >= MOST_CURVES or (is_new and len(self._curves) >= MOST_METRICS)

    def _double_width(self) -> None:
        self._width *= 2
        self._count = 0
        for curve in self._curves.values():
            for branch, cells in curve.cells.items():
                joined: dict[int, list[_Value]] = {}
                for place, cell in cells.items():
                    both = joined.setdefault(place // 2, cell)
                    if both is not cell:
                        for found in cell:
                            _take(both, found)
                curve.cells[branch] = joined
                self._count += len(joined)


def _take(cell: list[_Value], found: _Value) -> None:
    """Takes a newer value into an interval: first, lowest, highest, last."""
    if found.value < cell[1].value:
        cell[1] = found
    elif found.value > cell[2].value:
        cell[2] = found
    cell[3] = found


def _mark(entry: EventEntry, step: int) -> MarkFacts:
    return MarkFacts(step=step, kind=entry.kind, message=entry.message)


def _facts(key: tuple[_Quantity, str], curve: _Curve, kept_until: Mapping[int, int]) -> CurveFacts:
    lowest, highest, last = curve.lowest, curve.highest, curve.last
    return CurveFacts(
        name=key[1],
        quantity=key[0],
        points=curve.points,
        lowest=lowest.value if lowest else None,
        lowest_step=lowest.step if lowest else None,
        highest=highest.value if highest else None,
        highest_step=highest.step if highest else None,
        last=last.value if last else None,
        last_step=last.step if last else None,
        not_finite=curve.broken,
        not_finite_steps=tuple(curve.broken_steps),
        branches=tuple(
            _branch(branch, cells, kept_until.get(branch))
            for branch, cells in sorted(curve.cells.items())
        ),
    )


def _branch(branch: int, cells: Mapping[int, list[_Value]], kept: int | None) -> BranchCurve:
    # Steps repeat after a restart; in a figure, both values are at the same place.
    points = sorted({found for cell in cells.values() for found in cell})
    return BranchCurve(
        branch=branch,
        kept_until=kept,
        steps=tuple(point.step for point in points),
        values=tuple(point.value for point in points),
    )
