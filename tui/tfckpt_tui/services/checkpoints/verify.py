"""Verifies checkpoints for the commands and the app, and stores or looks up the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress

from tfckpt_trainer.bundle.verify import Progress
from tfckpt_trainer.catalog.directory.checkpoint_files import CheckpointFiles, FileScanner
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint, CheckpointState
from tfckpt_trainer.catalog.directory.stored_results import (
    ResultStore,
    Verifications,
    holds_for,
)
from tfckpt_trainer.catalog.verification.verify_checkpoint import Verified, verify_checkpoint
from tfckpt_trainer.errors import TfckptError, UsageError, describe_error
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import VerificationRecord

_PASSING = frozenset({CheckpointState.WRITING, CheckpointState.TRASHED, CheckpointState.ORPHANED})


def can_be_verified(checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint has files to read, and none is being written or moved."""
    return checkpoint.state not in _PASSING


def cached_result(run: RunDirectory, name: str) -> Verified | None:
    """Returns the stored result of one checkpoint if it is still valid."""
    return cached_results(run, frozenset({name})).get(name)


def cached_results(run: RunDirectory, names: AbstractSet[str]) -> dict[str, Verified]:
    """Returns the stored results of checkpoints that are still valid, by checkpoint."""
    records, files = Verifications(run, names).look(), FileScanner(run.root, names).scan()
    results = {name: valid_result(run, records.get(name), files.get(name)) for name in names}
    return {name: result for name, result in results.items() if result is not None}


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
        only: AbstractSet[str] | None = None,
        finite: bool = False,
        threads: int = 1,
        into_run: bool = True,
    ) -> None:
        """Prepares it.

        Args:
            run: The run directory.
            only: The only checkpoints that are verified; by default all.
            finite: Whether to look for NaN and infinite values.
            threads: How many threads check tensors, unless it looks for such values.
            into_run: Whether the run directory may be written to if this library trains there.
        """
        self._run = run
        self._finite = finite
        self._threads = threads
        self._files = FileScanner(run.root, only)
        self._results = ResultStore(run, only, into_run=into_run)

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
        verified = self.read(name, on_progress=on_progress, cancelled=cancelled)
        return verified, self._store(verified) if verified is not None else ""

    def read(
        self,
        name: str,
        *,
        on_progress: Progress | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> Verified | None:
        """Verifies a checkpoint as `verify` does, and stores nothing."""
        return verify_checkpoint(
            self._run,
            name,
            on_progress=on_progress,
            cancelled=cancelled,
            finite=self._finite,
            threads=self._threads,
            files=self._files,
        )

    def store_together(self, results: Sequence[Verified]) -> str:
        """Stores results of many checkpoints; returns why one could not be stored, else empty."""
        records = [verified.record for verified in results if verified.unread is None]
        try:
            if records:
                self._results.store_together(records)
        except UsageError:
            # Of one, for example, whose name is not UTF-8: the others can be stored.
            return max(map(self._store, results))
        except (TfckptError, OSError) as error:
            return describe_error(error)
        return ""

    def _store(self, verified: Verified) -> str:
        """Stores a result if all files could be read; returns why it could not be stored."""
        try:
            if verified.unread is None:
                self._results.store(verified.record)
        except (TfckptError, OSError) as error:
            return describe_error(error)
        return ""

    def merge(self) -> None:
        """Merges what was stored together; otherwise a later command does."""
        with suppress(TfckptError, OSError):
            self._results.merge()
