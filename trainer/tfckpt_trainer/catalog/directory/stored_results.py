"""Stores verification results, which stay valid as long as no file of the checkpoint changes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from pathlib import Path

from msgspec.structs import replace

from tfckpt_trainer.catalog.directory.checkpoint_files import FileFact, identity_of
from tfckpt_trainer.catalog.directory.document_set import Documents
from tfckpt_trainer.errors import DamagedFileError, UsageError
from tfckpt_trainer.rundir.paths import RunDirectory, is_plain_name
from tfckpt_trainer.rundir.records.checkpoint import VerificationRecord
from tfckpt_trainer.rundir.storage.documents import load_if_exists, store
from tfckpt_trainer.rundir.storage.files import make_directory
from tfckpt_trainer.user_directories import NO_HOME, cache_directory


class Verifications:
    """The stored verification results of a run; a file is read again only after it was replaced.

    Results are in the run directory if this library trains there, otherwise in the user's cache.
    So a directory of another program is never written to.
    """

    def __init__(self, run: RunDirectory, only: AbstractSet[str] | None = None) -> None:
        self._places = tuple(
            Documents(place, VerificationRecord, only) for place in result_directories(run)
        )

    def look(self) -> dict[str, VerificationRecord]:
        """Refreshes, and returns the newest result of each checkpoint; damaged ones are left out.

        Raises:
            OSError: A directory cannot be read.
        """
        self.refresh()
        names = {name for place in self._places for name in place.found}
        return {name: record for name in names if (record := self.of(name)) is not None}

    def refresh(self) -> set[str]:
        """Reads new results; returns the checkpoints whose results changed.

        Raises:
            OSError: A directory cannot be read.
        """
        return set().union(*[place.refresh() for place in self._places])

    def of(self, name: str) -> VerificationRecord | None:
        """Returns the newest result of checkpoint `name`, as of the last refresh."""
        records = [place.found[name] for place in self._places if name in place.found]
        return max(records, key=lambda record: record.verified_at, default=None)


def result_directories(run: RunDirectory) -> tuple[Path, ...]:
    """Returns the directories in which verification results of a run are stored."""
    cache = _cache_of(run)
    return (run.verifications_directory, *([cache] if cache is not None else []))


def holds_for(record: VerificationRecord, files: Iterable[FileFact], root: Path) -> bool:
    """Whether a result is still valid: its files exist and none changed.

    The `.meta` graph file of a TensorFlow 1 checkpoint is not verified and does not count.

    Args:
        record: The result.
        files: The files that the checkpoint has now.
        root: The run directory, for the workers' own files and the record.
    """
    verified = {name: who for name, who in record.files.items() if not name.endswith(".meta")}
    there = {fact.name: fact.identity for fact in files if not fact.name.endswith(".meta")}
    own = {name: who for name, who in verified.items() if name not in there}
    return (
        verified.keys() >= there.keys()
        and all(verified[name] == who for name, who in there.items())
        and all(_is_inside(name) and identity_of(root / name) == who for name, who in own.items())
    )


def _is_inside(name: str) -> bool:
    return all(is_plain_name(part) for part in name.split("/"))


def store_result(run: RunDirectory, record: VerificationRecord, *, into_run: bool = True) -> None:
    """Stores the result of a verification.

    Args:
        run: The run directory.
        record: The result.
        into_run: Whether the run directory may be written to if this library trains there.

    Raises:
        OSError: No directory can be written to.
        UsageError: A name in it is not UTF-8, or there is no home directory.
    """
    if into_run and run.is_ours:
        try:
            _store(run.verifications_directory, record)
        except (OSError, DamagedFileError):
            # The run of another user, or one on a read-only file system.
            _store_in_cache(run, record)
        return
    _store_in_cache(run, record)


def _store_in_cache(run: RunDirectory, record: VerificationRecord) -> None:
    cache = _cache_of(run)
    if cache is None:
        raise UsageError(NO_HOME)
    _store(cache, record)


def _store(directory: Path, record: VerificationRecord) -> None:
    make_directory(directory)
    path = directory / f"{record.name}.json"
    # Not flushed: after a power loss the checkpoint is verified again.
    store(path, _with_known_values(path, record), durable=False)


def _with_known_values(path: Path, record: VerificationRecord) -> VerificationRecord:
    """Returns a result with what an earlier one says about the values of the same files."""
    if record.not_finite is not None:
        return record
    try:
        earlier = load_if_exists(path, VerificationRecord)
    except DamagedFileError:
        return record
    if earlier is None or earlier.files != record.files:
        return record
    return replace(record, not_finite=earlier.not_finite)


def _cache_of(run: RunDirectory) -> Path | None:
    """Returns the user's cache for a run directory that must not be written to."""
    cache = cache_directory()
    key = hashlib.sha256(os.fsencode(os.path.realpath(run.root))).hexdigest()[:24]
    return cache / "verifications" / key if cache is not None else None
