"""Stores what was found out about checkpoints, which stays valid while their files are the same."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from msgspec.structs import replace

from tfckpt_trainer.bundle.index import index_path
from tfckpt_trainer.catalog.directory.checkpoint_files import CheckpointFiles, FileFact
from tfckpt_trainer.catalog.directory.document_set import Documents
from tfckpt_trainer.catalog.directory.result_batches import (
    ResultBatches,
    merge_batches,
    names_in_batches,
    write_batch,
)
from tfckpt_trainer.errors import DamagedFileError, UsageError
from tfckpt_trainer.machine.user_directories import NO_HOME, cached_path_of
from tfckpt_trainer.rundir.paths import RunDirectory, is_plain_name
from tfckpt_trainer.rundir.records.checkpoint import VerificationRecord
from tfckpt_trainer.rundir.records.results import MOST_ACTIONS, ActionResult, ResultsRecord
from tfckpt_trainer.rundir.storage.documents import (
    Document,
    load_if_exists,
    remove,
    store,
    try_read,
)
from tfckpt_trainer.rundir.storage.files import list_directory, make_directory
from tfckpt_trainer.rundir.storage.identity import identity_of

StoredT = TypeVar("StoredT", VerificationRecord, ResultsRecord)


class _Stored(Generic[StoredT]):
    """The stored results of a run; a file is read again only after it was replaced.

    Results are in the run directory if this library trains there, otherwise in the user's cache.
    So a directory of another program is never written to.
    """

    def __init__(self, run: RunDirectory, kind: type[StoredT], only: AbstractSet[str] | None):
        self._places: tuple[Documents[StoredT, StoredT], ...] = tuple(
            Documents(place, kind, lambda record, _: record, only)
            for place in _places_of(run, kind)
        )

    @property
    def deferred(self) -> int:
        """How many results are not read yet."""
        return sum(place.deferred for place in self._places)

    def refresh(
        self, at_most: int | None = None, saved_at: Callable[[str], float] | None = None
    ) -> set[str]:
        """Reads new results; returns the checkpoints whose results changed.

        Args:
            at_most: How many to read in each place; later refreshes read the others.
            saved_at: When a checkpoint was saved; the results of the newest are read first.

        Raises:
            OSError: A directory cannot be read.
        """
        return set().union(*[place.refresh(at_most, saved_at) for place in self._places])

    @property
    def names(self) -> set[str]:
        """The checkpoints with results, as of the last refresh."""
        return {name for place in self._places for name in place.found}

    def _all_of(self, name: str) -> list[StoredT]:
        return [place.found[name] for place in self._places if name in place.found]


class Verifications(_Stored[VerificationRecord]):
    """The stored verification results of a run."""

    def __init__(self, run: RunDirectory, only: AbstractSet[str] | None = None) -> None:
        super().__init__(run, VerificationRecord, only)
        self._batches = [ResultBatches(place.directory, only) for place in self._places]

    def refresh(
        self, at_most: int | None = None, saved_at: Callable[[str], float] | None = None
    ) -> set[str]:
        """Reads new results; see `_Stored.refresh`."""
        changed = super().refresh(at_most, saved_at)
        return changed.union(*[batches.refresh() for batches in self._batches])

    @property
    def names(self) -> set[str]:
        """The checkpoints with results, as of the last refresh."""
        return super().names.union(*[batches.found for batches in self._batches])

    def look(self) -> dict[str, VerificationRecord]:
        """Refreshes, and returns the newest result of each checkpoint; damaged ones are left out.

        Raises:
            OSError: A directory cannot be read.
        """
        self.refresh()
        return {name: record for name in self.names if (record := self.of(name)) is not None}

    def of(self, name: str) -> VerificationRecord | None:
        """Returns the newest result of checkpoint `name`, as of the last refresh."""
        together = [batches.found[name] for batches in self._batches if name in batches.found]
        stored = [*self._all_of(name), *together]
        return max(stored, key=lambda record: record.verified_at, default=None)


class ActionResults(_Stored[ResultsRecord]):
    """The stored results of users' own actions."""

    def __init__(self, run: RunDirectory, only: AbstractSet[str] | None = None) -> None:
        super().__init__(run, ResultsRecord, only)

    def of(self, files: CheckpointFiles) -> dict[str, ActionResult]:
        """Returns the newest result of each action for a checkpoint, as of the last refresh.

        Args:
            files: The files that the checkpoint has now.
        """
        index = files.index
        valid = [
            record
            for record in self._all_of(files.name)
            if index is not None and record.index == index.identity
        ]
        results = [result for record in valid for result in record.actions.items()]
        return dict(sorted(results, key=lambda result: result[1].at))


