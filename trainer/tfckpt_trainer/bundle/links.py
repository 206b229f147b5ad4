"""What may be in place of a checkpoint file: a symbolic link, or a pointer of Git LFS.

Links are followed for reading, never for a change.

Links are untrusted input. One that leads out of its directory is followed only by a relative path,
as in the caches of model hubs (`ckpt-1.index -> ../../blobs/…`): an absolute one may lead to a disk
that does not answer, and would hold up the process that looks. One of another user may lead to what
only this user can read, so it is followed only to a file of the user who made it.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

import msgspec

from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.rundir.storage.files import open_descriptor, open_plain, read_to_end
from tfckpt_trainer.rundir.storage.own_links import maker_of, open_named_descriptor

MOST_STEPS = 40
"""The longest chain of links that is followed; Linux has the same limit."""


LFS_LIMIT = 1024
"""Pointers of Git LFS have fewer bytes, by its specification."""

_END = 8
"""Bytes at the end of a file that tell its format."""

NOT_FETCHED = "it is a pointer of Git LFS"

LFS_BEGIN = b"version https://git-lfs.github.com/spec/v1\n"
"""What a pointer begins with."""


class NotFetchedError(OSError):
    """A file is a pointer of Git LFS: its content is elsewhere."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.ENODATA, f"{NOT_FETCHED}; fetch the file with `git lfs pull`", path)


class LinkEnd(StrEnum):
    """Where a symbolic link ends."""

    FILE = "file"
    """A regular file in the same directory."""
    MISSING = "missing"
    """A name in the same directory that does not exist."""
    ELSEWHERE = "elsewhere"
    """A regular file in another directory, by relative paths."""
    OUTSIDE = "outside"
    """Another directory, by an absolute path, by a link of another user, or at no file."""
    LOOP = "loop"
    NOT_A_FILE = "not-a-file"
    """A directory, pipe or device in the same directory."""


class Link(msgspec.Struct, frozen=True, order=True):
    """A symbolic link and where it ends.

    Attributes:
        name: Name of the link.
        target: Target path as stored in the link.
        file: Last name of the chain in the same directory; it may not exist. Empty if the chain
            leaves the directory or is a loop.
        modified_at: Modification time of the link itself, in seconds since the epoch.
        path: The file in another directory; empty if it is not followed there.
    """

    name: str
    target: str
    end: LinkEnd
    file: str = ""
    modified_at: float = 0.0
    path: str = ""


def follow_link(directory: str, name: str) -> tuple[Link, os.stat_result | None]:
    """Follows the symbolic link `name`.

    Returns:
        The link, and the `stat` result of the regular file that it ends at, if any.

    Raises:
        FileNotFoundError: The link does not exist.
        OSError: The directory cannot be read, or `name` is not a link.
    """
    own = os.path.join(directory, name)
    target, made_at = os.readlink(own), os.lstat(own).st_mtime
    end, file, seen = _end_of(directory, name, target)
    if end is LinkEnd.ELSEWHERE:
        return Link(name, target, end, "", made_at, file), seen
    return Link(name, target, end, file, made_at), seen


def open_inside(path: Path) -> BinaryIO:
    """Opens a regular file for reading; follows symbolic links as `follow_link` does.

    Raises:
        NotFetchedError: It is a pointer of Git LFS.
        FileNotFoundError: The file or the target of the link does not exist.
        DamagedFileError: The path or the target is not a regular file, or the links form a loop.
        OSError: The file cannot be read, or a link leads out of the directory by an absolute path.
    """
    return os.fdopen(open_descriptor_inside(path)[0], "rb")


def open_in_directory(path: Path) -> BinaryIO:
    """Opens a file as `open_inside` does, but no file of another directory.

    Raises:
        OSError: As `open_inside`, and if a link leads out of the directory by a relative path.
    """
    if os.path.islink(path):
        path = _target_of(path, may_leave=False)
    return open_plain(path)


def open_descriptor_inside(path: Path) -> tuple[int, int]:
    """Opens a file as `open_inside` does; returns its descriptor and its size."""
    descriptor, size = _open_inside(path)
    try:
        if size < LFS_LIMIT:
            check_content(path, os.pread(descriptor, size, 0))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor, size


def read_inside(path: Path | str, limit: int, check_end: Callable[[int, bytes], None]) -> bytes:
    """Reads a regular file; follows symbolic links as `follow_link` does.

    Args:
        path: The file.
        limit: Up to this size, it is read at once.
        check_end: Gets the size and the last bytes of a larger file before that is read.

    Raises:
        OSError: As `open_inside` does; so does `DamagedFileError`.
    """
    descriptor, size = _open_inside(path)
    try:
        if size > limit:
            check_end(size, os.pread(descriptor, _END, size - _END))
        data = read_to_end(descriptor, size)
        check_content(path, data)
        return data
    finally:
        os.close(descriptor)


def check_content(path: Path | str, data: bytes) -> None:
    """Checks that the content of a file is no pointer of Git LFS.

    Raises:
        NotFetchedError: It is one.
    """
    if len(data) < LFS_LIMIT and data.startswith(LFS_BEGIN):
        raise NotFetchedError(os.fspath(path))


