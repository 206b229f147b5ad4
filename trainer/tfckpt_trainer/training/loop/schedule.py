"""When a run saves by itself, as far as steps and metrics decide it."""

from __future__ import annotations

from dataclasses import dataclass

from tfckpt_trainer.training.loop.improvement import Improvement
from tfckpt_trainer.training.telemetry.step_metrics import StepMetrics


@dataclass(frozen=True)
class Schedule:
    """Asked after each step, on all workers together.

    Attributes:
        every_steps: Save after every so many steps.
        improvement: Save when a metric improves.
        waits_for_room: Whether a run pauses where a save does not fit on the disk.
    """

    every_steps: int | None
    improvement: Improvement | None
    waits_for_room: bool

    def due(self, step: int, metrics: StepMetrics) -> str:
        """Returns why a save is due after this step; empty if none is."""
        triggers = []
        if self.improvement is not None:
            reduced = self.improvement.metric in metrics.reduced
            triggers.append(self.improvement.trigger(metrics.newest, is_reduced=reduced))
        if self.every_steps and step % self.every_steps == 0:
            triggers.append(f"every {self.every_steps} steps")
        return ", ".join(filter(None, triggers))
