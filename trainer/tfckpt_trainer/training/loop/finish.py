"""Records that a run is finished, and says so if it is started again."""

from __future__ import annotations

import sys

from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.run import Finish
from tfckpt_trainer.training.checkpoint.restores.restore_manager import RestoreManager
from tfckpt_trainer.training.telemetry.telemetry import Telemetry

DATASET_ENDED = "the dataset ended"
"""Why a run is finished whose dataset ended."""


class FinishedRun:
    """Knows whether training had finished when the run was opened. All workers call it together."""

    def __init__(self, run: RunDirectory, telemetry: Telemetry, restores: RestoreManager) -> None:
        self._run = run
        self._position = restores.position
        self._telemetry = telemetry
        self._restores = restores
        self._holds = False

    def opened(self, finish: Finish | None, total_steps: int | None) -> str:
        """Takes where the run starts; returns why it is finished there, or nothing.

        Args:
            finish: Why training ended at the restored checkpoint, if it did.
            total_steps: Steps of the whole training now; None without an end.
        """
        self._holds = finish is not None and finish.holds_for(total_steps)
        return finish.reason if finish is not None and self._holds else ""

    def closed(self, reason: str, total_steps: int | None, *, has_trained: bool) -> str:
        """Records the end of a finished run.

        Args:
            reason: Why it ended, as a clause; empty if all its steps are done.
            total_steps: Steps of the whole training; None without an end.
            has_trained: Whether this process has done a step.

        Returns:
            Why nothing was trained, as sentences; empty if something was.
        """
        step = self._position.step
        if not self._holds and reason:
            self._restores.record_finish(
                Finish(
                    reason=reason,
                    total_steps=total_steps,
                    by_dataset=reason == DATASET_ENDED,
                )
            )
        if step and not has_trained:
            message = f"Nothing to train: {self._why(reason, total_steps)}"
            if self._telemetry.event_log.is_chief:
                sys.stderr.write(f"{message}\n")
            self._telemetry.note(EventKind.FINISH, message, step=step)
            return message
        said = f": {reason}" if reason else ""
        self._telemetry.note(EventKind.FINISH, f"Finished after step {step:,}{said}.", step=step)
        return ""

    def _why(self, reason: str, total_steps: int | None) -> str:
        if not reason:
            steps = f"all {total_steps} steps are done" if total_steps else "all steps are done"
            return f"{steps}. To train on, raise total_steps (epochs in fit)."
        ended = f"{reason}, after step {self._position.step:,}"
        if not self._holds:
            return f"{ended}. To train on, use dataset.repeat() with total_steps."
        place, name = self._run.shell_word, self._position.parent
        return (
            f"{ended}. To train on, raise total_steps (epochs in fit), or use "
            f"`tfckpt-tui restore {place} --name {name} --next-start` and start again."
        )
