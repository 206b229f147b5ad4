"""Input that commands asked to drop, before later steps."""

from __future__ import annotations

from collections.abc import Iterable

from tfckpt_trainer.rundir.records.checkpoint import PlannedSkip


class InputSkips:
    """What is to be dropped; equal on all workers, and part of each checkpoint.

    Attributes:
        planned: In the order in which it was asked for.
    """

    def __init__(self) -> None:
        self.planned: list[PlannedSkip] = []

    def plan(self, skip: PlannedSkip) -> None:
        """Has input dropped before the step that follows `skip.at_step`."""
        self.planned.append(skip)

    def forget(self, skip: PlannedSkip) -> None:
        """Drops no input for `skip`, if that has not been done."""
        self.planned = [planned for planned in self.planned if planned is not skip]

    def steps_left(self, step: int) -> int | None:
        """Returns how many more steps than `step` input is dropped after; None without any."""
        return min((max(1, skip.at_step - step) for skip in self.planned), default=None)

    def take_due(self, step: int) -> list[PlannedSkip]:
        """Returns what is to be dropped after so many steps, and forgets it."""
        if not self.planned:
            return []
        due = [skip for skip in self.planned if skip.at_step <= step]
        self.planned = [skip for skip in self.planned if skip.at_step > step]
        return due

    def restore(self, saved: Iterable[PlannedSkip]) -> None:
        """Takes what a checkpoint holds."""
        self.planned = list(saved)
