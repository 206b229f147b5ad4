"""What verifying found of each checkpoint, remembered as long as its files stay as they were."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from tfckpt_trainer.catalog.scan.checkpoint_files import FileFact, identity_of
from tfckpt_trainer.catalog.scan.document_set import Documents
from tfckpt_trainer.errors import DamagedFileError, UsageError
from tfckpt_trainer.rundir.documents import store
from tfckpt_trainer.rundir.files import make_directory
from tfckpt_trainer.rundir.paths import RunDirectory, is_plain_name
from tfckpt_trainer.rundir.records.checkpoint import VerificationRecord
from tfckpt_trainer.user_directories import NO_HOME, cache_directory


class Verifications:
    """The verifications of a run, read again only where a file was replaced.

    They lie in the run directory where it is ours, and else in the cache of whoever verified:
    looking at somebody else's directory writes nothing into it.
    """

    def __init__(self, run: RunDirectory) -> None:
        self._places = tuple(
            Documents(place, VerificationRecord) for place in verification_places(run)
        )

    def look(self) -> dict[str, VerificationRecord]:
        """Returns the newest of each checkpoint by its name; damaged ones are left out.

        Raises:
            OSError: A directory cannot be read.
        """
        self.refresh()
        names = {name for place in self._places for name in place.found}
        return {name: found for name in names if (found := self.of(name)) is not None}

    def refresh(self) -> set[str]:
        """Looks again; returns the checkpoints of which a verification is new, other or gone.

        Raises:
            OSError: A directory cannot be read.
        """
        return set().union(*[place.refresh() for place in self._places])

    def of(self, name: str) -> VerificationRecord | None:
        """Returns the newest verification of checkpoint `name` at the last look."""
        found = [place.found[name] for place in self._places if name in place.found]
        return max(found, key=lambda record: record.verified_at, default=None)


def verification_places(run: RunDirectory) -> tuple[Path, ...]:
    """Returns the directories in which verification results of a run are stored."""
    cache = _cache_of(run)
    return (run.verifications_directory, *([cache] if cache is not None else []))


def holds_for(record: VerificationRecord, files: Iterable[FileFact], root: Path) -> bool:
    """Whether the files are those that were verified, and none was changed since.

    A `.meta`, the graph of a checkpoint of TensorFlow 1, is no part of what is verified.

    Args:
        record: What was found.
        files: Of the checkpoint, as they are now.
        root: The run directory, in which the workers' own files and the record are looked at.
            Verifications of version 0.1 do not name the record: they hold whatever became of it.
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


def remember(run: RunDirectory, record: VerificationRecord, *, into_run: bool = True) -> None:
    """Writes down what verifying found.

    Args:
        run: The run directory.
        record: What was found.
        into_run: Whether it may be written into a run directory that is ours.

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
    # Not flushed: what a power loss takes is found again by reading.
    store(directory / f"{record.name}.json", record, durable=False)


def _cache_of(run: RunDirectory) -> Path | None:
    """Returns the user's cache for a run directory that must not be written to."""
    cache = cache_directory()
    key = hashlib.sha256(os.fsencode(os.path.realpath(run.root))).hexdigest()[:24]
    return cache / "verifications" / key if cache is not None else None
