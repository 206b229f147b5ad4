"""Verifies checkpoints for the commands and the app, and stores or looks up the results."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet

from tfckpt_trainer.bundle.verify import Progress
from tfckpt_trainer.catalog.directory.checkpoint_files import FileScanner
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint, CheckpointState
from tfckpt_trainer.catalog.directory.stored_results import (
    Verifications,
    holds_for,
    store_result,
)
from tfckpt_trainer.catalog.verification.verify_checkpoint import Verified, verify_checkpoint
from tfckpt_trainer.errors import TfckptError, describe_error
from tfckpt_trainer.rundir.paths import RunDirectory


def can_be_verified(checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint has files to read, and none is being written or moved."""
    passing = {CheckpointState.WRITING, CheckpointState.TRASHED, CheckpointState.ORPHANED}
    return checkpoint.state not in passing


class CachedResults:
    """Cached verification results, read when this object was created."""

    def __init__(self, run: RunDirectory, only: AbstractSet[str] | None = None) -> None:
        self._records = Verifications(run, only).look()
        self._files = FileScanner(run.root, only).scan()
        self._root = run.root

    def of(self, name: str) -> Verified | None:
        """Returns the result of checkpoint `name` if it is still valid."""
        record, files = self._records.get(name), self._files.get(name)
        if record is None or files is None or not holds_for(record, files.facts, self._root):
            return None
        return Verified(record, remembered=True)


def cached_result(run: RunDirectory, name: str) -> Verified | None:
    """Returns the cached result of one checkpoint if it is still valid."""
    return CachedResults(run, frozenset({name})).of(name)


def verify_and_store(
    run: RunDirectory,
    name: str,
    *,
    on_progress: Progress | None = None,
    cancelled: Callable[[], bool] | None = None,
    finite: bool = False,
    into_run: bool = True,
    files: FileScanner | None = None,
) -> tuple[Verified | None, str]:
    """Verifies a checkpoint, and stores the result if all files could be read.

    Args:
        run: The run directory.
        name: The checkpoint.
        on_progress: Called with bytes done and bytes in total, every few megabytes.
        cancelled: Called as often; True ends the verification.
        finite: Whether to look for NaN and infinite values.
        into_run: Whether the run directory may be written to if this library trains there.
        files: A scanner of the run directory, to share between several checkpoints.

    Returns:
        The result, None if it was cancelled; and why it could not be stored, else empty.

    Raises:
        UsageError: There is no such checkpoint.
        RefusedError: It is being written.
    """
    verified = verify_checkpoint(
        run, name, on_progress=on_progress, cancelled=cancelled, finite=finite, files=files
    )
    if verified is None or verified.unread is not None:
        return verified, ""
    try:
        store_result(run, verified.record, into_run=into_run)
    except (TfckptError, OSError) as error:
        return verified, describe_error(error)
    return verified, ""
