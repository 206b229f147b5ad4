"""Symbolic links in place of checkpoint files: followed for reading, within one directory only.

Links are untrusted input. A link that leads out of its directory is never opened.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

import msgspec

from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.rundir.files import open_plain

MOST_STEPS = 40
"""The longest chain of links that is followed; Linux has the same limit."""


class LinkEnd(StrEnum):
    """Where a symbolic link ends."""

    FILE = "file"
    """A regular file in the same directory."""
    MISSING = "missing"
    """A name in the same directory that does not exist."""
    OUTSIDE = "outside"
    """Another directory."""
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
    """

    name: str
    target: str
    end: LinkEnd
    file: str = ""
    modified_at: float = 0.0


def follow_link(directory: str, name: str) -> tuple[Link, os.stat_result | None]:
    """Follows the symbolic link `name` while it stays in `directory`.

    Returns:
        The link, and the `stat` result of the regular file that it ends at, if any.

    Raises:
        FileNotFoundError: The link does not exist.
        OSError: The directory cannot be read, or `name` is not a link.
    """
    own = os.path.join(directory, name)
    target, made_at = os.readlink(own), os.lstat(own).st_mtime
    end, file, seen = _end_of(directory, name, target)
    return Link(name, target, end, file, made_at), seen


def open_inside(path: Path) -> BinaryIO:
    """Opens a regular file for reading; follows symbolic links that stay in its directory.

    Raises:
        FileNotFoundError: The file or the target of the link does not exist.
        DamagedFileError: The path or the target is not a regular file, or the links form a loop.
        OSError: The file cannot be read, or a link leads out of the directory.
    """
    try:
        return open_plain(path)
    except DamagedFileError:
        if not path.is_symlink():
            raise
    link, _ = follow_link(os.fspath(path.parent), path.name)
    if link.end is LinkEnd.OUTSIDE:
        raise OSError(
            errno.ELOOP, "it is a symbolic link that leads out of the directory", os.fspath(path)
        )
    if link.end is LinkEnd.LOOP or link.end is LinkEnd.NOT_A_FILE:
        raise DamagedFileError(
            f"{path} is a symbolic link that does not lead to a file. "
            f"Remove it with `rm {shlex.quote(str(path))}`."
        )
    # Refuses the file if it was replaced by a link in the meantime.
    return open_plain(path.with_name(link.file))


def leads_to_no_file(path: Path) -> bool:
    """Whether a path is a symbolic link that stays in its directory and ends at no file."""
    try:
        link, _ = follow_link(os.fspath(path.parent), path.name)
    except OSError:
        return False
    return link.end not in {LinkEnd.FILE, LinkEnd.OUTSIDE}


def stat_inside(path: Path) -> os.stat_result:
    """Returns the `stat` result of the file that `open_inside` would open.

    Raises:
        FileNotFoundError: There is no such file.
        OSError: The directory cannot be read.
    """
    seen = os.lstat(path)
    if not stat.S_ISLNK(seen.st_mode):
        return seen
    _, end = follow_link(os.fspath(path.parent), path.name)
    if end is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path))
    return end


def _end_of(directory: str, name: str, target: str) -> tuple[LinkEnd, str, os.stat_result | None]:
    """Returns where a link ends, the last name in the chain, and the `stat` of a regular file."""
    for _ in range(MOST_STEPS):
        name = _entry_of(directory, name, target)
        if not name:
            return LinkEnd.OUTSIDE, "", None
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
