"""What a worker knows of its own progress, kept by the loop and read by the heartbeat."""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from tfckpt_trainer.rundir.records.worker import Activity, Ending, Phase

WINDOW_STEPS = 100
"""Steps over which medians and percentiles are taken."""

MAX_PENDING_STEPS = 10_000
"""Steps that may wait to be drawn; older ones give way where nobody draws them."""


@dataclass(frozen=True)
class StepFacts:
    """One step for the curves."""

    at: float
    step: int
    branch: int
    seconds: float
    metrics: Mapping[str, float]


@dataclass
class StepMetrics:
    """Plain attributes: the loop sets them at no cost, the heartbeat reads them.

    Attributes:
        metrics: The newest value of every metric ever reported.
        fresh: What was reported in the present step.
        newest: What was reported in the last whole step.
        reduced: Names of metrics whose values come from an all-reduce.
        phase: Where in its loop the worker is, and since when.
        background: What goes on beside training, in words.
    """

    activity: Activity = Activity.STARTING
    detail: str = ""
    ending: Ending | None = None
    step: int = 0
    branch: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    fresh: dict[str, float] = field(default_factory=dict)
    newest: Mapping[str, float] = field(default_factory=dict)
    reduced: frozenset[str] = frozenset()
    background: str = ""
    phase: Phase | None = None
    phase_since: float | None = None
    examples_per_step: int | None = None
    last_step_at: float | None = None
    step_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW_STEPS))
    input_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW_STEPS))
    curve: deque[StepFacts] = field(default_factory=lambda: deque(maxlen=MAX_PENDING_STEPS))

    def step_done(self, step: int, seconds: float, input_seconds: float) -> None:
        """Notes the end of a step that took `seconds`, of which it waited `input_seconds`."""
        now = time.time()
        fresh, self.fresh = self.fresh, {}
        self.newest = fresh
        self.step = step
        self.metrics = {**self.metrics, **fresh}
        self.last_step_at = now
        self.step_seconds.append(seconds)
        self.input_seconds.append(input_seconds)
        self.curve.append(StepFacts(now, step, self.branch, seconds, fresh))

    def enter(self, phase: Phase) -> None:
        """Notes where in its loop the worker is."""
        self.phase = phase
        self.phase_since = time.time()

    def arrive(self, step: int, branch: int) -> None:
        """Takes up the position of a checkpoint that was restored."""
        self.step = step
        self.branch = branch
        self.forget_steps()

    def forget_steps(self) -> None:
        """Starts a new window: what was measured before belongs to another part of the run."""
        self.step_seconds.clear()
        self.input_seconds.clear()

    def take_finished_steps(self) -> list[StepFacts]:
        """Returns the steps since the last call, oldest first."""
        drained = []
        while self.curve:
            drained.append(self.curve.popleft())
        return drained

    @property
    def examples_per_second(self) -> float | None:
        """Over all workers, in the window; None where it cannot be known."""
        seconds = median(self.step_seconds)
        if seconds is None or not self.examples_per_step or seconds <= 0:
            return None
        return self.examples_per_step / seconds


def median(values: deque[float]) -> float | None:
    """Returns the median of what is in `values` now, None where that is nothing."""
    now = values.copy()
    return statistics.median(now) if now else None


def percentile_95(values: deque[float]) -> float | None:
    """Returns the 95th percentile (nearest rank) of what is in `values` now."""
    now = sorted(values.copy())
    return now[math.ceil(0.95 * len(now)) - 1] if now else None


def finite(metrics: Mapping[str, float]) -> dict[str, float | None]:
    """Returns metrics as JSON can carry them: None stands for not-a-number and infinity."""
    return {name: value if math.isfinite(value) else None for name, value in metrics.items()}
