"""Whether checkpoints are sound: read now, or remembered where no file changed since."""

from __future__ import annotations

from collections.abc import Callable

from tfckpt_trainer.bundle.verify import Progress
from tfckpt_trainer.catalog.scan.checkpoint_files import FileScanner, scan_files
from tfckpt_trainer.catalog.scan.checkpoints import Checkpoint, CheckpointState
from tfckpt_trainer.catalog.verification.remembered import Verifications, holds_for, remember
from tfckpt_trainer.catalog.verification.verify_checkpoint import Verified, verify_checkpoint
from tfckpt_trainer.errors import TfckptError, in_words
from tfckpt_trainer.rundir.paths import RunDirectory


def can_be_verified(checkpoint: Checkpoint) -> bool:
    """Whether there is something to read that nobody is writing or moving."""
    passing = {CheckpointState.WRITING, CheckpointState.TRASHED, CheckpointState.ORPHANED}
    return checkpoint.state not in passing


class Memory:
    """What verifying found before of the checkpoints of a run, as it was when this was made."""

    def __init__(self, run: RunDirectory) -> None:
        self._records = Verifications(run).look()
        self._files = scan_files(run.root)
        self._root = run.root

    def of(self, name: str) -> Verified | None:
        """Returns what was found of checkpoint `name`, if no file of it changed since."""
        record, files = self._records.get(name), self._files.get(name)
        if record is None or files is None or not holds_for(record, files.facts, self._root):
            return None
        return Verified(record, remembered=True)


def remembered(run: RunDirectory, name: str) -> Verified | None:
    """Returns what verifying found before, if no file of the checkpoint changed since."""
    return Memory(run).of(name)


def verify_and_remember(
    run: RunDirectory,
    name: str,
    *,
    on_progress: Progress | None = None,
    cancelled: Callable[[], bool] | None = None,
    finite: bool = False,
    into_run: bool = True,
    files: FileScanner | None = None,
) -> tuple[Verified | None, str]:
    """Verifies a checkpoint and writes down what was found, if all of it could be read.

    Args:
        run: The run directory.
        name: The checkpoint.
        on_progress: Told bytes done and bytes in all, every few megabytes.
        cancelled: Asked as often.
        finite: Whether to look for elements that are not a number or infinite.
        into_run: Whether it may be written into the run directory, if that is ours.
        files: Looks at the run directory; kept by whoever verifies many.

    Returns:
        What was found, None if it was cancelled; and why it could not be written down, if so.

    Raises:
        UsageError: There is no such checkpoint.
        RefusedError: It is being written.
    """
    found = verify_checkpoint(
        run, name, on_progress=on_progress, cancelled=cancelled, finite=finite, files=files
    )
    if found is None or found.unread is not None:
        return found, ""
    try:
        remember(run, found.record, into_run=into_run)
    except (TfckptError, OSError) as error:
        return found, in_words(error)
    return found, ""
