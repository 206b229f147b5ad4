"""Reads the process table of this machine.

On Linux without psutil: its import takes as long as everything else that a command does.
"""

from __future__ import annotations

import os
from typing import NamedTuple


class ProcessFacts(NamedTuple):
    """What the process table says about a process.

    Attributes:
        started_at: When it was started, in seconds since the epoch.
        is_zombie: Whether it has exited, and nobody has waited for it.
        is_stopped: Whether a signal stopped it.
    """

    started_at: float
    is_zombie: bool
    is_stopped: bool


def find_process(pid: int) -> ProcessFacts | None:
    """Returns the facts of a process, or None if there is none with this ID.

    Raises:
        PermissionError: Other users may not see it.
    """
    if pid <= 0:
        return None
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name of the program comes before, in parentheses; it may contain any character.
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None if os.path.exists("/proc/stat") else _find_without_proc(pid)
    state, ticks = fields[0], int(fields[19])
    started_at = _boot_time() + ticks / os.sysconf("SC_CLK_TCK")
    return ProcessFacts(started_at, is_zombie=state == b"Z", is_stopped=state == b"T")


def process_user(pid: int) -> int | None:
    """Returns the ID of the user as whom a process acts; None if there is no such process."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            return next(int(line.split()[2]) for line in file if line.startswith(b"Uid:"))
    except (FileNotFoundError, ProcessLookupError):
        return None if os.path.exists("/proc/stat") else _user_without_proc(pid)


def _user_without_proc(pid: int) -> int | None:
    import psutil

    try:
        return psutil.Process(pid).uids().effective
    except psutil.NoSuchProcess:
        return None


def _boot_time() -> float:
    """Returns when this machine was started, by its present clock."""
    with open("/proc/stat", "rb") as file:
        return next(float(line.split()[1]) for line in file if line.startswith(b"btime "))


def _find_without_proc(pid: int) -> ProcessFacts | None:
    import psutil

    try:
        process = psutil.Process(pid)
        started_at, status = process.create_time(), process.status()
    except psutil.AccessDenied as error:
        raise PermissionError(str(error)) from error
    except psutil.NoSuchProcess:
        return None
    return ProcessFacts(started_at, status == psutil.STATUS_ZOMBIE, status == psutil.STATUS_STOPPED)
