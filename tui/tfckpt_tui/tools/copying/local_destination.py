"""A destination on this machine."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from tfckpt_trainer.catalog.directory.checkpoint_files import owner_of
from tfckpt_trainer.catalog.retention.prune import settle_interrupted_prunes
from tfckpt_trainer.errors import RefusedError, TfckptError, UsageError, describe_error
from tfckpt_trainer.machine.permissions import may_replace
from tfckpt_trainer.rundir.full_disk import is_full
from tfckpt_trainer.rundir.heartbeats.liveness import find_other_trainer
from tfckpt_trainer.rundir.heartbeats.writer_marks import remove_leftovers, temporary_path
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.storage.disk import disk
from tfckpt_trainer.rundir.storage.documents import load_if_exists
from tfckpt_trainer.rundir.storage.files import (
    delete_file,
    delete_if_empty,
    facts_of,
    make_directory,
    move,
    open_plain,
    open_shared,
    read_bounded,
    sync_directory,
    write_atomic,
)
from tfckpt_trainer.rundir.storage.locks import is_locked, take_lock
from tfckpt_trainer.rundir.storage.own_links import resolve_named
from tfckpt_trainer.rundir.storage.parent_directory import (
    LinkedDirectoryError,
    without_links,
)
from tfckpt_tui.formats import units
from tfckpt_tui.tools.copying.destination import (
    NOT_A_FILE,
    CutCopyError,
    DestinationSurvey,
    OnSent,
    Placed,
    emptied_by,
    in_use,
    refuse_live,
    refuse_sticky,
)
from tfckpt_tui.tools.copying.source import SourceFile

_CHUNK = 4 << 20


class LocalDestination:
    """A directory of this machine; see `Destination`."""

    transport = "file"

    def __init__(self, path: Path) -> None:
        self._run = RunDirectory(resolve_named(path))
        self._root = self._run.root
        self._held = ExitStack()
        self._is_locked = False

    @property
    def label(self) -> str:
        """Its path."""
        return str(self._root)

    def open(self, *, dry_run: bool) -> None:
        """Locks it unless nothing may change; creates nothing."""
        self._held.enter_context(without_links(self._root))
        if self._root.exists() and not self._root.is_dir():
            raise UsageError(f"{self._root} is a file; name a directory.")
        self._run.require_changeable()
        if not may_replace(self._run.state_file):
            raise refuse_sticky(self.label, os.fspath(self._root))
        with self._explained():
            if self._run.is_ours:
                self._refuse_trainer()
            # Without a lock file, nothing else holds the lock.
            if not dry_run and self._run.trainer_lock.exists():
                self._lock()

    def create(self) -> None:
        """Creates and locks it, if that is left to do."""
        with self._explained():
            if not self._is_locked:
                self._lock()

    def close(self) -> None:
        """Unlocks it."""
        self._held.close()

    def run_id(self) -> str:
        """Returns the ID of the run that was trained there; empty if there is none."""
        info = load_if_exists(self._run.run_file, RunInfo)
        return info.id if info is not None else ""

    def survey(self, names: Sequence[str], paths: Sequence[str]) -> DestinationSurvey:
        """Returns what it holds."""
        existing = next(p for p in (self._root, *self._root.parents) if p.exists())
        with self._explained():
            there = os.listdir(self._root) if self._root.exists() else []
            owned = [name for name in there if owner_of(name) in names]
            return DestinationSurvey(
                free_bytes=shutil.disk_usage(existing).free,
                sizes={path: size for path in paths if (size := self._size(path)) is not None},
                others=sorted(set(owned) - set(paths)),
            )

    def differing(self, files: Sequence[Placed]) -> list[SourceFile]:
        """Reads files back from its disk, and returns those that are not equal there."""
        return [file for file, path in files if self._digest(self._root / path) != file.digest()]

    def send(self, files: Sequence[Placed], on_sent: OnSent) -> None:
        """Writes and flushes files. Where a part of one is, it goes on from there."""
        done = 0
        for file, path in files:
            with self._explained(), self._open_part(path) as part:
                offset = part.seek(0, os.SEEK_END)
                for data in file.chunks(offset):
                    part.write(data)
                    offset += len(data)
                    on_sent(done + offset)
                part.flush()
                disk().flush(part.fileno())
            done += file.size

    def remove(self, paths: Sequence[str]) -> None:
        """Deletes files."""
        for path in paths:
            delete_file(self._root / path)

    def discard(self, paths: Sequence[str], staging: str) -> None:
        """Deletes files, and the directories that are empty then."""
        self.remove(paths)
        for directory in emptied_by(paths, staging):
            delete_if_empty(self._root / directory)

    def commit(self, moves: Sequence[tuple[str, str, float]], staging: str) -> None:
        """Flushes and renames files; the last one after all others are flushed."""
        with self._explained():
            # What has its name before others are refused looks like a damaged checkpoint.
            for _, new, _ in moves:
                if os.path.lexists(self._root / new):
                    raise _not_replaced(self._root / new)
            for old, new, modified_at in moves:
                target = self._root / new
                _make_directories(target.parent)
                disk().set_time(self._root / old, modified_at)
                if new == moves[-1][1]:
                    self._flush({Path(path).parent for step in moves for path in step[:2]})
                try:
                    move(self._root / old, target)
                except FileExistsError:
                    raise _not_replaced(target) from None
            self._flush({Path(moves[-1][0]).parent, Path(moves[-1][1]).parent})
            for directory in emptied_by([old for old, _, _ in moves], staging):
                delete_if_empty(self._root / directory)

    def read(self, path: str) -> bytes | None:
        """Returns the content of a small file; None if there is none."""
        try:
            return read_bounded(self._root / path)
        except FileNotFoundError:
            return None

    def write(self, path: str, data: bytes) -> None:
        """Replaces a small file atomically, and flushes it."""
        with self._explained():
            target = self._root / path
            write_atomic(target, data, temporary=temporary_path(target))

    def _lock(self) -> None:
        _make_directories(self._run.control)
        lock = take_lock(self._run.trainer_lock)
        if lock is None:
            raise in_use(self.label)
        self._held.callback(os.close, lock)
        self._is_locked = True
        remove_leftovers(self._root)
        # A prune that goes on later would take a copy of the same name with it.
        settle_interrupted_prunes(self._run)

    def _refuse_trainer(self) -> None:
        if is_locked(self._run.supervisor_lock):
            raise refuse_live(self.label, "its supervisor runs")
        worker = find_other_trainer(self._run)
        if worker is not None:
            raise refuse_live(self.label, f"worker {worker.index} on {worker.host} is alive")

    def _open_part(self, path: str) -> BinaryIO:
        target = self._root / path
        _make_directories(target.parent)
        return os.fdopen(open_shared(target, os.O_WRONLY), "wb")

    def _flush(self, directories: set[Path]) -> None:
        for directory in sorted(directories):
            sync_directory(self._root / directory)

    def _size(self, path: str) -> int | None:
        try:
            facts = facts_of(self._root / path)
        except LinkedDirectoryError:
            return NOT_A_FILE
        if facts is None:
            return None
        return facts.st_size if stat.S_ISREG(facts.st_mode) else NOT_A_FILE

    def _digest(self, path: Path) -> str:
        computed = hashlib.sha256()
        with open_plain(path) as file:
            if hasattr(os, "posix_fadvise"):
                # What the disk has is read, not what memory still holds.
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            while data := file.read(_CHUNK):
                computed.update(data)
        return computed.hexdigest()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Explains the errors of a disk."""
        try:
            yield
        except OSError as error:
            if is_full(error):
                free = units.size(shutil.disk_usage(self._root).free)
                raise CutCopyError(
                    f"The disk of {self._root} is full: {free} are free. Make room there"
                ) from error
            raise TfckptError(
                f"{describe_error(error)}. Check the permissions in {self._root}, or copy to "
                "another directory."
            ) from error


def _not_replaced(path: Path) -> RefusedError:
    return RefusedError(f"{path} exists; it was not replaced. Move it away, or copy elsewhere.")


def _make_directories(path: Path) -> None:
    """Creates a directory and its parents, each of them flushed before there is one in it."""
    missing = [place for place in (path, *path.parents) if not place.is_dir()]
    for place in reversed(missing):
        make_directory(place, durable=True)