def _open_inside(path: Path | str) -> tuple[int, int]:
    """Opens a file; returns its descriptor and its size."""
    try:
        descriptor, facts = open_descriptor(path)
    except DamagedFileError:
        if not os.path.islink(path):
            raise
        target = _target_of(Path(path))
        # From the link on, so that each of them is looked at again while it is followed.
        is_inside = target.parent == Path(path).parent
        descriptor, facts = open_descriptor(target) if is_inside else open_named_descriptor(path)
    return descriptor, facts.st_size


def _target_of(path: Path, *, may_leave: bool = True) -> Path:
    """Returns the file that a symbolic link leads to."""
    link, _ = follow_link(os.fspath(path.parent), path.name)
    if link.end is LinkEnd.OUTSIDE or (link.end is LinkEnd.ELSEWHERE and not may_leave):
        raise OSError(
            errno.ELOOP,
            "it is a symbolic link that leads out of the directory; put a copy of its file there",
            os.fspath(path),
        )
    if link.end is LinkEnd.ELSEWHERE:
        return Path(link.path)
    if link.end is LinkEnd.LOOP or link.end is LinkEnd.NOT_A_FILE:
        raise DamagedFileError(
            f"{path} is a symbolic link that does not lead to a file. "
            f"Remove it with `rm {shlex.quote(str(path))}`."
        )
    # Refuses the file if it was replaced by a link in the meantime.
    return path.with_name(link.file)


def leads_to_no_file(path: Path) -> bool:
    """Whether a path is a symbolic link that stays in its directory and ends at no file."""
    try:
        link, _ = follow_link(os.fspath(path.parent), path.name)
    except OSError:
        return False
    return link.end not in {LinkEnd.FILE, LinkEnd.ELSEWHERE, LinkEnd.OUTSIDE}


def stat_inside(path: Path | str) -> os.stat_result:
    """Returns the `stat` result of the file that `open_inside` would open.

    Raises:
        FileNotFoundError: There is no such file.
        OSError: The directory cannot be read.
    """
    seen = os.lstat(path)
    if not stat.S_ISLNK(seen.st_mode):
        return seen
    _, end = follow_link(*os.path.split(path))
    if end is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path))
    return end


def check_fetched(path: Path) -> None:
    """Checks that a file is no pointer of Git LFS; that it cannot be read is told elsewhere.

    Raises:
        NotFetchedError: It is one.
    """
    try:
        open_inside(path).close()
    except NotFetchedError:
        raise
    except (DamagedFileError, OSError):
        pass


def _end_of(directory: str, name: str, target: str) -> tuple[LinkEnd, str, os.stat_result | None]:
    """Returns where a link ends, the last name in the chain, and the `stat` of a regular file.

    For a file elsewhere, the name is its path.
    """
    for _ in range(MOST_STEPS):
        link = os.path.join(directory, name)
        name = _entry_of(directory, name, target)
        if not name:
            return _end_elsewhere(link, target)
        path = os.path.join(directory, name)
        seen = _facts(path)
        if seen is None:
            return LinkEnd.MISSING, name, None
        if stat.S_ISREG(seen.st_mode):
            return LinkEnd.FILE, name, seen
        if not stat.S_ISLNK(seen.st_mode):
            return LinkEnd.NOT_A_FILE, name, None
        target = os.readlink(path)
    return LinkEnd.LOOP, "", None


def _end_elsewhere(link: str, target: str) -> tuple[LinkEnd, str, os.stat_result | None]:
    """Follows a link out of its directory, by relative paths through plain directories only."""
    place = os.path.realpath(os.path.dirname(link))
    makers: set[int | None] = {None}
    for _ in range(MOST_STEPS):
        makers.add(maker_of(link, target))
        path = _plain_path(place, target)
        seen = _facts(path) if path else None
        if seen is None:
            break
        if stat.S_ISREG(seen.st_mode) and makers <= {None, seen.st_uid}:
            return LinkEnd.ELSEWHERE, path, seen
        if not stat.S_ISLNK(seen.st_mode):
            break
        link, place, target = path, os.path.dirname(path), os.readlink(path)
    return LinkEnd.OUTSIDE, "", None


def _plain_path(place: str, target: str) -> str:
    """Returns the path that a relative target leads to; empty if a directory of it is a link."""
    *directories, name = target.split("/")
    if os.path.isabs(target) or name in {"", os.curdir, os.pardir}:
        return ""
    for directory in directories:
        place = os.path.normpath(os.path.join(place, directory))
        if os.path.islink(place):
            return ""
    return os.path.join(place, name)


def _facts(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG}:
            return None
        raise


def _entry_of(directory: str, name: str, target: str) -> str:
    """Returns the entry of `directory` that the link `name` leads to; empty if it leads out."""
    head, tail = os.path.split(target)
    if tail in {"", os.curdir, os.pardir}:
        return ""
    if not head or os.path.normpath(head) == os.curdir:
        return tail
    real = os.path.realpath(directory)
    place = os.path.normpath(os.path.join(real, head))
    if place in {real, os.path.abspath(directory)}:
        return tail
    # The target may use another path to this directory. A file of that name must exist here
    # before the other path is touched: an unreachable disk would block this process.
    if tail == name or _facts(os.path.join(real, tail)) is None:
        return ""
    return tail if _is_same_directory(place, real) else ""


def _is_same_directory(place: str, real: str) -> bool:
    try:
        return os.path.samestat(os.stat(place), os.stat(real))
    except OSError:
        return False
