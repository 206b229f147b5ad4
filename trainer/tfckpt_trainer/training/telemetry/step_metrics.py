"""Progress of a worker: written by the training loop, read by the heartbeat."""

from __future__ import annotations

import math
import statistics
import time
from collections import ChainMap, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from tfckpt_trainer.rundir.records.checkpoint import WorkerFacts
from tfckpt_trainer.rundir.records.failure import ScriptFault
from tfckpt_trainer.rundir.records.hyperparameter import Hyperparameter
from tfckpt_trainer.rundir.records.worker import Activity, Ending, Phase, SaveStatus
from tfckpt_trainer.training.telemetry.finite_watch import FiniteWatch
from tfckpt_trainer.training.telemetry.task_shares import TaskShares

LONGEST_PROBLEM = 600
"""Characters kept of a problem. A heartbeat on a full disk must fit into the blocks it has."""

WINDOW_STEPS = 100
"""Number of steps over which medians and percentiles are computed."""

MAX_PENDING_STEPS = 10_000
"""Largest number of steps that wait for the summary writer. Older steps are dropped."""


class SaveTally:
    """The outcomes of saves, written by the training loop and read by the heartbeat.

    Attributes:
        waits_for_room: Whether training is paused until a save fits on the disk.
        saved_at: When the last save succeeded, in seconds since the epoch; None if none has.
        unsaved_since: The same, else when the run began; later by the time that it was paused.
        disk_full_in: Seconds until the disk is full, as last measured; None if unknown.
    """

    def __init__(self) -> None:
        self.waits_for_room = False
        self._every_steps: int | None = None
        self._every_seconds: float | None = None
        self._failed = 0
        self._problem = ""
        self.saved_at: float | None = None
        self.unsaved_since = time.time()
        self.disk_full_in: float | None = None
        self._saved_step: int | None = None
        self._trained_seconds = 0.0
        self._began_at = 0.0
        self._saved_seconds = 0.0
        self._save_seconds = 0.0

    def set_intervals(self, every_steps: int | None, every_seconds: float | None) -> None:
        """Sets the intervals between saves; None if there is no such interval."""
        self._every_steps = every_steps
        self._every_seconds = every_seconds

    def step_done(self, seconds: float) -> None:
        """Counts a step of so many seconds."""
        self._trained_seconds += seconds

    def begin(self) -> None:
        """Records that a save begins: its checkpoint holds all steps so far."""
        self._began_at = self._trained_seconds

    def saved(self, step: int, *, is_new: bool = True) -> None:
        """Records that the save which began last succeeded.

        Args:
            step: Its step.
            is_new: Whether it made a checkpoint; none of an earlier save was there.
        """
        self._failed, self._problem = 0, ""
        self.unsaved_since = time.time()
        if is_new:
            self.saved_at = self.unsaved_since
        self._saved_step, self._saved_seconds = step, self._began_at
        self._save_seconds = self._trained_seconds - self._began_at

    def paused(self, since: float) -> None:
        """Leaves out the time of a pause that ends now, in which nothing had to be saved.

        Args:
            since: When it began, in seconds since the epoch.
        """
        self.unsaved_since += max(0.0, time.time() - max(since, self.unsaved_since))

    def failed(self, problem: str) -> None:
        """Records that a save failed or was refused."""
        self._failed += 1
        cut = len(problem) > LONGEST_PROBLEM
        self._problem = f"{problem[: LONGEST_PROBLEM - 1]}…" if cut else problem

    def restored(self, step: int) -> None:
        """Records that training continues from a checkpoint with this step."""
        self._saved_step, self._saved_seconds = step, self._trained_seconds

    def status(self, step: int) -> SaveStatus:
        """Returns what the heartbeat reports.

        Args:
            step: Steps done.
        """
        return SaveStatus(
            failed=self._failed,
            problem=self._problem,
            saved_at=self.saved_at,
            saved_step=self._saved_step,
            save_seconds=self._save_seconds,
            unsaved_steps=max(0, step - (self._saved_step or 0)),
            unsaved_seconds=max(0.0, self._trained_seconds - self._saved_seconds),
            every_steps=self._every_steps,
            every_seconds=self._every_seconds,
            waits_for_room=self.waits_for_room,
        )


