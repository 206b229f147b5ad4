"""Asks whether to cancel the batch job of a run, or to end its processes."""

from __future__ import annotations

from collections.abc import Iterable

from tfckpt_trainer.rundir.heartbeats.health import RunState
from tfckpt_trainer.rundir.records.command import CommandState
from tfckpt_tui.app.dialogs.dialog import Choice, Dialog
from tfckpt_tui.app.dialogs.stop import lost_steps_line
from tfckpt_tui.app.protocols import key_of
from tfckpt_tui.app.widgets.base.styled_text import Span
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.services.batch.job_view import JobView
from tfckpt_tui.services.control.force_stop import FORCE_SECONDS, ForceStopPlan

_NAMED = 8
_FRESH_SECONDS = 10.0


class ForceStopDialog(Dialog[bool]):
    """Asks whether to stop a run by force, and names what is ended."""

    caption = " end the processes? "

    def __init__(self, snapshot: RunSnapshot, plan: ForceStopPlan) -> None:
        """Creates the dialog.

        Args:
            snapshot: Of the run.
            plan: What is ended.
        """
        super().__init__(snapshot)
        self._plan = plan
        if plan.job is not None:
            self.caption = " cancel the job? "

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns the job or the processes, and what happens to them."""
        job = self._plan.job
        yield from self._processes() if job is None else _job(job)
        lost = [*lost_steps_line(self.snapshot, "If they cannot save")]
        if lost:
            yield lost
        if self._takes_commands:
            yield (
                ("The trainer still answers: ", "muted"),
                (key_of(self, "stop"), "key"),
                (" stops it without force.", "muted"),
            )

    @property
    def _takes_commands(self) -> bool:
        """Whether the trainer acts on a command: not if a worker hangs, or one just expired."""
        snapshot, chief = self.snapshot, self.snapshot.chief
        expired = any(command.state is CommandState.EXPIRED for command in snapshot.finished[-1:])
        is_fresh = chief is not None and chief.age < _FRESH_SECONDS
        hangs = snapshot.state is RunState.DEGRADED
        return snapshot.trainer_answers and is_fresh and not (expired or hangs)

    def _processes(self) -> Iterable[Iterable[Span]]:
        processes = self._plan.processes
        yield (("These processes of the run are alive:", ""),)
        for process in processes[:_NAMED]:
            yield (("  ", ""), (clean(process), "strong"))
        if len(processes) > _NAMED:
            yield ((f"  and {len(processes) - _NAMED:,} more", "muted"),)
        yield ()
        yield (
            ("They are asked to save and exit. After ", ""),
            (units.duration(FORCE_SECONDS), "warn"),
            (", those that still run are killed.", ""),
        )

    def choices(self) -> list[Choice[bool]]:
        """Returns that nothing is done, and what is."""
        if self._plan.job is not None:
            return [Choice("n", "keep it", None), Choice("y", "cancel the job", True, "error")]
        return [Choice("n", "cancel", None), Choice("y", "end the processes", True, "error")]


def _job(job: JobView) -> Iterable[Iterable[Span]]:
    if job.report is None:
        yield (
            ("Batch job ", ""),
            (clean(job.record.id), "strong"),
            (f" may wait or run. Slurm cannot be asked: {job.problem.rstrip('.')}.", ""),
        )
        yield (("If the job can be cancelled, Slurm ends its processes. They may save first.", ""),)
        return
    nodes = f" on {job.node_list}" if job.node_list and not job.is_waiting else ""
    does = "waits in the queue" if job.is_waiting else f"is active{nodes}"
    yield (("Batch job ", ""), (clean(job.record.id), "strong"), (f" {does}.", ""))
    yield (("Slurm cancels it, and ends its processes. They may save first.", ""),)
