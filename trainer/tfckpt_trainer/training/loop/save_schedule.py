"""When a run saves without being asked: every N steps, every N seconds, or on improvement."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Literal

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.training.checkpoint.state import Position
from tfckpt_trainer.training.telemetry.step_metrics import StepMetrics
from tfckpt_trainer.training.worker_group import WorkerGroup


class Improvement:
    """Detects a new best value of one metric, in agreement with all workers.

    The best value so far is part of the position: it is saved and restored with a checkpoint.

    Attributes:
        metric: Name of the metric.
    """

    def __init__(self, rule: str, group: WorkerGroup, position: Position) -> None:
        """Parses the rule `METRIC:min` or `METRIC:max`.

        Raises:
            UsageError: The rule has another form.
        """
        self.metric, _, mode = (part.strip() for part in rule.rpartition(":"))
        if not self.metric or mode not in {"min", "max"}:
            raise UsageError(
                f"save_on_improvement is {rule!r}; expected METRIC:min or METRIC:max, such as "
                "validation_loss:min."
            )
        self._mode: Literal["min", "max"] = "min" if mode == "min" else "max"
        self._group = group
        self._position = position

    def trigger(self, reported: Mapping[str, float], *, is_reduced: bool) -> str:
        """Returns the reason for a save if the metric has a new best value; empty if not.

        Args:
            reported: Metrics of this step, with the same names on all workers.
            is_reduced: Whether the values come from an all-reduce, so that they are identical on
                all workers. Otherwise the chief's value decides.
        """
        value = reported.get(self.metric)
        if value is None:
            return ""
        better = self._is_better(value)
        if not is_reduced:
            better = self._group.any(better and self._group.is_chief)
        if not better:
            return ""
        self._position.best[self.metric] = value
        return f"{self.metric} improved to {value:.6g}"

    def _is_better(self, value: float) -> bool:
        if not math.isfinite(value):
            return False
        best = self._position.best.get(self.metric)
        if best is None:
            return True
        return value < best if self._mode == "min" else value > best


def steps_to_multiple(step: int, every: int | None) -> int | None:
    """Returns how many more steps than `step` the next multiple of `every` is; None without."""
    return every and every - step % every


class SaveSchedule:
    """Tells after each step whether a save is due.

    Steps and metrics are equal on all workers, so each worker decides by itself. Clocks differ,
    so the chief decides by the clock and tells the others.
    """

    def __init__(
        self,
        every_steps: int | None = None,
        every_seconds: float | None = None,
        improvement: Improvement | None = None,
    ) -> None:
        self._every_steps = every_steps
        self._every_seconds = every_seconds
        self._improvement = improvement
        self._next_at = self._next_time()

    def steps_left(self, step: int) -> int | None:
        """Returns how many more steps than `step` a save by steps is due after; None if never."""
        return steps_to_multiple(step, self._every_steps)

    def decides_after(self, step: int, steps: int) -> bool:
        """Whether `trigger_after` needs the metrics of this step or makes it save."""
        return self._is_due(step, steps) or self._improvement is not None

    def trigger_after(self, step: int, steps: int, metrics: StepMetrics) -> str:
        """Returns why a save is due after a call, by steps or metrics; empty if none is.

        Args:
            step: Steps done.
            steps: How many of them the call ran.
            metrics: What its last step reported.
        """
        trigger = ""
        if self._improvement is not None:
            reduced = self._improvement.metric in metrics.reduced
            trigger = self._improvement.trigger(metrics.newest, is_reduced=reduced)
        if self._is_due(step, steps):
            trigger += f"{', ' * bool(trigger)}every {self._every_steps} steps"
        return trigger

    def _is_due(self, step: int, steps: int) -> bool:
        left = self.steps_left(step - steps)
        return left is not None and left <= steps

    @property
    def timed_trigger(self) -> str:
        """Why a save is due by the clock; empty if none is."""
        if self._next_at is None or time.monotonic() < self._next_at:
            return ""
        return f"every {self._every_seconds:g} s"

    def restart_clock(self) -> None:
        """Measures `every_seconds` from now."""
        self._next_at = self._next_time()

    def _next_time(self) -> float | None:
        return None if self._every_seconds is None else time.monotonic() + self._every_seconds
