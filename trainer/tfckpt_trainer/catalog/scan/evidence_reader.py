"""Reads the evidence from which the state of each checkpoint follows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from tfckpt_trainer.catalog.directory.checkpoint_files import (
    CheckpointFiles,
    FileScanner,
    written_at,
)
from tfckpt_trainer.catalog.directory.history import Records
from tfckpt_trainer.catalog.directory.stored_results import ActionResults, Verifications
from tfckpt_trainer.catalog.directory.trash import TrashReader
from tfckpt_trainer.catalog.scan.states import NO_RESULTS, CheckpointEvidence
from tfckpt_trainer.rundir.paths import RunDirectory


class EvidenceReader:
    """Collects files, records, moves and results; what did not change is not read twice.

    Attributes:
        files: The files of checkpoints in the run directory.
        records: The records of checkpoints.
    """

    def __init__(
        self,
        run: RunDirectory,
        only: AbstractSet[str] | None = None,
        entries: AbstractSet[str] | None = None,
    ) -> None:
        """Prepares the reader.

        Args:
            run: The run directory.
            only: The only checkpoints to read about; by default all.
            entries: The names of their files, if these are known: the directory is not listed.
        """
        self._run = run
        self.files = FileScanner(run.root, only, entries)
        self.records = Records(run, only)
        self._aside = FileScanner(run.saving_directory, only)
        self._trash = TrashReader(run)
        self._verifications = Verifications(run, only)
        self._results = ActionResults(run, only)
        self._in_transit: frozenset[str] = frozenset()
        self._verified: set[str] = set()
        self._measured: set[str] = set()
        self._more: set[str] = set()
        self._trainer_gone: bool | None = None

    @property
    def deferred(self) -> int:
        """How many records and results later refreshes have to read."""
        return self.records.deferred + self._results.deferred

    @property
    def damaged_prunes(self) -> Mapping[str, str]:
        """What is wrong with each prune in the trash that cannot be brought back, by its id."""
        return self._trash.damaged

    def refresh(
        self, newest: list[str], passing: Iterable[str], at_most: int | None = None
    ) -> set[str]:
        """Looks for changes; returns the names of checkpoints whose evidence may have changed.

        Args:
            newest: Names of checkpoints whose files are checked even in unchanged directories.
            passing: Names of checkpoints whose state changes with time; they are checked too.
            at_most: How many records, and results, to read; later refreshes read the others.

        Raises:
            OSError: The directory cannot be read.
        """
        self._trainer_gone = None
        self._trash.watch()
        # A commit moves files out of `saving/`. Scanned in this order, they are not missed.
        changed = set(self._aside.refresh(newest, missing_ok=True))
        changed |= self.files.refresh([*newest, *passing])
        in_transit = self._trash.in_transit()
        changed |= in_transit ^ self._in_transit
        self._in_transit = in_transit
        changed |= self.records.refresh(at_most, self.modified_at)
        changed |= self._results.refresh(at_most, self.modified_at)
        changed |= self._verifications.refresh()
        self._verified, self._measured = self._verifications.names, self._results.names
        self._more = self._names_of_more()
        return changed

    def read(self, name: str, *, is_listed: bool) -> CheckpointEvidence | None:
        """Returns the evidence on checkpoint `name` as of the last refresh; None if it is gone.

        Args:
            name: Name of the checkpoint.
            is_listed: Whether the state file lists it.
        """
        files = self.files.files.get(name)
        record = self.records.found.get(name)
        if files is not None and files.has_index and not (name in self._more or files.writer):
            # The usual case first: this runs for every checkpoint of a directory.
            return CheckpointEvidence(files, None, record)
        aside = self._aside.files.get(name)
        if files is None:
            if aside is None:
                return None
            files = CheckpointFiles(name)
        return CheckpointEvidence(
            files=files,
            aside=aside,
            record=record,
            has_bad_record=name in self.records.damaged,
            # Needed only without an index; the list changes with each save.
            listed=not files.has_index and is_listed,
            in_transit=name in self._in_transit,
            trainer_gone=aside is not None and not files.has_index and self._is_trainer_gone(),
            writer_gone=_is_writer_gone(files.writer) if files.writer else None,
            verification=self._verifications.of(name) if name in self._verified else None,
            results=self._results.of(files) if name in self._measured else NO_RESULTS,
        )

    def _names_of_more(self) -> set[str]:
        """Returns the checkpoints of which more than their files and their record is known."""
        return set().union(
            self._aside.files,
            self.records.damaged,
            self._in_transit,
            self._verified,
            self._measured,
        )

    def modified_at(self, name: str) -> float:
        """Returns when checkpoint `name` was written, by its files, in seconds since the epoch."""
        return written_at(self.files.files.get(name), self._aside.files.get(name))

    def _is_trainer_gone(self) -> bool:
        """Asks once per refresh: it takes some file reads."""
        if self._trainer_gone is None:
            # Imported here, as what asks about a mark: few directories have an unfinished save.
            from tfckpt_trainer.catalog.scan.foreign_writers import is_trainer_gone

            self._trainer_gone = is_trainer_gone(self._run)
        return self._trainer_gone


def _is_writer_gone(mark: str) -> bool | None:
    from tfckpt_trainer.rundir.heartbeats.writer_marks import is_writer_gone

    return is_writer_gone(mark)
