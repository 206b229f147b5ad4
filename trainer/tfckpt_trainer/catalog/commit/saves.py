"""Commit a save, and complete or discard an interrupted one.

A save is written to `saving/`. Its manifest there tells the phase and, from the commit on, all
files with sizes and checksums. Recovery therefore never guesses from which files exist, and no
file in the run directory is ever replaced.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from tfckpt_trainer.bundle.checksum import crc32c
from tfckpt_trainer.bundle.index import index_lies_at, index_path
from tfckpt_trainer.bundle.state_file import (
    StateFile,
    StateFileCondition,
    StateFileError,
    read_state_file,
    write_state_file,
)
from tfckpt_trainer.catalog.directory.checkpoint_files import owner_of
from tfckpt_trainer.catalog.directory.save_directories import (
    TEMPORARY,
    delete_unfinished,
    delete_worker_state,
    is_of_unfinished_save,
)
from tfckpt_trainer.errors import DamagedFileError, describe_error
from tfckpt_trainer.rundir.paths import RunDirectory, is_checkpoint_name, is_plain_name
from tfckpt_trainer.rundir.records.checkpoint import (
    CheckpointRecord,
    FileFacts,
    SaveManifest,
    SavePhase,
)
from tfckpt_trainer.rundir.storage.documents import load, remove, store
from tfckpt_trainer.rundir.storage.files import (
    NotFlushedError,
    delete_file,
    list_directory,
    move,
    move_aside,
    read_bounded,
    sync_directory,
)


@dataclass(frozen=True)
class Recovered:
    """The outcome of recovering interrupted saves.

    Attributes:
        completed: Names of the checkpoints that were completed.
        problems: Sentences about I/O errors. The next save or start tries again.
    """

    completed: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def begin_save(run: RunDirectory, name: str) -> None:
    """Writes the manifest of a new save.

    The manifest is not flushed: until the commit, nothing relies on the save.

    Raises:
        OSError: The manifest cannot be written.
    """
    manifest = SaveManifest(name=name, phase=SavePhase.WRITING)
    store(run.save_manifest(name), manifest, durable=False)


def commit_save(run: RunDirectory, record: CheckpointRecord) -> str:
    """Commits a save that all workers have written, flushed and verified.

    The manifest is flushed first: from then on, a crash no longer undoes the save. The rename of
    the index makes it a checkpoint, for TensorFlow and for this library.

    Args:
        run: The run directory.
        record: The record of the checkpoint.

    Returns:
        An error that happened after the commit, as a sentence; empty if there was none.

    Raises:
        OSError: The commit failed, and no file of the save is left in the run directory.
    """
    manifest = SaveManifest(name=record.name, phase=SavePhase.COMMITTING, record=record)
    try:
        store(run.save_manifest(record.name), manifest)
        _move_into_place(run, record)
    except OSError:
        if not _is_committed(run, record.name):
            discard_save(run, record.name, record)
            raise
    return _close(run, record.name)


def discard_save(run: RunDirectory, name: str, record: CheckpointRecord | None = None) -> None:
    """Removes the files of a save, unless it was committed.

    Args:
        run: The run directory.
        name: The checkpoint.
        record: Its record, if the commit had begun. It names the files that may have moved.

    Raises:
        OSError: A file cannot be removed. The next save or start tries again.
    """
    if _is_committed(run, name):
        return
    if record is not None:
        # If a file is still in `saving/`, a file of that name in the run directory is another one.
        moved = [
            facts
            for facts in _data_files(record)
            if not os.path.lexists(run.saving_directory / facts.name)
        ]
        record = replace(record, files=moved)
        store(
            run.save_manifest(name),
            SaveManifest(name=name, phase=SavePhase.DISCARDING, record=record),
        )
        _remove_from_place(run, record)
    if not index_lies_at(run.root / name):
        delete_worker_state(run.worker_state_directory(name))
    for entry in list_directory(run.saving_directory):
        is_manifest = entry.name == run.save_manifest(name).name
        if entry.name.startswith((f"{name}.", f"{name}{TEMPORARY}")) and not is_manifest:
            delete_unfinished(entry)
    delete_file(run.save_manifest(name))


def finish_interrupted_saves(run: RunDirectory) -> Recovered:
    """Completes or discards every interrupted save.

    A save whose commit had begun is completed if all its files exist: all workers verified it.

    Args:
        run: The run directory. The caller is its trainer, and no save is in progress.

    Raises:
        OSError: The directory of unfinished saves cannot be read.
    """
    completed: list[str] = []
    problems: list[str] = []
    kept: list[str] = []
    for name, manifest in _manifests(run):
        try:
            if _finish(run, name, manifest):
                completed.append(name)
        except OSError as error:
            kept.append(name)
            problems.append(f"The save of {name} could not be completed: {describe_error(error)}.")
    for entry in list_directory(run.saving_directory):
        is_kept = entry.name.startswith(tuple(f"{name}." for name in kept))
        if is_of_unfinished_save(entry.name) and not is_kept:
            try:
                delete_unfinished(entry)
            except OSError as error:
                problems.append(f"{entry.name} could not be removed: {describe_error(error)}.")
    return Recovered(tuple(completed), tuple(problems))


def point_state_file_at(run: RunDirectory, name: str) -> str:
    """Makes `name` the latest checkpoint in TensorFlow's state file.

    The order of the list stays: without records, it tells in which order checkpoints were saved.

    Returns:
        What became of a file of other content, as a sentence; empty if there was none.
    """
    told = ""
    try:
        state = read_state_file(run.state_file)
    except StateFileError as error:
        if error.condition is StateFileCondition.DIRECTORY:
            what = "it is a directory; move it away, TensorFlow's list of checkpoints belongs here"
            raise IsADirectoryError(errno.EISDIR, what, str(run.state_file)) from error
        # TensorFlow cannot read a damaged state file either; this write replaces it.
        is_link = error.condition is StateFileCondition.LINKED
        state = _behind_link(run.state_file) if is_link else None
        if error.is_foreign:
            aside = move_aside(run.state_file)
            what = "a symbolic link" if is_link else "no state file of TensorFlow"
            told = f"{run.state_file} was {what}. It is {aside} now."
    listed = state.all_paths if state else ()
    stamps = state.timestamps if state and len(state.timestamps) == len(listed) else ()
    times = dict(zip(listed, stamps or (0.0,) * len(listed), strict=True))
    times.setdefault(name, time.time())
    write_state_file(
        run.state_file,
        StateFile(
            latest=name,
            all_paths=tuple(times),
            timestamps=tuple(times.values()),
            last_preserved=state.last_preserved if state else None,
        ),
    )
    return told


def _behind_link(path: Path) -> StateFile | None:
    """Returns the state file to which a link leads; TensorFlow reads it."""
    with suppress(OSError, DamagedFileError):
        return read_state_file(Path(os.path.realpath(path)))
    return None


def _finish(run: RunDirectory, name: str, manifest: SaveManifest | None) -> bool:
    """Completes or discards one save; returns whether it was completed."""
    record = manifest.record if manifest is not None else None
    if manifest is None or record is None or _is_committed(run, name):
        discard_save(run, name)
        return False
    if manifest.phase is SavePhase.DISCARDING:
        _remove_from_place(run, record)
        discard_save(run, name)
        return False
    if not _can_be_completed(run, record):
        discard_save(run, name, record)
        return False
    _move_into_place(run, record)
    _flush_moves(run)
    return True


def _move_into_place(run: RunDirectory, record: CheckpointRecord) -> None:
    """Moves the files to the run directory, the index last and after a flush of the others."""
    for facts in _data_files(record):
        if os.path.lexists(run.saving_directory / facts.name):
            move(run.saving_directory / facts.name, run.root / facts.name)
    _flush_moves(run)
    store(run.record(record.name), record)
    move(index_path(run.saving_directory / record.name), index_path(run.root / record.name))


def _flush_moves(run: RunDirectory) -> None:
    """Flushes the source and the target directory of the moves."""
    sync_directory(run.root)
    sync_directory(run.saving_directory)


def _close(run: RunDirectory, name: str) -> str:
    """Closes a committed save; returns an error as a sentence."""
    try:
        _flush_moves(run)
        delete_file(run.save_manifest(name))
    except NotFlushedError as error:
        return f"It could not be flushed, so a power loss may undo it: {describe_error(error)}."
    except OSError as error:
        return f"Its manifest stays until the next start removes it: {describe_error(error)}."
    return ""


def _remove_from_place(run: RunDirectory, record: CheckpointRecord) -> None:
    for facts in _data_files(record):
        if _has_size(run.root / facts.name, facts):
            delete_file(run.root / facts.name)
    remove(run.record(record.name))
    sync_directory(run.root)


def _can_be_completed(run: RunDirectory, record: CheckpointRecord) -> bool:
    """Whether every file of a save exists as written, in `saving/` or in the run directory."""
    index_name = index_path(run.root / record.name).name
    for facts in record.files:
        place = run.root / facts.name
        if is_plain_name(facts.name) and os.path.lexists(run.saving_directory / facts.name):
            if os.path.lexists(place):
                return False
            place = run.saving_directory / facts.name
        if not _has_size(place, facts):
            return False
        if facts.name == index_name and not _has_checksum(place, facts):
            return False
    return any(facts.name == index_name for facts in record.files)


def _manifests(run: RunDirectory) -> list[tuple[str, SaveManifest | None]]:
    """Returns the unfinished saves and their manifests; None for a damaged or missing one."""
    manifests: dict[str, SaveManifest | None] = {}
    for entry in list_directory(run.saving_directory):
        name, suffix = os.path.splitext(entry.name)
        if not is_checkpoint_name(name):
            continue
        if suffix == ".json" and entry.is_file(follow_symlinks=False):
            try:
                manifest = load(Path(entry.path), SaveManifest)
                manifests[name] = manifest if _is_of(manifest, name) else None
            except DamagedFileError:
                manifests[name] = None
        elif suffix == ".index":
            manifests.setdefault(name, None)
    return sorted(manifests.items())


def _is_of(manifest: SaveManifest, name: str) -> bool:
    record = manifest.record
    is_own = record is None or (record.name == name and names_only_own_files(record))
    return manifest.name == name and is_own


def names_only_own_files(record: CheckpointRecord) -> bool:
    """Whether a record names files of its own checkpoint alone, and none elsewhere.

    Whoever may write to the directory can put a record there.
    """
    workers = f".tfckpt/workers/{record.name}/"
    return is_checkpoint_name(record.name) and all(
        is_plain_name(facts.name.removeprefix(workers))
        and (facts.name.startswith(workers) or owner_of(facts.name) == record.name)
        for facts in record.files
    )


def _data_files(record: CheckpointRecord) -> list[FileFacts]:
    """Returns the files of the shared state without the index."""
    index_name = f"{record.name}.index"
    return [f for f in record.files if owner_of(f.name) == record.name and f.name != index_name]


def _is_committed(run: RunDirectory, name: str) -> bool:
    """Whether the index was moved from `saving/` to the run directory."""
    return index_lies_at(run.root / name) and not index_lies_at(run.saving_directory / name)


def _has_size(path: Path, facts: FileFacts) -> bool:
    try:
        seen = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return stat.S_ISREG(seen.st_mode) and seen.st_size == facts.size


def _has_checksum(path: Path, facts: FileFacts) -> bool:
    try:
        return crc32c(read_bounded(path, facts.size)) == facts.crc32c
    except (FileNotFoundError, NotADirectoryError, DamagedFileError):
        return False
