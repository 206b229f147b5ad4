"""What a guard would have done in the recorded history of a run."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field

from tfckpt_trainer.guards.actions import GoBack
from tfckpt_trainer.guards.conditions import (
    DiskFull,
    SlowSteps,
    Spike,
    StepReading,
)
from tfckpt_trainer.guards.guard import Guard
from tfckpt_trainer.guards.moving_window import needed
from tfckpt_trainer.guards.trial import why_unseen
from tfckpt_trainer.guards.watch import Firing, GuardWatch
from tfckpt_trainer.rundir.paths import parse_checkpoint_name
from tfckpt_trainer.rundir.records.event import EventEntry, EventKind, SeriesPoint
from tfckpt_trainer.words.counts import count

_BEGINS = frozenset({EventKind.START, EventKind.RESTORE})
"""Kinds of events with the step from which training goes on."""

_WITH_VALUES = {EventKind.NOT_FINITE: "metrics", EventKind.GUARD: "values"}
"""Kinds of events with values of metrics in one step, and where."""


@dataclass(frozen=True)
class ReplayedFiring:
    """A firing that a guard would have had.

    Attributes:
        firing: The step and the evidence.
        at: When.
        checkpoint: The checkpoint that it would have gone back to, if it goes back.
        actions: What it would have done, in order.
    """

    firing: Firing
    at: float
    checkpoint: str | None
    actions: tuple[str, ...]


@dataclass(frozen=True)
class Replay:
    """What a guard would have done.

    History goes on as it did: what the actions would have changed is not simulated.

    Attributes:
        rule: The text of the guard.
        firings: In order.
        points: How many recorded points the condition looked at.
        first_step: The step of the first of them; None without one.
        last_step: The step of the last of them.
        why_not: Why the condition cannot be replayed, as a sentence; empty if it can.
    """

    rule: str
    firings: tuple[ReplayedFiring, ...] = ()
    points: int = 0
    first_step: int | None = None
    last_step: int | None = None
    why_not: str = ""

    @property
    def skips_steps(self) -> bool:
        """Whether there were steps between the points."""
        first, last = self.first_step or 0, self.last_step or 0
        return last - first + 1 > self.points


def replay(guard: Guard, series: Sequence[SeriesPoint], events: Sequence[EventEntry]) -> Replay:
    """Returns what a guard would have done over recorded points.

    A point holds the last values of about a second of training on the chief. What happened between
    two points, or on another worker, is seen only if the event log has the values.

    Args:
        guard: The guard.
        series: The points, oldest first.
        events: The event log, oldest first.
    """
    why_not = _why_not(guard, series, events)
    if why_not:
        return Replay(str(guard), why_not=why_not)
    watch, history = GuardWatch([guard]), _History(recorded_metrics(series, events).keys())
    firings: list[ReplayedFiring] = []
    for entry in _in_order(series, events):
        reading = history.add(entry)
        if isinstance(entry, EventEntry) and entry.kind is EventKind.START:
            # A new process has seen nothing.
            watch = GuardWatch([guard])
        elif history.went_back_to is not None:
            watch.restored(history.went_back_to)
        for firing in watch.step_done(reading) if reading is not None else ():
            firings.append(_replayed(guard, firing, entry.at, history, len(firings)))
    steps = [point.step for point in series]
    return Replay(str(guard), tuple(firings), len(steps), steps[0], steps[-1])


@dataclass
class _History:
    """What was so at one moment of a recorded history.

    Attributes:
        metrics: The names of all metrics that were recorded.
        saved: Steps and names of the checkpoints on the way to that moment.
        went_back_to: The step from which the last entry had training go on; None if it did not.
    """

    metrics: AbstractSet[str]
    saved: list[tuple[int, str]] = field(default_factory=list)
    went_back_to: int | None = None
    _saved_at: float | None = None
    _paused_at: float | None = None
    _step: int = -1

    def add(self, entry: EventEntry | SeriesPoint) -> StepReading | None:
        """Adds an entry; returns what a condition sees of it."""
        self.went_back_to = None
        if isinstance(entry, SeriesPoint):
            # The entry of a restore may be missing.
            if entry.step < self._step:
                self._go_back(entry.step - 1)
            self._step = entry.step
            metrics = {
                name: math.nan if value is None else value for name, value in entry.metrics.items()
            }
            return self._reading(entry, entry.step, entry.step_seconds, metrics)
        if entry.kind in _BEGINS and entry.step is not None:
            self._go_back(entry.step)
            self._saved_at = self._saved_at if self._saved_at is not None else entry.at
        elif entry.kind is EventKind.SAVE:
            named = parse_checkpoint_name(entry.checkpoint) if entry.checkpoint else None
            if named is not None:
                self.saved.append((named.step, entry.checkpoint or ""))
            self._saved_at = entry.at
        elif entry.kind is EventKind.PAUSE:
            self._paused_at = entry.at
        elif entry.kind is EventKind.RESUME:
            self._leave_out_pause(entry.at)
        elif entry.kind in _WITH_VALUES and entry.step is not None:
            return self._reading(entry, entry.step, None, dict(self._values_of(entry)))
        return None

    def _values_of(self, entry: EventEntry) -> Iterator[tuple[str, float]]:
        """Yields the metrics that an event has values of."""
        values = entry.details.get(_WITH_VALUES[entry.kind])
        for name, value in values.items() if isinstance(values, dict) else ():
            with suppress(TypeError, ValueError):
                if name in self.metrics:
                    yield name, float(value)

    def _leave_out_pause(self, until: float) -> None:
        """Leaves out the time of a pause, in which nothing had to be saved."""
        began, self._paused_at = self._paused_at, None
        if began is not None and self._saved_at is not None:
            self._saved_at += max(0.0, until - max(began, self._saved_at))

    def _go_back(self, step: int) -> None:
        self.went_back_to = self._step = step
        self.saved = [saved for saved in self.saved if saved[0] <= step]

    def _reading(
        self,
        entry: EventEntry | SeriesPoint,
        step: int,
        seconds: float | None,
        metrics: dict[str, float],
    ) -> StepReading:
        return StepReading(step, entry.at, seconds, metrics, self._saved_at)


def _in_order(
    series: Iterable[SeriesPoint], events: Iterable[EventEntry]
) -> Iterator[EventEntry | SeriesPoint]:
    """Returns points and events in the order in which they happened.

    Each keeps its own order, as a clock may have been set back. At one time, a point comes before
    the event that it led to.
    """
    return heapq.merge(series, events, key=lambda entry: entry.at)


def recorded_metrics(
    series: Iterable[SeriesPoint], events: Iterable[EventEntry]
) -> dict[str, None]:
    """Returns the names of all metrics that were recorded, in their order."""
    names = dict.fromkeys(name for point in series for name in point.metrics)
    for entry in events:
        if entry.kind is EventKind.NOT_FINITE and isinstance(entry.details.get("metrics"), dict):
            names |= dict.fromkeys(map(str, entry.details["metrics"]))
    return names


def _why_not(guard: Guard, series: Sequence[SeriesPoint], events: Sequence[EventEntry]) -> str:
    """Returns why a condition cannot be replayed, as a sentence; empty if it can."""
    condition = guard.condition
    if not series:
        return "No metrics of tfckpt_trainer are recorded in this run yet."
    if isinstance(condition, DiskFull):
        return "Free disk space is not recorded, so disk_full cannot be replayed."
    if isinstance(condition, SlowSteps) and all(point.step_seconds is None for point in series):
        return "No time of a step is recorded in this run."
    if isinstance(condition, Spike | SlowSteps) and len(series) < needed(condition.window):
        return (
            f"{count(len(series), 'point')} are recorded; {condition.name} with a window of "
            f"{condition.window} needs {needed(condition.window)}."
        )
    return why_unseen(guard, recorded_metrics(series, events))


def _replayed(
    guard: Guard, firing: Firing, at: float, history: _History, earlier: int
) -> ReplayedFiring:
    """Returns a firing with what the guard would have done."""
    if guard.at_most is not None and earlier >= guard.at_most:
        return ReplayedFiring(firing, at, None, (f"pause: it fired {guard.at_most} times before",))
    back = next((action for action in guard.actions if isinstance(action, GoBack)), None)
    actions = tuple(map(str, guard.actions))
    if back is None:
        return ReplayedFiring(firing, at, None, actions)
    before = firing.evidence.began - back.steps
    checkpoint = next((name for step, name in reversed(history.saved) if step < before), None)
    if checkpoint is None:
        return ReplayedFiring(
            firing, at, None, (f"pause: no checkpoint is known from before step {before:,}",)
        )
    return ReplayedFiring(firing, at, checkpoint, actions)
