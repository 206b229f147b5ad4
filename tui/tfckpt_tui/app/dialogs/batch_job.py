"""The dialogs of a batch job: cancel it while it waits, and submit it again."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from tfckpt_trainer.errors import DamagedFileError, NotTrustedError
from tfckpt_trainer.rundir.storage.files import read_bounded
from tfckpt_tui.app.dialogs.dialog import Choice, Dialog
from tfckpt_tui.app.protocols import key_of
from tfckpt_tui.app.widgets.base.styled_text import Span
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.services.batch.job_view import JobView
from tfckpt_tui.services.control.job_control import launch_to_slurm

_MOST_OPTIONS = 10
_MOST_BYTES = 1 << 20


class CancelJobDialog(Dialog[bool]):
    """Asks whether to cancel the batch job of the run, which waits in the queue."""

    caption = " cancel the job? "

    def __init__(self, snapshot: RunSnapshot, job: JobView) -> None:
        """Creates the dialog.

        Args:
            snapshot: Of the run.
            job: Its batch job.
        """
        super().__init__(snapshot)
        self._job = job

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns which job it is, and what is lost."""
        job = self._job
        yield (
            ("Batch job ", ""),
            (clean(job.record.id), "strong"),
            (" waits in the queue", ""),
            (f": {job.reason}." if job.reason else ".", ""),
        )
        if job.explanation:
            yield ((f"{job.explanation[0].upper()}{job.explanation[1:]}.", "muted"),)
        yield (("Only its place in the queue is lost. All checkpoints are kept.", ""),)
        again = key_of(self, "launch")
        yield ((again, "key"), (" submits the job again with the same options.", "muted"))

    def refusal(self) -> str:
        """Returns that the job has started, if it has since the dialog was opened."""
        job = self.snapshot.job
        if job is not None and job.is_waiting and job.record.id == self._job.record.id:
            return ""
        return "The job does not wait in the queue any more."

    def choices(self) -> list[Choice[bool]]:
        """Returns keep and cancel."""
        return [Choice("n", "keep it", None), Choice("y", "cancel the job", True, "warning")]


class SubmitJobDialog(Dialog[bool]):
    """Asks whether to submit the kept batch script of the run again."""

    caption = " submit the job again? "

    def __init__(
        self, snapshot: RunSnapshot, job: JobView | None, script: Path, start: str | None = None
    ) -> None:
        """Creates the dialog.

        Args:
            snapshot: Of the run.
            job: Its last batch job; None if Slurm has taken none.
            script: The batch script of the run.
            start: The checkpoint to start from; by default the one that a start continues from.
        """
        super().__init__(snapshot)
        self._start = start
        self._job = job
        self._script = script
        self._options, self._problem = _options(script)
        if job is None:
            self.caption = " submit the job? "

    def text(self) -> Iterable[Iterable[Span]]:
        """Returns what is submitted, and where training continues."""
        head = self.snapshot.head
        name = self._start or (head.name if head is not None else None)
        start = f"continues from {clean(name)}" if name is not None else "starts at step 0"
        if self._job is None:
            yield (("No job of the last launch is known. Submits its batch script to Slurm.", ""),)
        else:
            job = (clean(self._job.record.id), "strong")
            yield (("Submits the batch script of job ", ""), job, (" to Slurm again.", ""))
        yield ((f"Training {start}.", ""),)
        yield ((clean(str(self._script)), "muted"),)
        for option in self._options[:_MOST_OPTIONS]:
            yield ((f"  {option}", "value"),)
        more = len(self._options) - _MOST_OPTIONS
        if more > 0:
            yield ((f"  and {units.count(more, 'more option')}", "muted"),)

    def refusal(self) -> str:
        """Returns why the script cannot be submitted."""
        if self._script.is_file():
            return self._problem
        return f"The batch script is missing. {launch_to_slurm(self.snapshot.path)}"

    def choices(self) -> list[Choice[bool]]:
        """Returns cancel and submit."""
        return [Choice("n", "cancel", None), Choice("y", "submit", True, "primary")]


def _options(script: Path) -> tuple[list[str], str]:
    """Returns the options of Slurm in a batch script, and why Slurm must not run it."""
    try:
        text = read_bounded(script, _MOST_BYTES, written_by=os.geteuid()).decode(errors="replace")
    except NotTrustedError as error:
        return [], clean(str(error))
    except (OSError, DamagedFileError):
        return [], ""
    marker = "#SBATCH "
    options = [
        clean(line.removeprefix(marker).strip())
        for line in text.splitlines()
        if line.startswith(marker)
    ]
    return options, ""
