"""Symbolic links in the place of checkpoint files: read within one directory, never written.

A link is untrusted input. It is followed to read, step by step, as long as every step stays in
the directory that holds it. A link that leads out of it is never opened.
"""

from __future__ import annotations

import errno
import os
import stat
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

import msgspec

from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.rundir.files import open_plain

MOST_STEPS = 40
"""Links in a chain that are followed, as many as Linux follows."""


class LinkEnd(StrEnum):
    """Where a symbolic link ends."""

    FILE = "file"
    """A regular file of the same directory."""
    MISSING = "missing"
    """A name of the same directory that does not exist."""
    OUTSIDE = "outside"
    """Another directory."""
    LOOP = "loop"
    NOT_A_FILE = "not-a-file"
    """A directory, a pipe or a device of the same directory."""


class Link(msgspec.Struct, frozen=True, order=True):
    """A symbolic link and where it ends.

    Attributes:
        name: Its own name.
        target: What it names, as written.
        file: The last name of its chain in the same directory, which need not exist; empty if
            the chain leaves the directory or has no end.
        modified_at: When the link itself was made, in seconds since the epoch.
    """

    name: str
    target: str
    end: LinkEnd
    file: str = ""
    modified_at: float = 0.0


def follow(directory: str, name: str) -> tuple[Link, os.stat_result | None]:
    """Follows the symbolic link `name` as long as it stays in `directory`.

    Returns:
        The link, and the facts of the regular file at its end if there is one.

    Raises:
        FileNotFoundError: The link is gone.
        OSError: The directory cannot be read, or `name` is no link any more.
    """
    own = os.path.join(directory, name)
    target, made_at = os.readlink(own), os.lstat(own).st_mtime
    end, file, seen = _end_of(directory, name, target)
    return Link(name, target, end, file, made_at), seen


def open_inside(path: Path) -> BinaryIO:
    """Opens a regular file for reading, through symbolic links that stay in its directory.

    Raises:
        FileNotFoundError: There is no such file, or a link leads to none.
        DamagedFileError: It is a directory or a device, or links lead to one or in a circle.
        OSError: It cannot be read, or a link leads out of the directory.
    """
    try:
        return open_plain(path)
    except DamagedFileError:
        if not path.is_symlink():
            raise
    link, _ = follow(os.fspath(path.parent), path.name)
    if link.end is LinkEnd.OUTSIDE:
        raise OSError(errno.ELOOP, "it is a symbolic link out of the directory", os.fspath(path))
    if link.end is LinkEnd.LOOP or link.end is LinkEnd.NOT_A_FILE:
        raise DamagedFileError(f"{path} is a symbolic link that leads to no file; remove it.")
    # If that name became a link meanwhile, it is refused: each look decides anew.
    return open_plain(path.with_name(link.file))


def facts_inside(path: Path) -> os.stat_result:
    """Returns the facts of the file that `open_inside` opens, without opening it.

    Raises:
        FileNotFoundError: It opens none.
        OSError: The directory cannot be read.
    """
    seen = os.lstat(path)
    if not stat.S_ISLNK(seen.st_mode):
        return seen
    _, end = follow(os.fspath(path.parent), path.name)
    if end is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path))
    return end


def _end_of(directory: str, name: str, target: str) -> tuple[LinkEnd, str, os.stat_result | None]:
    """Returns where a link ends, the last name of its chain, and the facts of a regular file."""
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
    """Returns which entry of `directory` the link `name` leads to, or nothing if it leads out."""
    head, tail = os.path.split(target)
    if tail in {"", os.curdir, os.pardir}:
        return ""
    if not head or os.path.normpath(head) == os.curdir:
        return tail
    real = os.path.realpath(directory)
    place = os.path.normpath(os.path.join(real, head))
    if place in {real, os.path.abspath(directory)}:
        return tail
    # The directory may have another path. Data that was moved to another disk keeps its name;
    # that disk is not touched, because one that does not answer would hang whoever looks.
    if tail == name or _facts(os.path.join(real, tail)) is None:
        return ""
    return tail if _is_same_directory(place, real) else ""


def _is_same_directory(place: str, real: str) -> bool:
    try:
        return os.path.samestat(os.stat(place), os.stat(real))
    except OSError:
        return False
