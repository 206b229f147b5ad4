"""Verifies checkpoints for the commands and the app, and stores or looks up the results."""

from __future__ import annotations

from collections.abc import Callable

from tfckpt_trainer.bundle.verify import Progress
from tfckpt_trainer.catalog.directory.checkpoint_files import CheckpointFiles, FileScanner
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint, CheckpointState
from tfckpt_trainer.catalog.directory.stored_results import (
    ResultStore,
    Verifications,
    holds_for,
)
from tfckpt_trainer.catalog.verification.verify_checkpoint import Verified, verify_checkpoint
from tfckpt_trainer.errors import TfckptError, describe_error
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import VerificationRecord


def can_be_verified(checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint has files to read, and none is being written or moved."""
    passing = {CheckpointState.WRITING, CheckpointState.TRASHED, CheckpointState.ORPHANED}
    return checkpoint.state not in passing


def cached_result(run: RunDirectory, name: str) -> Verified | None:
    """Returns the stored result of one checkpoint if it is still valid."""
    only = frozenset({name})
    record = Verifications(run, only).look().get(name)
    return valid_result(run, record, FileScanner(run.root, only).scan().get(name))


def valid_result(
    run: RunDirectory, record: VerificationRecord | None, files: CheckpointFiles | None
) -> Verified | None:
    """Returns a stored result if it is still valid.

    Args:
        run: The run directory.
        record: The stored result, if there is one.
        files: The files that the checkpoint has now.
    """
    if record is None or files is None or not holds_for(record, files.facts, run.root):
        return None
    return Verified(record, remembered=True)


class Verifier:
    """Verifies checkpoints of one run, and stores the results."""

    def __init__(
        self,
        run: RunDirectory,
        *,
        finite: bool = False,
        into_run: bool = True,
        files: FileScanner | None = None,
    ) -> None:
        """Prepares it.

        Args:
            run: The run directory.
            finite: Whether to look for NaN and infinite values.
            into_run: Whether the run directory may be written to if this library trains there.
            files: A scanner of the run directory, to share between several checkpoints.
        """
        self._run = run
        self._finite = finite
        self._files = files
        self._results = ResultStore(run, into_run=into_run)

    def verify(
        self,
        name: str,
        *,
        on_progress: Progress | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> tuple[Verified | None, str]:
        """Verifies a checkpoint, and stores the result if all files could be read.

        Args:
            name: The checkpoint.
            on_progress: Called with bytes done and bytes in total, every few megabytes.
            cancelled: Called as often; True ends the verification.

        Returns:
            The result, None if it was cancelled; and why it could not be stored, else empty.

        Raises:
            UsageError: There is no such checkpoint.
            RefusedError: It is being written.
        """
        verified = verify_checkpoint(
            self._run,
            name,
            on_progress=on_progress,
            cancelled=cancelled,
            finite=self._finite,
            files=self._files,
        )
        if verified is None or verified.unread is not None:
            return verified, ""
        try:
            self._results.store(verified.record)
        except (TfckptError, OSError) as error:
            return verified, describe_error(error)
        return verified, ""
