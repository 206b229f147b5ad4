"""The files that a process of this machine has open."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_DELETED = " (deleted)"


class OpenFile(NamedTuple):
    """A file that a process has open.

    Attributes:
        descriptor: Its number in the process.
        path: Its path; the one it had, if it was deleted.
        writes: Whether it is open for writing; assumed where the system does not tell.
        is_deleted: Whether it was deleted; False where the system does not tell.
    """

    descriptor: int
    path: str
    writes: bool
    is_deleted: bool = False


def open_files(pid: int, below: str = "/") -> Iterator[OpenFile]:
    """Yields the files that a process has open.

    Args:
        pid: Its process ID.
        below: What their paths begin with.

    Raises:
        OSError: The process has ended, or this user may not see its files.
        psutil.Error: The same, where there is no `/proc`.
    """
    return _in_proc(pid, below) if _PROC.is_dir() else _without_proc(pid, below)


def _in_proc(pid: int, below: str) -> Iterator[OpenFile]:
    """Reads `/proc` only: touching an open file on a dead server would hang."""
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            path = os.readlink(f"/proc/{pid}/fd/{number}")
            if path.startswith(below):
                writes = _writes(f"/proc/{pid}/fdinfo/{number}")
                deleted = path.endswith(_DELETED)
                yield OpenFile(int(number), path.removesuffix(_DELETED), writes, deleted)
        except FileNotFoundError:
            # It has been closed.
            continue


def _writes(info: str) -> bool:
    with open(info, "rb") as file:
        for line in file:
            if line.startswith(b"flags:"):
                return int(line.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
    return False


def _without_proc(pid: int, below: str) -> Iterator[OpenFile]:
    import psutil

    for opened in psutil.Process(pid).open_files():
        if opened.path.startswith(below):
            # Only Linux reports the mode.
            yield OpenFile(opened.fd, opened.path, getattr(opened, "mode", "r+") != "r")
