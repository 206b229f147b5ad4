"""Marks of the process that writes a temporary file, so that leftovers of dead processes are known.

A mark is part of a name: a file that is created has it from the beginning.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2s
from pathlib import Path

from tfckpt_trainer.rundir.heartbeats.process_ids import host_name, process_namespace
from tfckpt_trainer.rundir.heartbeats.process_table import runs_since, seconds_after_boot
from tfckpt_trainer.rundir.paths import WRITER
from tfckpt_trainer.rundir.storage.files import (
    create_directory,
    create_file,
    delete_file,
    delete_if_empty,
    delete_tree,
    move,
)

_LONGEST_NAME = 60
"""Characters of a name that a temporary name begins with; file systems allow 255 bytes."""

# Patterns are compiled when they are used: most commands find no mark.
_PATTERN = r"([0-9a-f]{12})-(\d{1,10})-(\d{1,18})"
"""Digest of the PID namespace, process ID, start of the process in milliseconds after boot.

The namespace is that of one boot. Of a clock that is set, the start since the epoch is another one.
"""

_TEMPORARY_NAME = r"(?s)\..*\.([0-9a-f-]+)\.tmp"


def own_mark() -> str:
    """Returns the mark of this process."""
    started = seconds_after_boot(os.getpid())
    return f"{_namespace_digest()}-{os.getpid()}-{round(started * 1000)}"


def is_writer_gone(mark: str) -> bool | None:
    """Whether a process has ended, by its mark; None if this machine cannot tell."""
    parts = re.fullmatch(_PATTERN, mark)
    if parts is None or parts[1] != _namespace_digest():
        return None
    return not runs_since(int(parts[2]), int(parts[3]) / 1000)


def temporary_path(path: Path) -> Path:
    """Returns a hidden path in the same directory, with the name of `path` and the own mark."""
    return path.with_name(f".{path.name[:_LONGEST_NAME]}.{own_mark()}.tmp")


def remove_leftovers(directory: Path) -> None:
    """Removes what processes that have ended left of temporary paths in a directory.

    A directory that is not empty has to hold the mark too: who may not write in it may still rename
    it.
    """
    for name in os.listdir(directory):
        parts = re.fullmatch(_TEMPORARY_NAME, name)
        if parts is None or not is_writer_gone(parts[1]):
            continue
        path = directory / name
        if not path.is_dir() or (path / f"{WRITER}{parts[1]}").exists():
            remove_temporary(path)
        else:
            delete_if_empty(path)


def remove_temporary(path: Path) -> None:
    """Removes a temporary file or directory, if it exists."""
    if path.is_dir() and not path.is_symlink():
        with suppress(OSError):
            delete_tree(path)
    else:
        delete_file(path)


@contextmanager
def temporary_directory(path: Path, *, is_private: bool = False) -> Iterator[Path]:
    """Makes a directory at `temporary_path(path)` with the mark in it, and removes it at the end.

    Args:
        path: What it will become or contain.
        is_private: Whether only its owner may use it; by default, who shares the parent may too.

    Raises:
        OSError: It cannot be made.
    """
    remove_leftovers(path.parent)
    with _new_directory(path, is_private=is_private) as temporary:
        yield temporary


@contextmanager
def _new_directory(path: Path, *, is_private: bool = False) -> Iterator[Path]:
    temporary = temporary_path(path)
    if os.path.lexists(temporary):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(temporary))
    # An interrupt may come as soon as it is made.
    try:
        create_directory(temporary, is_private=is_private)
        create_file(temporary / f"{WRITER}{own_mark()}").close()
        yield temporary
    finally:
        remove_temporary(temporary)


def make_marked(place: Path) -> None:
    """Makes a directory with the mark of this process; others never see it without.

    What processes that have ended left beside it stays: who makes many calls `remove_leftovers`
    once.

    Raises:
        FileExistsError: It exists.
        OSError: It cannot be made.
    """
    with _new_directory(place) as made:
        try:
            move(made, place)
        except OSError as error:
            if error.errno == errno.ENOTEMPTY:
                raise FileExistsError(
                    errno.EEXIST, os.strerror(errno.EEXIST), str(place)
                ) from error
            raise


def _namespace_digest() -> str:
    place = process_namespace() or host_name()
    return blake2s(place.encode(), digest_size=6).hexdigest()
