"""Counts failed saves, and measures how much training is in no checkpoint."""

from __future__ import annotations

import time

from tfckpt_trainer.rundir.records.worker import SaveStatus

LONGEST_PROBLEM = 600
"""Characters kept of a problem. A heartbeat on a full disk must fit into the blocks it has."""


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

    def saved(self, step: int) -> None:
        """Records that the save which began last succeeded."""
        self._failed, self._problem = 0, ""
        self.saved_at = self.unsaved_since = time.time()
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
