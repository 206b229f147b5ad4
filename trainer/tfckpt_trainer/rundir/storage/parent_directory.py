"""Opens files by their directories, so that nothing that comes to a path meanwhile is used.

At and below `.tfckpt`, no symbolic link is followed.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

from tfckpt_trainer.machine.permissions import CONTROL

_WHAT = (
    "a symbolic link; expected a directory. Remove the link. If the directory that it points to "
    "belongs to this run, move it here"
)

_BELOW = f"/{CONTROL}/"
_CONTROL = re.compile(rf"(?:^|/){re.escape(CONTROL)}/")

_without_links: list[str] = []
"""Directories on whose way, and below which, no link is followed: their paths with a slash."""

_held: dict[str, _Held] = {}
"""Directories in which this process stays, by their paths."""

_adopting = threading.Lock()

_DIRECTORY = os.O_DIRECTORY | getattr(os, "O_PATH", os.O_RDONLY)
_FLAGS = _DIRECTORY | os.O_NOFOLLOW


def link_words(path: Path | str) -> str:
    """Says that a directory of a run is a symbolic link, and what to do."""
    return f"{path} is {_WHAT}."


class LinkedDirectoryError(OSError):
    """A directory at or below `.tfckpt` is a symbolic link, which is not followed."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.ELOOP, f"it is {_WHAT}", path)


class LinkedFileError(OSError):
    """A file at or below `.tfckpt` is a symbolic link, which is not followed."""

    def __init__(self, path: str) -> None:
        what = "it is a symbolic link; expected a regular file. Move the link away"
        super().__init__(errno.ELOOP, what, path)


class OtherDirectoryError(FileNotFoundError):
    """Another directory is at the path of one in which this process stays."""

    def __init__(self, path: str) -> None:
        what = (
            "another directory is in place of that of the run now. Move it away, and the directory "
            "of the run back"
        )
        super().__init__(errno.ENOENT, what, path)


class _Held:
    """A directory in which this process stays.

    Attributes:
        descriptor: It is open for as long: some network disks number a directory anew that nobody
            uses.
    """

    def __init__(self, path: str, identify: Callable[[int], str]) -> None:
        self.descriptor = os.open(path, _DIRECTORY)
        self._identify = identify
        self._content = ""

    def take(self, root: str, here: int) -> None:
        """Takes what is at its path now, if that is this directory, or made in place of it.

        Raises:
            OtherDirectoryError: It is another one.
        """
        if not _is_same(here, self.descriptor):
            if not _is_own(here) or not (_is_empty(here) or self._is_made_anew(root, here)):
                raise OtherDirectoryError(root)
            os.close(self.descriptor)
            self.descriptor = os.dup(here)
        self._content = self._content or self._identify(here)

    def _is_made_anew(self, root: str, here: int) -> bool:
        # Another process of the run made it. A link can lead to a copy of the run.
        has_links = os.path.realpath(root) != root
        return bool(self._content) and not has_links and self._identify(here) == self._content


@contextmanager
def stay_in(directory: Path, identify: Callable[[int], str]) -> Iterator[None]:
    """Has this process use the files of a directory, and those of no other one at its path.

    Whoever may write to the directory above can put another one there, or a link to one. After the
    directory was moved or deleted, a new one of this user is used if it is empty at first, or if it
    is the same by its content.

    Args:
        directory: Its absolute path, without links.
        identify: Returns what tells the content of an open directory from that of others; empty if
            nothing does yet.

    Raises:
        OSError: There is no such directory.
    """
    path = os.fspath(directory)
    if path in _held:
        yield
        return
    _held[path] = _Held(path, identify)
    try:
        yield
    finally:
        os.close(_held.pop(path).descriptor)


@contextmanager
def without_links(directory: Path) -> Iterator[None]:
    """Has this process change nothing in a directory, or below it, through a symbolic link.

    The path of a directory that others may write to has no links when a command begins, and may
    have one when it ends.

    Args:
        directory: Its absolute path, without links. What is missing of it may be made.
    """
    there = next(place for place in (directory, *directory.parents) if os.path.lexists(place))
    start = f"{str(there).rstrip('/')}/"
    _without_links.append(start)
    try:
        yield
    finally:
        _without_links.remove(start)


def _is_without_links(path: str) -> bool:
    return any(f"{path}/".startswith(start) for start in _without_links)


