"""The dialogs of a stop: save first or not; end the processes, or cancel the job."""

from __future__ import annotations

from collections.abc import Iterable

from tfckpt_trainer.catalog.scan.alerts import SAVE_FAILED
from tfckpt_trainer.catalog.scan.lineage import unsaved_steps
from tfckpt_trainer.rundir.heartbeats.health import RunState
from tfckpt_trainer.rundir.records.command import CommandState
from tfckpt_trainer.rundir.records.worker import BEFORE_RUN
from tfckpt_tui.app.dialogs.dialog import Choice, Dialog
from tfckpt_tui.app.protocols import key_of
from tfckpt_tui.app.widgets.base.styled_text import Span
from tfckpt_tui.formats import units
from tfckpt_tui.formats.process_columns import HostProcess
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.services.batch.job_view import JobView
from tfckpt_tui.services.control.force_stop import FORCE_SECONDS, ForceStopPlan
from tfckpt_tui.services.control.stop_process import WHAT_IS_LOST


class StopDialog(Dialog[bool]):
    """Asks whether to save before the run stops."""

    caption = " stop the run? "

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns what stops, and what is lost without a save."""
        if self._starts:
            yield (("No worker trains yet. The supervisor ends the processes of the run.", ""),)
            return
        yield from self._when()
        for alert in self.snapshot.alerts:
            if alert.kind == SAVE_FAILED:
                yield (
                    (f"✗ {clean(alert.title)}. ", "bad"),
                    ("If the next one fails too, the run is not stopped.", ""),
                )
        yield from self._losses()

    def _losses(self) -> Iterable[Iterable[Span]]:
        """Returns what is lost without a save, and where the next launch goes on."""
        has_start = self.snapshot.start is not None
        lost = [*lost_steps_line(self.snapshot, "Without a save")]
        if lost:
            yield lost
        elif has_start:
            yield (("The newest checkpoint holds all steps so far.", "muted"),)
        goes_on = (
            "The next launch continues from the newest checkpoint."
            if has_start
            else "There is no checkpoint: without a save, the next launch starts at step 0."
        )
        yield ((goes_on, "muted"),)

    @property
    def _starts(self) -> bool:
        """Whether no worker trains yet, so that there is nothing to save."""
        chief = self.snapshot.chief
        return self.snapshot.silent is None and (chief is None or chief.status.phase in BEFORE_RUN)

    def _when(self) -> Iterable[Iterable[Span]]:
        """Returns when the run stops; not soon if a worker does not react."""
        snapshot = self.snapshot
        if not snapshot.hang:
            count = units.count(len(snapshot.workers), "worker")
            yield (
                (f"Training stops on {count} at step ", ""),
                (f"{snapshot.step or 0:,}", "strong"),
                (" or a few steps later.", ""),
            )
            return
        yield ((f"✗ {clean(snapshot.hang)} ", "bad"),)
        if snapshot.silent is None:
            yield (("Training stops after the next step, if one comes.", ""),)
        else:
            yield (("No worker can save before it goes on.", ""),)
        if snapshot.silent is not None and snapshot.supervisor is not None:
            yield (("If it does not, the supervisor ends all workers without a save.", ""),)
        else:
            yield (
                ("If it does not, end the processes with ", ""),
                (key_of(self, "force-stop"), "key"),
                (".", ""),
            )

    def choices(self) -> list[Choice[bool]]:
        """Returns cancel, stop with a save and stop without one."""
        if self._starts:
            return [Choice("n", "cancel", None), Choice("y", "stop", False, "warning")]
        return [
            Choice("n", "cancel", None),
            Choice("s", "save, then stop", True, "warning"),
            Choice("d", "stop without saving", False, "error"),
        ]


def lost_steps_line(snapshot: RunSnapshot, condition: str) -> Iterable[Span]:
    """Returns how many steps are lost on a condition, such as `Without a save`, if any are."""
    position = snapshot.position
    unsaved = unsaved_steps(snapshot.checkpoints, position) if position is not None else 0
    if unsaved:
        since = " since the newest checkpoint" if snapshot.start is not None else ""
        yield (f"{condition}, ", "")
        yield (units.count(unsaved, "step"), "warn")
        yield (f"{since} {units.noun(unsaved, 'is', 'are')} lost.", "")


class StopProcessDialog(Dialog[bool]):
    """Asks whether to end a process that does not use this library."""

    caption = " end the process? "

    def __init__(self, snapshot: RunSnapshot, process: HostProcess) -> None:
        """Creates the dialog.

        Args:
            snapshot: Of the run.
            process: The process.
        """
        super().__init__(snapshot)
        self._process = process

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns what gets the signal, and what is lost."""
        yield ((self._process.title, "strong"), (" gets SIGTERM.", ""))
        yield ((WHAT_IS_LOST, "warn"),)
        newest = max((c.saved_at for c in self.snapshot.checkpoints), default=0.0)
        if newest:
            ago = units.ago(max(0.0, self.snapshot.at - newest))
            yield ((f"The newest checkpoint was saved {ago}.", "muted"),)
        else:
            yield (("There is no checkpoint.", "warn"),)

    def choices(self) -> list[Choice[bool]]:
        """Returns cancel, and the signal."""
        return [Choice("n", "cancel", None), Choice("y", "send SIGTERM", True, "error")]


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
