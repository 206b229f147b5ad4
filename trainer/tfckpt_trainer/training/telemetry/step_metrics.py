"""Progress of a worker: written by the training loop, read by the heartbeat."""

from __future__ import annotations

import math
import statistics
import time
from collections import ChainMap, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from tfckpt_trainer.rundir.records.worker import Activity, Ending, NotFiniteMetric, Phase
from tfckpt_trainer.training.telemetry.finite_watch import FiniteWatch
from tfckpt_trainer.training.telemetry.save_tally import SaveTally

WINDOW_STEPS = 100
"""Number of steps over which medians and percentiles are computed."""

MAX_PENDING_STEPS = 10_000
"""Largest number of steps that wait for the summary writer. Older steps are dropped."""


class StepFacts(NamedTuple):
    """One step, for the summary writer.

    Until `StepMetrics.settle`, looking at a metric may wait for the device.
    """

    at: float
    step: int
    branch: int
    seconds: float
    metrics: Mapping[str, float]


@dataclass
class StepMetrics:
    """The progress of a worker, as plain attributes because setting them is cheap.

    Attributes:
        reported: The newest value of every metric ever reported, up to the last settled step.
        fresh: What was reported in the present step. Looking at it may wait for the device.
        reduced: Names of metrics whose values come from an all-reduce.
        phase: The current part of the training loop.
        phase_since: Start of that part.
        background: Description of work in the background; empty if there is none.
        finished_steps: Steps that the summary writer has not taken yet.
        not_finite: The metrics whose newest value is NaN or infinite.
        saves: The outcomes of saves.
    """

    activity: Activity = Activity.STARTING
    detail: str = ""
    ending: Ending | None = None
    step: int = 0
    branch: int = 0
    reported: Mapping[str, float] = field(default_factory=dict)
    fresh: Mapping[str, float] = field(default_factory=dict)
    reduced: frozenset[str] = frozenset()
    background: str = ""
    phase: Phase | None = None
    phase_since: float | None = None
    examples_per_step: int | None = None
    last_step_at: float | None = None
    step_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW_STEPS))
    input_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW_STEPS))
    finished_steps: deque[StepFacts] = field(
        default_factory=lambda: deque(maxlen=MAX_PENDING_STEPS)
    )
    not_finite: FiniteWatch = field(default_factory=FiniteWatch)
    saves: SaveTally = field(default_factory=SaveTally)
    _newest: Mapping[str, float] = field(default_factory=dict)
    _unsettled: StepFacts | None = None

    def report(self, values: Mapping[str, float]) -> None:
        """Adds metrics of the present step; those of the same name are replaced."""
        # Values are not looked at here.
        self.fresh = ChainMap(*cast(Any, (values, self.fresh))) if self.fresh else values

    def wait_for_step(self) -> float:
        """Waits until the present step is computed; returns the seconds that this took."""
        began = time.perf_counter()
        self.fresh = dict(self.fresh)
        return time.perf_counter() - began

    @property
    def newest(self) -> Mapping[str, float]:
        """What was reported in the last whole step."""
        self.settle()
        return self._newest

    def settle(self) -> None:
        """Takes the metrics of the last whole step. It waits for the device if that computes it."""
        unsettled, self._unsettled = self._unsettled, None
        if unsettled is None:
            return
        self._newest = metrics = dict(unsettled.metrics)
        self.reported = {**self.reported, **metrics}
        self.not_finite.step_done(unsettled.step, metrics)
        self.finished_steps.append(unsettled._replace(metrics=metrics))

    def step_done(self, step: int, seconds: float, input_seconds: float) -> None:
        """Records a step that took `seconds`, including `input_seconds` of waiting for input.

        Its metrics are taken at once if they were read, otherwise after the next step.
        """
        self.settle()
        now = time.time()
        fresh, self.fresh = self.fresh, {}
        self.step = step
        self.last_step_at = now
        self.step_seconds.append(seconds)
        self.input_seconds.append(input_seconds)
        self.saves.step_done(seconds)
        self._unsettled = StepFacts(now, step, self.branch, seconds, fresh)
        if isinstance(fresh, dict):
            # Nothing has to be waited for.
            self.settle()

    def enter(self, phase: Phase) -> None:
        """Records the current part of the training loop."""
        self.phase = phase
        self.phase_since = time.time()

    def set_position(
        self, step: int, branch: int, not_finite: Sequence[NotFiniteMetric] = ()
    ) -> None:
        """Sets the position to that of a restored checkpoint.

        Args:
            step: Its step.
            branch: The branch of later saves.
            not_finite: The metrics that were not finite when it was saved.
        """
        self.settle()
        self.step = step
        self.branch = branch
        # NaN of the steps that were left behind must not mark the next checkpoints.
        self.reported = {n: value for n, value in self.reported.items() if math.isfinite(value)}
        self.reported |= {metric.name: float(metric.value) for metric in not_finite}
        self.not_finite.restored(not_finite)
        self.saves.restored(step)
        self.forget_steps()

    def forget_steps(self) -> None:
        """Clears the window of step times."""
        self.step_seconds.clear()
        self.input_seconds.clear()

    def take_finished_steps(self) -> list[StepFacts]:
        """Returns the steps since the last call, oldest first."""
        drained = []
        while self.finished_steps:
            drained.append(self.finished_steps.popleft())
        return drained

    @property
    def examples_per_second(self) -> float | None:
        """Throughput over all workers in the window; None if it is unknown."""
        seconds = median(self.step_seconds)
        if seconds is None or not self.examples_per_step or seconds <= 0:
            return None
        return self.examples_per_step / seconds


def median(values: deque[float]) -> float | None:
    """Returns the median of `values`; None if there are none."""
    now = values.copy()
    return statistics.median(now) if now else None


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