def verification_directories(run: RunDirectory) -> tuple[Path, ...]:
    """Returns the directories in which verification results of a run are stored."""
    return _places_of(run, VerificationRecord)


def names_with_results(run: RunDirectory) -> set[str]:
    """Returns the checkpoints with verification results, by the names in them."""
    places = verification_directories(run)
    names = {name.removesuffix(".json") for place in places for name in _names_in(place)}
    return names.union(*map(names_in_batches, places))


def _names_in(directory: Path) -> set[str]:
    return {entry.name for entry in list_directory(directory)}


def result_directories(run: RunDirectory) -> tuple[Path, ...]:
    """Returns the directories in which anything is stored that was found out about checkpoints."""
    return (*verification_directories(run), *_places_of(run, ResultsRecord))


def _places_of(run: RunDirectory, kind: type[Document]) -> tuple[Path, ...]:
    cache = _cache_of(run, kind)
    own = run.results_directory if kind is ResultsRecord else run.verifications_directory
    return (own, *([cache] if cache is not None else []))


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
        and all(
            _is_inside(name) and identity_of(f"{root}/{name}") == who for name, who in own.items()
        )
    )


def _is_inside(name: str) -> bool:
    return all(is_plain_name(part) for part in name.split("/"))


class ResultStore:
    """Stores results of verifications of one run; where they go is found out once."""

    def __init__(
        self, run: RunDirectory, only: AbstractSet[str] | None = None, *, into_run: bool = True
    ) -> None:
        """Prepares the store.

        Args:
            run: The run directory.
            only: The only checkpoints whose results are stored; by default all.
            into_run: Whether the run directory may be written to if this library trains there.
        """
        self._places = _Places(run, VerificationRecord, into_run=into_run)
        self._only = only
        self._batches: dict[Path, ResultBatches] = {}

    def store(self, record: VerificationRecord) -> None:
        """Stores the result of a verification.

        Raises:
            OSError: No directory can be written to.
            UsageError: A name in it is not UTF-8, or there is no home directory.
        """

        def complete(path: Path, record: VerificationRecord) -> VerificationRecord:
            in_batch = self._in_batches(path.parent).get(record.name)
            return _with_known_values(record, [in_batch, _load_result(path)])

        _store(self._places, record, complete)

    def store_together(self, records: Sequence[VerificationRecord]) -> None:
        """Stores results of many checkpoints in one file. Raises what `store` raises."""

        def store_in(directory: Path) -> None:
            known, files = self._in_batches(directory), _names_in(directory)
            completed = []
            for record in records:
                file = f"{record.name}.json"
                single = _load_result(directory / file) if file in files else None
                completed.append(_with_known_values(record, [known.get(record.name), single]))
            write_batch(directory, completed)

        self._places.store(store_in)

    def merge(self) -> None:
        """Merges what was stored together. Raises what `store` raises."""
        self._places.store(merge_batches)

    def _in_batches(self, directory: Path) -> Mapping[str, VerificationRecord]:
        if directory not in self._batches:
            self._batches[directory] = ResultBatches(directory, self._only)
        self._batches[directory].refresh()
        return self._batches[directory].found


