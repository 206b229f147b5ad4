"""Empties the trash: deletes for good what prunes moved there."""

from __future__ import annotations

import errno
import os
import shlex
import stat
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from tfckpt_trainer.bundle.index import index_lies_at
from tfckpt_trainer.catalog.directory.checkpoint_files import size_of_directory
from tfckpt_trainer.catalog.directory.pins import is_pinned
from tfckpt_trainer.catalog.directory.save_directories import delete_what_is_of_save
from tfckpt_trainer.catalog.directory.trash import (
    EMPTIED,
    MANIFEST,
    TrashReader,
    directories_in_trash,
    is_temporary_manifest,
    locked_trash,
    read_manifest,
)
from tfckpt_trainer.errors import describe_error
from tfckpt_trainer.machine.permissions import is_closed, may_replace
from tfckpt_trainer.rundir.disk_reserve import keep_reserve
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.trash import TrashManifest, TrashPhase
from tfckpt_trainer.rundir.storage.files import (
    delete_file,
    delete_if_without_files,
    facts_of,
    list_directory,
    move,
    sync_directory,
)
from tfckpt_trainer.words.advice import Advice, command_or_key


@dataclass(frozen=True)
class Emptied:
    """The result of deleting for good.

    Attributes:
        freed: Bytes freed.
        names: Deleted checkpoints.
        kept: For each prune that stays because a checkpoint in it is pinned: which, and how to
            bring it back.
        problems: A sentence for each prune that could not be read or deleted.
        warnings: Sentences about steps that failed after the deletion.
    """

    freed: int
    names: tuple[str, ...]
    kept: tuple[Advice, ...] = ()
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def trashed_before(run: RunDirectory, before: float | None = None) -> tuple[TrashManifest, ...]:
    """Returns the prunes that emptying would delete, newest first.

    Args:
        run: The run directory.
        before: Only what was pruned before this time, in seconds since the epoch.
    """
    return _trashed_before(TrashReader(run), before)


def _trashed_before(reader: TrashReader, before: float | None) -> tuple[TrashManifest, ...]:
    return tuple(
        manifest
        for manifest in reader.read()
        if manifest.phase is TrashPhase.TRASHED and (before is None or manifest.at < before)
    )


def trashed_bytes(run: RunDirectory) -> int:
    """Returns how many bytes emptying the trash would free."""
    return sum(manifest.size for manifest in trashed_before(run))