class Call(NamedTuple):
    """One call of the step function.

    Attributes:
        steps: How many steps it ran.
        seconds: How long they took together.
        input_seconds: How much of that they waited for their input.
    """

    steps: int
    seconds: float
    input_seconds: float


class StepSummary(NamedTuple):
    """One step, for the summary writer.

    Until `StepMetrics.settle`, looking at a metric may wait for the device.
    """

    at: float
    step: int
    branch: int
    seconds: float
    metrics: Mapping[str, float]


def ignore_step(facts: StepSummary) -> None:
    """Does nothing with a step."""
    del facts


@dataclass
class StepMetrics:
    """The progress of a worker, as plain attributes because setting them is cheap.

    Attributes:
        reported: The newest value of every metric ever reported, up to the last settled step.
        fresh: What was reported in the present step. Looking at it may wait for the device.
        earlier: The same of each earlier step of the present call.
        steps_per_call: The most steps that one call ran.
        reduced: Names of metrics whose values come from an all-reduce.
        phase: The current part of the training loop.
        phase_since: Start of that part.
        background: Description of work in the background; empty if there is none.
        finished_steps: Steps that the summary writer has not taken yet.
        not_finite: The metrics whose newest value is NaN or infinite.
        saves: The outcomes of saves.
        shares: What the workers and parameter servers do for this process, if it coordinates them.
        hyperparameters: Returns values that can be changed; none but on the chief.
        write_problem: Why the chief cannot write a file of the run; empty if it can.
        on_step: Called with each step whose metrics are known.
    """

    activity: Activity = Activity.STARTING
    detail: str = ""
    fault: ScriptFault | None = None
    ending: Ending | None = None
    step: int = 0
    branch: int = 0
    reported: Mapping[str, float] = field(default_factory=dict)
    fresh: Mapping[str, float] = field(default_factory=dict)
    earlier: Sequence[Mapping[str, float]] = ()
    steps_per_call: int = 1
    reduced: frozenset[str] = frozenset()
    background: str = ""
    phase: Phase | None = None
    phase_since: float | None = None
    examples_per_step: int | None = None
    last_step_at: float | None = None
    step_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW_STEPS))
    input_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW_STEPS))
    finished_steps: deque[StepSummary] = field(
        default_factory=lambda: deque(maxlen=MAX_PENDING_STEPS)
    )
    not_finite: FiniteWatch = field(default_factory=FiniteWatch)
    saves: SaveTally = field(default_factory=SaveTally)
    shares: TaskShares = field(default_factory=TaskShares)
    hyperparameters: Callable[[], list[Hyperparameter]] = list
    write_problem: str = ""
    on_step: Callable[[StepSummary], None] = ignore_step
    _newest: Sequence[Mapping[str, float]] = ()
    _unsettled: list[StepSummary] = field(default_factory=list)
    _last_traced: bool = False

    def report(self, values: Mapping[str, float]) -> None:
        """Adds metrics of the present step; those of the same name are replaced."""
        # Values are not looked at here.
        self.fresh = ChainMap(*cast(Any, (values, self.fresh))) if self.fresh else values

    def wait_for_step(self) -> None:
        """Waits until the present step is computed."""
        self.fresh = dict(self.fresh)

    @property
    def newest(self) -> Mapping[str, float]:
        """What was reported in the last whole step."""
        return self.newest_call[-1] if self.newest_call else {}

    @property
    def newest_call(self) -> Sequence[Mapping[str, float]]:
        """What was reported in each step of the last whole call."""
        self.settle()
        return self._newest

    def settle(self) -> None:
        """Takes the metrics of the last whole call. It waits for the device if that computes it."""
        unsettled, self._unsettled = self._unsettled, []
        if not unsettled:
            return
        self._newest = [dict(facts.metrics) for facts in unsettled]
        for facts, metrics in zip(unsettled, self._newest, strict=True):
            self.reported = {**self.reported, **metrics}
            self.not_finite.step_done(facts.step, metrics)
            done = StepSummary(*facts[:-1], metrics)
            self.finished_steps.append(done)
            self.on_step(done)

    def call_done(self, step: int, call: Call) -> None:
        """Records a call.

        Its metrics are taken at once if they were read, otherwise after the next call.

        Args:
            step: Steps done.
            call: How many of them it ran, and how long they took.
        """
        self.settle()
        now = time.time()
        of_steps = [*self.earlier, self.fresh]
        is_read = isinstance(self.fresh, dict)
        self.fresh, self.earlier = {}, ()
        self.step = step
        if self._last_traced:
            # What tracing took is not the pace.
            self.forget_steps()
        # A call that is shorter than the longest runs its steps one by one.
        self._last_traced = self.last_step_at is None or call.steps > self.steps_per_call
        self.last_step_at = now
        self.steps_per_call = max(self.steps_per_call, call.steps)
        seconds = call.seconds / call.steps
        self.step_seconds.extend([seconds] * call.steps)
        self.input_seconds.extend([call.input_seconds / call.steps] * call.steps)
        self.saves.step_done(call.seconds)
        first = step - len(of_steps) + 1
        self._unsettled = [
            StepSummary(now, first + number, self.branch, seconds, metrics)
            for number, metrics in enumerate(of_steps)
        ]
        if is_read:
            # Nothing has to be waited for.
            self.settle()

    def enter(self, phase: Phase) -> None:
        """Records the current part of the training loop."""
        self.phase = phase
        self.phase_since = time.time()

    def set_position(self, step: int, branch: int, facts: WorkerFacts | None = None) -> None:
        """Sets the position to that of a restored checkpoint.

        Args:
            step: Its step.
            branch: The branch of later saves.
            facts: What its record says of this worker; None without a record.
        """
        self.settle()
        self.step = step
        self.branch = branch
        metrics = facts.metrics if facts is not None else {}
        not_finite = facts.not_finite if facts is not None else []
        self.reported = {name: value for name, value in metrics.items() if value is not None}
        self.reported |= {metric.name: float(metric.value) for metric in not_finite}
        self.not_finite.restored(not_finite)
        self.saves.restored(step)
        self.forget_steps()

    def forget_steps(self) -> None:
        """Clears the window of step times."""
        self.step_seconds.clear()
        self.input_seconds.clear()

    def take_finished_steps(self) -> list[StepSummary]:
        """Returns the steps since the last call, oldest first."""
        drained = []
        while self.finished_steps:
            drained.append(self.finished_steps.popleft())
        return drained

    @property
    def examples_per_second(self) -> float | None:
        """Throughput over all workers in the window; None if it is unknown."""
        seconds = mean(self.step_seconds)
        if seconds is None or not self.examples_per_step or seconds <= 0:
            return None
        return self.examples_per_step / seconds


def median(values: deque[float]) -> float | None:
    """Returns the median of `values`; None if there are none."""
    now = values.copy()
    return statistics.median(now) if now else None


def mean(values: deque[float]) -> float | None:
    """Returns the mean of `values`; None if there are none."""
    now = values.copy()
    return statistics.fmean(now) if now else None


def percentile_95(values: deque[float]) -> float | None:
    """Returns the 95th percentile of `values` (nearest rank); None if there are none."""
    now = sorted(values.copy())
    return now[math.ceil(0.95 * len(now)) - 1] if now else None


def not_finite(metrics: Mapping[str, float]) -> dict[str, str]:
    """Returns the metrics that are `nan`, `inf` or `-inf`, as text."""
    return {name: str(value) for name, value in metrics.items() if not math.isfinite(value)}


def finite(metrics: Mapping[str, float]) -> dict[str, float | None]:
    """Returns metrics for JSON, with None for NaN and infinity."""
    return {name: value if math.isfinite(value) else None for name, value in metrics.items()}
