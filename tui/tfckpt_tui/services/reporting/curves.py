"""The curves of a report: the whole series, downsampled while it is read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, cast

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


_THROUGHPUT, _STEP_TIME = 1, 2
_OTHERS: dict[int, Literal["throughput", "step time"]] = {
    _THROUGHPUT: "throughput",
    _STEP_TIME: "step time",
}
_Key = str | int
"""The name of a metric, which may be any text, or what else a point has."""

_FIRST, _LOW, _HIGH, _LAST, _NEXT = 0, 2, 4, 6, 8
_Cell = list[Any]
"""Of an interval of steps the first, lowest, highest and last value: for each its step, then it."""


class _Part:
    """One quantity on one branch, by interval of steps."""

    __slots__ = ("broken", "broken_steps", "cells", "newest", "points")

    def __init__(self) -> None:
        self.points = self.broken = 0
        self.broken_steps: list[int] = []
        self.cells: dict[int, _Cell] = {}
        self.newest: _Cell = []

    def note_broken(self, step: int) -> None:
        """Counts a value that is not finite."""
        self.broken += 1
        if len(self.broken_steps) < _MOST_NOT_FINITE:
            self.broken_steps.append(step)

    def halve(self) -> None:
        """Joins every two intervals."""
        joined: dict[int, _Cell] = {}
        for place, cell in self.cells.items():
            both = joined.setdefault(place // 2, cell)
            if both is not cell:
                _join(both, cell)
                if self.newest is cell:
                    self.newest = both
        self.cells = joined


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
        self._by_branch: dict[int, dict[_Key, _Part]] = {}
        self._keys: dict[_Key, None] = {}
        self._left_out: set[tuple[str, int]] = set()
        self._step: int | None = None
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
            parts = self._by_branch.setdefault(branch, {})
            place = step // self._width
            for name, value in _values(point):
                # This runs for millions of values: nothing is called for most of them.
                part = parts.get(name)
                cell = part.cells.get(place) if part is not None else None
                if part is None or cell is None or value is None or value - value != 0:
                    self._add(name, branch, step, value)
                    place = step // self._width
                    continue
                part.points += 1
                part.newest = cell
                if value < cell[_LOW + 1]:
                    cell[_LOW], cell[_LOW + 1] = step, value
                elif value > cell[_HIGH + 1]:
                    cell[_HIGH], cell[_HIGH + 1] = step, value
                cell[_LAST], cell[_LAST + 1] = step, value

    def facts(self, kept_until: Mapping[int, int]) -> CurvesFacts:
        """Returns the curves.

        Args:
            kept_until: By branch, the last step that the present model was trained on; empty if
                that is not known, so that all are shown as such.
        """
        while self._waiting and self._step is not None:
            self._place_mark(self._step)
        first = main_of([key for key in self._keys if isinstance(key, str)])
        order = sorted(self._keys, key=lambda key: (_name(key)[0], key != first, _name(key)[1]))
        return CurvesFacts(
            points=self._points,
            curves=tuple(_facts(key, self._parts_of(key), kept_until) for key in order),
            left_out=len(self._left_out),
            marks=tuple(sorted(self._marks, key=lambda mark: mark.step)),
        )

    def _parts_of(self, key: _Key) -> dict[int, _Part]:
        return {
            branch: parts[key] for branch, parts in sorted(self._by_branch.items()) if key in parts
        }

    def _place_mark(self, step: int) -> None:
        self._marks.append(_mark(self._waiting.pop(), step))

    def _add(self, key: _Key, branch: int, step: int, value: float | None) -> None:
        """Takes a value that is the first of its curve or interval, or that is not finite."""
        part = self._by_branch[branch].get(key)
        if part is None:
            if self._is_full(key):
                if len(self._left_out) < _MOST_LEFT_OUT:
                    self._left_out.add((_name(key)[1], branch))
                return
            part = self._by_branch[branch][key] = _Part()
            self._keys[key] = None
            self._parts += 1
        part.points += 1
        if value is None or not math.isfinite(value):
            part.note_broken(step)
            return
        cell = [step, value] * 4
        part.newest = part.cells[step // self._width] = cell
        self._count += 1
        while self._count > MOST_CELLS or len(part.cells) > COLUMNS:
            self._double_width()

    def _is_full(self, key: _Key) -> bool:
        is_new = isinstance(key, str) and key not in self._keys
        return self._parts >= MOST_CURVES or (is_new and len(self._keys) >= MOST_METRICS)

    def _double_width(self) -> None:
        self._width *= 2
        self._count = 0
        for parts in self._by_branch.values():
            for part in parts.values():
                part.halve()
                self._count += len(part.cells)


def _values(point: SeriesPoint) -> Iterable[tuple[_Key, float | None]]:
    rate, seconds = point.examples_per_second, point.step_seconds
    if rate is None and seconds is None:
        return point.metrics.items()
    values = cast(dict[_Key, float | None], point.metrics.copy())
    if rate is not None:
        values[_THROUGHPUT] = rate
    if seconds is not None:
        values[_STEP_TIME] = seconds
    return values.items()


def _name(key: _Key) -> tuple[int, str]:
    """Returns the place of a kind of quantity among the others, and the name of a quantity."""
    return (0, key) if isinstance(key, str) else (key, _OTHERS[key])


def _join(cell: _Cell, later: _Cell) -> None:
    """Takes the values of a later interval into one."""
    if later[_LOW + 1] < cell[_LOW + 1]:
        cell[_LOW:_HIGH] = later[_LOW:_HIGH]
    if later[_HIGH + 1] > cell[_HIGH + 1]:
        cell[_HIGH:_LAST] = later[_HIGH:_LAST]
    cell[_LAST:_NEXT] = later[_LAST:_NEXT]


def _mark(entry: EventEntry, step: int) -> MarkFacts:
    return MarkFacts(step=step, kind=entry.kind, message=entry.message)


def _facts(key: _Key, parts: Mapping[int, _Part], kept_until: Mapping[int, int]) -> CurveFacts:
    cells = [cell for part in parts.values() for cell in part.cells.values()]
    low = min(cells, key=lambda cell: cell[_LOW + 1], default=None)
    high = max(cells, key=lambda cell: cell[_HIGH + 1], default=None)
    # Branches are numbered in the order in which they began.
    newest = next((part.newest for part in reversed([*parts.values()]) if part.newest), None)
    broken = [step for part in parts.values() for step in part.broken_steps]
    return CurveFacts(
        name=_name(key)[1],
        quantity="metric" if isinstance(key, str) else _OTHERS[key],
        points=sum(part.points for part in parts.values()),
        lowest=low[_LOW + 1] if low else None,
        lowest_step=low[_LOW] if low else None,
        highest=high[_HIGH + 1] if high else None,
        highest_step=high[_HIGH] if high else None,
        last=newest[_LAST + 1] if newest else None,
        last_step=newest[_LAST] if newest else None,
        not_finite=sum(part.broken for part in parts.values()),
        not_finite_steps=tuple(broken[:_MOST_NOT_FINITE]),
        branches=tuple(_branch(branch, part, kept_until) for branch, part in parts.items()),
    )


def _branch(branch: int, part: _Part, kept_until: Mapping[int, int]) -> BranchCurve:
    # Steps repeat after a restart; in a figure, both values are at the same place.
    points = sorted(
        {
            (cell[at], cell[at + 1])
            for cell in part.cells.values()
            for at in (_FIRST, _LOW, _HIGH, _LAST)
        }
    )
    last = points[-1][0] if points else None
    return BranchCurve(
        branch=branch,
        kept_until=kept_until.get(branch) if kept_until else last,
        steps=tuple(step for step, _ in points),
        values=tuple(value for _, value in points),
    )
