"""Directories with all that is below them. Others may have made them, of any depth."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from uuid import uuid4

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def walk(directory: str | os.PathLike[str]) -> Iterator[tuple[str, list[str]]]:
    """Yields each directory of a tree, and the names of what is in it but directories.

    A directory comes before those in it. No link in it is followed, and what cannot be read is left
    out.
    `os.walk` of Python 3.11 ends with a `RecursionError` in a tree of a thousand levels.
    """
    waiting = [os.fspath(directory)]
    while waiting:
        place = waiting.pop()
        try:
            with os.scandir(place) as entries:
                found = list(entries)
        except OSError:
            continue
        names = []
        for entry in found:
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
            else:
                names.append(entry.name)
        yield place, names


def remove_tree(parent: int | None, name: str, *, only_directories: bool = False) -> None:
    """Removes a directory with all that is in it. Follows no link.

    What is in a directory below it moves up first. So two directories are open, whatever the depth.

    Args:
        parent: The open directory in which it is; None if the name is a whole path.
        name: Its name there.
        only_directories: Whether to remove nothing but directories, and to end at anything else.

    Raises:
        OSError: It is no directory, or something in it cannot be removed, or is not to be.
    """
    top = os.open(name, _DIRECTORY, dir_fd=parent)
    try:
        waiting = _remove_files(top, top, only_directories=only_directories)
        while waiting:
            inner = waiting.pop()
            descriptor = os.open(inner, _DIRECTORY, dir_fd=top)
            try:
                waiting += _remove_files(descriptor, top, only_directories=only_directories)
            finally:
                os.close(descriptor)
            os.rmdir(inner, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=parent)


def _remove_files(directory: int, top: int, *, only_directories: bool) -> list[str]:
    """Removes what is in a directory but directories; returns the names of those, now in `top`."""
    with os.scandir(directory) as entries:
        found = list(entries)
    inner = []
    for entry in found:
        if not entry.is_dir(follow_symlinks=False):
            if only_directories:
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), entry.name)
            os.unlink(entry.name, dir_fd=directory)
        elif directory == top:
            inner.append(entry.name)
        elif not _remove_if_empty(entry.name, directory):
            moved = uuid4().hex
            os.rename(entry.name, moved, src_dir_fd=directory, dst_dir_fd=top)
            inner.append(moved)
    return inner


def _remove_if_empty(name: str, directory: int) -> bool:
    try:
        os.rmdir(name, dir_fd=directory)
    except OSError as error:
        if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
            raise
        return False
    return True