class ParentDirectory:
    """The open directory of a file, to be passed as `dir_fd` with the last name of its path.

    Below `.tfckpt` it is opened component by component. A link there could lead out of the run
    directory, and appear between a check and the call that relies on it. The path of the run
    directory itself may have links, except `without_links`. What is in a directory to `stay_in` is
    opened from there. For another file, `descriptor` is None and `name` is the whole path.

    Attributes:
        descriptor: The directory.
        name: The name of the file in it.
    """

    __slots__ = ("_path", "descriptor", "name")

    def __init__(self, path: Path | str) -> None:
        self._path = os.fspath(path)
        self.descriptor: int | None = None
        self.name = self._path

    def __enter__(self) -> ParentDirectory:
        """Opens it.

        Raises:
            LinkedDirectoryError: A directory is a symbolic link.
            OtherDirectoryError: Another directory is at the path of one to stay in.
            OSError: A directory cannot be opened.
        """
        root = _held_above(self._path)
        start = self._start() if root is None else len(root) + 1
        if start is not None:
            *below, self.name = self._path[start:].split("/")
            place = self._path[: start - 1]
            descriptor = _open(place or "/", None, place) if root is None else _open_held(root)
            self.descriptor = _open_below(descriptor, place, below)
        return self

    def _start(self) -> int | None:
        """Returns where the part of the path begins that has no links; None if no part has none."""
        if _is_without_links(self._path):
            return 1
        control = _CONTROL.search(self._path)
        return None if control is None else control.end()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.descriptor is None:
            return
        os.close(self.descriptor)
        if isinstance(error, OSError) and error.filename == self.name:
            error.filename = self._path


def _held_above(path: str) -> str | None:
    """Returns the directory to stay in that a path is in; None if there is none."""
    return next((root for root in list(_held) if path.startswith(f"{root}/")), None)


def _open_held(root: str) -> int:
    here = os.open(root, _DIRECTORY)
    try:
        with _adopting:
            _held[root].take(root, here)
    except BaseException:
        os.close(here)
        raise
    return here


def _is_same(one: int, other: int) -> bool:
    """Whether two open directories are one; a disk that is mounted again has another number."""
    seen, known = os.fstat(one), os.fstat(other)
    return (seen.st_ino, seen.st_uid) == (known.st_ino, known.st_uid)


def _is_own(directory: int) -> bool:
    """Whether this user made a directory, and so could its processes."""
    return os.fstat(directory).st_uid == os.geteuid()


def _is_empty(directory: int) -> bool:
    readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=directory)
    try:
        return not os.listdir(readable)
    finally:
        os.close(readable)


def _open_below(descriptor: int, place: str, names: list[str]) -> int:
    """Opens a directory below an open one, which is closed."""
    for name in names:
        place = f"{place}/{name}"
        try:
            inner = _open(name, descriptor, place)
        finally:
            os.close(descriptor)
        descriptor = inner
    return descriptor


def _open(name: str, within: int | None, path: str) -> int:
    try:
        return os.open(name, _FLAGS, dir_fd=within)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENOTDIR} and os.path.islink(path):
            raise LinkedDirectoryError(path) from None
        error.filename = path
        raise


def open_below(path: str, flags: int) -> int:
    """Opens an existing file, whose name is no link, nor a directory of it from `.tfckpt` on.

    Raises:
        LinkedDirectoryError: A directory is a symbolic link.
        OSError: It cannot be opened.
    """
    may_open_at_once = _BELOW in path or _is_without_links(path)
    if may_open_at_once and "\0" not in path and _held_above(path) is None:
        descriptor = _open_at_once(path, flags)
        if descriptor is not None:
            return descriptor
    with ParentDirectory(path) as parent:
        return os.open(parent.name, flags | os.O_NOFOLLOW, dir_fd=parent.descriptor)


def _open_at_once(path: str, flags: int) -> int | None:
    """Opens a file in one call if no part of its path is a link; None if the system cannot tell.

    Raises:
        FileNotFoundError: It does not exist.
    """
    syscall = _syscall()
    if syscall is None:
        return None
    # As for each other call that opens a file.
    sys.audit("open", path, None, flags)
    how = struct.pack("QQQ", flags | os.O_CLOEXEC, 0, _NO_SYMLINKS)
    descriptor: int = syscall(_OPENAT2, _HERE, os.fsencode(path), how, _SIZE)
    if descriptor >= 0:
        return descriptor
    if ctypes.get_errno() == errno.ENOENT:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return None


@cache
def _syscall() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = ctypes.c_long
    return syscall


# Of <linux/openat2.h>, <fcntl.h> and <asm/unistd.h>: the number is that of all processors.
_OPENAT2 = ctypes.c_long(437)
_HERE = ctypes.c_int(-100)
_NO_SYMLINKS = 0x04
_SIZE = ctypes.c_size_t(24)