def _with_known_values(
    record: VerificationRecord, earlier: Iterable[VerificationRecord | None]
) -> VerificationRecord:
    """Returns a result with what an earlier one says about the values of the same files."""
    if record.not_finite is not None:
        return record
    known = [e for e in earlier if e is not None and e.files == record.files]
    newest = max(known, key=lambda result: result.verified_at, default=record)
    return replace(record, not_finite=newest.not_finite)


def _load_result(path: Path) -> VerificationRecord | None:
    """Returns a result; None if there is none that can be read."""
    return try_read(partial(load_if_exists, path, VerificationRecord))


def store_result(run: RunDirectory, record: VerificationRecord, *, into_run: bool = True) -> None:
    """Stores one result; see `ResultStore`."""
    ResultStore(run, frozenset({record.name}), into_run=into_run).store(record)


def store_action_result(
    run: RunDirectory, files: CheckpointFiles, action: str, result: ActionResult, *, into_run: bool
) -> None:
    """Stores what a user's own action found for a checkpoint.

    Args:
        run: The run directory.
        files: The files of the checkpoint when the action began.
        action: The name of the action.
        result: What it found.
        into_run: Whether the run directory may be written to if this library trains there.

    Raises:
        OSError: No directory can be written to.
        UsageError: A name in it is not UTF-8, or there is no home directory.
    """
    index = files.index
    if index is not None:
        record = ResultsRecord(name=files.name, index=index.identity, actions={action: result})
        _store(_Places(run, ResultsRecord, into_run=into_run), record, _with_other_actions)


class _Places:
    """Where results of a kind are stored: in the run directory, or else in the user's cache."""

    def __init__(self, run: RunDirectory, kind: type[Document], *, into_run: bool) -> None:
        own, *self._caches = _places_of(run, kind)
        self._root = run.root
        self._own = own if into_run and run.is_ours else None
        self._made = set[Path]()

    def store(self, store_in: Callable[[Path], None]) -> None:
        """Calls `store_in` with a directory, and with that in the cache if it fails."""
        if self._own is not None:
            try:
                store_in(self._made_directory(self._own))
            except (OSError, DamagedFileError):
                # The run of another user, or one on a read-only file system.
                pass
            else:
                return
        if not self._caches:
            raise UsageError(NO_HOME)
        store_in(self._made_directory(self._caches[0]))

    def lost_index(self, record: VerificationRecord | ResultsRecord) -> bool:
        """Whether the index file that a result was found with has gone."""
        index = index_path(self._root / record.name)
        had_index = isinstance(record, ResultsRecord) or index.name in record.files
        return had_index and not os.path.lexists(index)

    def _made_directory(self, directory: Path) -> Path:
        if directory not in self._made:
            make_directory(directory)
            self._made.add(directory)
        return directory


def _store(places: _Places, record: StoredT, complete: Callable[[Path, StoredT], StoredT]) -> None:
    """Stores a record, with what `complete` takes over from an earlier one."""

    def store_in(directory: Path) -> None:
        path = directory / f"{record.name}.json"
        # Not flushed: after a power loss the work is done again.
        store(path, complete(path, record), durable=False)
        if places.lost_index(record):
            # A prune that came meanwhile moved only what was there, and nobody asks for the rest.
            remove(path)

    places.store(store_in)


def _with_other_actions(path: Path, record: ResultsRecord) -> ResultsRecord:
    """Returns results with what other actions found for the same files, the newest of them."""
    try:
        earlier = load_if_exists(path, ResultsRecord)
    except DamagedFileError:
        return record
    if earlier is None or earlier.index != record.index:
        return record
    newest = sorted(earlier.actions.items(), key=lambda item: -item[1].at)[: MOST_ACTIONS - 1]
    return replace(record, actions=dict(newest) | record.actions)


def _cache_of(run: RunDirectory, kind: type[Document]) -> Path | None:
    """Returns the user's cache for a run directory that must not be written to."""
    return cached_path_of("results" if kind is ResultsRecord else "verifications", run.cache_key)