def empty_trash(
    run: RunDirectory,
    before: float | None = None,
    *,
    by: str | None = None,
    only: Collection[str] | None = None,
    until_freed: int | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Emptied:
    """Deletes for good what is in the trash, except for interrupted prunes and undos.

    Pinned checkpoints stay too, unless a checkpoint with the same name exists: it owns the pin.

    Args:
        run: The run directory.
        before: Only what was pruned before this time, in seconds since the epoch.
        by: Only what this one pruned.
        only: Only the prunes with these ids.
        until_freed: Stop when so many bytes were freed, oldest prune first.
        on_progress: Called after each file with the bytes freed so far.

    Raises:
        RefusedError: The trash is locked, or is a symbolic link.
        OSError: The trash cannot be read.
    """
    if not run.trash.is_dir():
        return Emptied(0, ())
    with locked_trash(run):
        emptying = _Emptying(run, on_progress)
        emptying.finish_interrupted()
        reader = TrashReader(run)
        manifests = _trashed_before(reader, before)
        emptying.problems += reader.damaged.values()
        if by is None:
            emptying.problems += [
                f"{manifest.id} stays: it was interrupted. The next prune or undo brings it back."
                for manifest in reader.read()
                if manifest.phase is not TrashPhase.TRASHED
            ]
        for manifest in reversed(manifests):
            if until_freed is not None and emptying.freed >= until_freed:
                break
            if by in (None, manifest.by) and (only is None or manifest.id in only):
                emptying.delete_prune(manifest)
        # The reserve may have been released to get here.
        keep_reserve(run)
    return emptying.done()


def delete_from_trash(
    run: RunDirectory, trash: str, *, on_progress: Callable[[int], None] | None = None
) -> Emptied:
    """Deletes one prune for good, and says nothing of others.

    Raises:
        RefusedError: The trash is locked, or is a symbolic link.
        OSError: The trash cannot be read.
    """
    with locked_trash(run):
        emptying = _Emptying(run, on_progress)
        for manifest in trashed_before(run):
            if manifest.id == trash:
                emptying.delete_prune(manifest)
        keep_reserve(run)
    return emptying.done()


class _Emptying:
    """Deletes prunes one by one; a failure does not stop the others."""

    def __init__(self, run: RunDirectory, on_progress: Callable[[int], None] | None) -> None:
        self._run = run
        self._on_progress = on_progress
        self.freed = 0
        self.problems: list[str] = []
        self._names: list[str] = []
        self._kept: list[Advice] = []

    def delete_prune(self, manifest: TrashManifest) -> None:
        """Deletes one prune; from its first moment on, no undo finds it."""
        pinned = [
            trashed.name
            for trashed in manifest.checkpoints
            if is_pinned(self._run, trashed.name)
            and not index_lies_at(self._run.root / trashed.name)
        ]
        if pinned:
            undo = command_or_key("trash", "undo", self._run.root, "--trash", manifest.id)
            advice = Advice.of(
                "{names} in {prune} stays in the trash: pinned. Bring it back with {undo}.",
                names=", ".join(pinned),
                prune=manifest.id,
                undo=undo,
            )
            self._kept.append(advice)
            return
        directory = self._run.trash / manifest.id
        emptied = self._run.trash / f"{manifest.id}{EMPTIED}"
        files = {one.name: [directory / name for name in one.files] for one in manifest.checkpoints}
        there = [name for name, paths in files.items() if any(map(os.path.lexists, paths))]
        try:
            require_permission([directory / MANIFEST, *chain(*files.values())])
            # A rename needs no space. It is flushed before the files: a power loss must not restore
            # a prune without them.
            move(directory, emptied)
            sync_directory(self._run.trash)
        except OSError as error:
            self.problems.append(_not_deleted(directory, error))
            return
        self._names += there
        self._delete(emptied, manifest)

    def finish_interrupted(self) -> None:
        """Deletes what an interrupted emptying left. What no manifest lists stays."""
        for directory in directories_in_trash(self._run):
            if not os.path.lexists(directory / MANIFEST):
                self._remove(directory)
            elif directory.name.endswith(EMPTIED):
                manifest, _ = read_manifest(directory)
                if manifest is not None:
                    self._delete(directory, manifest)
                    if not os.path.lexists(directory / MANIFEST):
                        # Who began it was killed before it told of them.
                        self._names += manifest.names

    def _delete(self, directory: Path, manifest: TrashManifest) -> None:
        try:
            for trashed in manifest.checkpoints:
                for name in trashed.files:
                    self._delete_file(directory / name, name)
            # Last: the manifest tells a later emptying what to delete.
            delete_file(directory / MANIFEST)
        except OSError as error:
            self.problems.append(_not_deleted(directory, error))
            return
        self._remove(directory)
        if os.path.lexists(directory):
            self.problems.append(
                f"{directory} has files that no prune moved there. They stay: list them with "
                f"`ls -lR {shlex.quote(os.fspath(directory))}`."
            )

    def _remove(self, directory: Path) -> None:
        """Removes a directory without a manifest, unless it has files of others."""
        try:
            for entry in list_directory(directory):
                if is_temporary_manifest(entry.name):
                    delete_file(directory / entry.name)
        except OSError as error:
            self.problems.append(_not_deleted(directory, error))
        delete_if_without_files(directory)

    def _delete_file(self, path: Path, name: str) -> None:
        freed = delete_part(path, name)
        if freed is None:
            return
        self.freed += freed
        if self._on_progress is not None:
            self._on_progress(self.freed)

    def done(self) -> Emptied:
        """Returns what was deleted."""
        return Emptied(self.freed, tuple(self._names), tuple(self._kept), tuple(self.problems))


def _not_deleted(directory: Path, error: OSError) -> str:
    return (
        f"{directory} could not be deleted completely: {describe_error(error)}. "
        f"Try again, or list it with `ls -lR {shlex.quote(os.fspath(directory))}`."
    )


def delete_part(path: Path, name: str) -> int | None:
    """Deletes a file of a checkpoint, or what saves wrote in a directory of it.

    Args:
        path: The file or directory.
        name: Its path in the run directory.

    Returns:
        The bytes freed; None if nothing is there.

    Raises:
        OSError: It cannot be deleted.
    """
    facts = facts_of(path)
    if facts is None:
        return None
    if not stat.S_ISDIR(facts.st_mode):
        delete_file(path)
        return _bytes_freed(facts)
    before = size_of_directory(path, _bytes_freed)
    delete_what_is_of_save(path, name)
    return before - size_of_directory(path, _bytes_freed)


def _bytes_freed(facts: os.stat_result) -> int:
    """Returns the bytes that a deletion frees: none while the file has other names."""
    return facts.st_size if facts.st_nlink == 1 else 0


def require_permission(paths: Iterable[Path]) -> None:
    """Raises an error if a file of a checkpoint may not be deleted; otherwise half would be gone.

    Raises:
        PermissionError: A directory may not be changed.
    """
    there = [path for path in paths if os.path.lexists(path)]
    inner = [path for path in there if path.is_dir() and not path.is_symlink()]
    for directory in dict.fromkeys([*(path.parent for path in there), *inner]):
        if is_closed(directory):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(directory))
    for path in there:
        if not may_replace(path):
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path))
