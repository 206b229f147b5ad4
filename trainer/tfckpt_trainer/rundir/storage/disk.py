"""The calls by which files of a run are looked at and changed, and the local disk that answers.

No call follows a symbolic link at or below `.tfckpt`. Who wants to know what happens if a disk
refuses puts another one in place with `using`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from tfckpt_trainer.machine.permissions import is_closed
from tfckpt_trainer.rundir.storage.parent_directory import ParentDirectory, open_below
from tfckpt_trainer.rundir.storage.trees import remove_tree


class Disk(Protocol):
    """What keeps the files of a run. Each call raises an `OSError` if it cannot be done."""

    def facts(self, path: Path) -> os.stat_result:
        """Returns what `lstat` tells."""

    def entries(self, directory: Path | str) -> list[os.DirEntry[str]]:
        """Returns the entries of a directory."""

    def open(self, path: Path | str, flags: int, mode: int = 0) -> int:
        """Opens what lies at `path`, or creates a file; returns a descriptor."""

    def write(self, descriptor: int, data: bytes | memoryview, at: int | None = None) -> int:
        """Writes into an open file, at a position or the current one; returns the bytes written."""

    def flush(self, descriptor: int) -> None:
        """Returns when the content is safe from a power loss."""

    def rename(self, source: Path, target: Path) -> None:
        """Renames, and replaces what a rename replaces."""

    def remove(self, path: Path) -> None:
        """Removes a file."""

    def make_directory(self, path: Path, mode: int) -> None:
        """Makes a directory in one that exists."""

    def remove_directory(self, path: Path) -> None:
        """Removes an empty directory."""

    def remove_tree(self, directory: Path) -> None:
        """Removes a directory with all that is in it."""

    def remove_directories(self, directory: Path) -> None:
        """Removes a directory and those below it, if nothing else is in them."""

    def set_mode(self, descriptor: int, mode: int) -> None:
        """Sets the permissions of an open file or directory."""

    def set_time(self, file: Path | int, seconds: float | None = None) -> None:
        """Sets the time of the last change in seconds since the epoch, or to that of the disk."""


class LocalDisk:
    """A disk of this machine, or one that it mounts."""

    def facts(self, path: Path) -> os.stat_result:
        """Returns what `lstat` tells."""
        with ParentDirectory(path) as parent:
            return os.stat(parent.name, dir_fd=parent.descriptor, follow_symlinks=False)

    def entries(self, directory: Path | str) -> list[os.DirEntry[str]]:
        """Returns the entries of a directory."""
        # Entries by a descriptor would have no path.
        with ParentDirectory(f"{os.fspath(directory)}/."), os.scandir(directory) as entries:
            return list(entries)

    def open(self, path: Path | str, flags: int, mode: int = 0) -> int:
        """Opens what lies at `path`, or creates a file; returns a descriptor."""
        if not flags & os.O_CREAT:
            return open_below(os.fspath(path), flags)
        with ParentDirectory(path) as parent:
            return os.open(parent.name, flags | os.O_NOFOLLOW, mode, dir_fd=parent.descriptor)

    def write(self, descriptor: int, data: bytes | memoryview, at: int | None = None) -> int:
        """Writes into an open file, at a position or the current one; returns the bytes written."""
        return os.write(descriptor, data) if at is None else os.pwrite(descriptor, data, at)

    def flush(self, descriptor: int) -> None:
        """Returns when the content is safe from a power loss."""
        os.fsync(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """Renames, and replaces what a rename replaces."""
        with ParentDirectory(source) as old, ParentDirectory(target) as new:
            try:
                os.replace(old.name, new.name, src_dir_fd=old.descriptor, dst_dir_fd=new.descriptor)
            except OSError as error:
                error.filename, error.filename2 = str(source), str(target)
                is_closed_there = isinstance(error, PermissionError) and is_closed(target.parent)
                if is_closed_there or isinstance(error, IsADirectoryError):
                    error.filename = str(target)
                raise

    def remove(self, path: Path) -> None:
        """Removes a file."""
        with ParentDirectory(path) as parent:
            os.unlink(parent.name, dir_fd=parent.descriptor)

    def make_directory(self, path: Path, mode: int) -> None:
        """Makes a directory in one that exists."""
        with ParentDirectory(path) as parent:
            os.mkdir(parent.name, mode, dir_fd=parent.descriptor)

    def remove_directory(self, path: Path) -> None:
        """Removes an empty directory."""
        with ParentDirectory(path) as parent:
            os.rmdir(parent.name, dir_fd=parent.descriptor)

    def remove_tree(self, directory: Path) -> None:
        """Removes a directory with all that is in it."""
        self._remove(directory, only_directories=False)

    def remove_directories(self, directory: Path) -> None:
        """Removes a directory and those below it, if nothing else is in them."""
        self._remove(directory, only_directories=True)

    def _remove(self, directory: Path, *, only_directories: bool) -> None:
        with ParentDirectory(directory) as parent:
            try:
                remove_tree(parent.descriptor, parent.name, only_directories=only_directories)
            except OSError as error:
                # Of a file in it, the error has the last name alone.
                error.filename = str(directory)
                raise

    def set_mode(self, descriptor: int, mode: int) -> None:
        """Sets the permissions of an open file or directory."""
        os.fchmod(descriptor, mode)

    def set_time(self, file: Path | int, seconds: float | None = None) -> None:
        """Sets the time of the last change in seconds since the epoch, or to that of the disk."""
        times = None if seconds is None else (seconds, seconds)
        if isinstance(file, int):
            os.utime(file, times)
            return
        with ParentDirectory(file) as parent:
            os.utime(parent.name, times, dir_fd=parent.descriptor, follow_symlinks=False)


_in_use: list[Disk] = [LocalDisk()]


def disk() -> Disk:
    """Returns the disk in use."""
    return _in_use[-1]


@contextmanager
def using(other: Disk) -> Iterator[None]:
    """Has all files of this process be on another disk."""
    _in_use.append(other)
    try:
        yield
    finally:
        _in_use.remove(other)
