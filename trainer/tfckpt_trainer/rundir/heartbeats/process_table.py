"""Reads the process table of this machine.

On Linux without psutil: its import takes as long as everything else that a command does.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec

from tfckpt_trainer.rundir.records.process import ProcessIdentity, is_same_start

_SAME_SECONDS = 0.05
"""By how much the clock may drift until it counts as set."""

_known_boot = 0.0


class ProcessFacts(msgspec.Struct, frozen=True):
    """What the process table says about a process.

    Attributes:
        pid: Its process ID.
        after_boot: How many seconds after the machine it was started; no clock changes that.
        is_zombie: Whether it has exited, and nobody has waited for it.
        is_stopped: Whether a signal stopped it.
    """

    pid: int
    after_boot: float
    is_zombie: bool
    is_stopped: bool

    @property
    def started_at(self) -> float:
        """When it was started, in seconds since the epoch, by the present clock."""
        return by_present_clock(self.after_boot)

    @property
    def process(self) -> ProcessIdentity:
        """The process, with its start by the present clock."""
        return ProcessIdentity(self.pid, self.started_at, self.after_boot)


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
    after_boot = ticks / os.sysconf("SC_CLK_TCK")
    return ProcessFacts(pid, after_boot, is_zombie=state == b"Z", is_stopped=state == b"T")


def runs(pid: int, is_it: Callable[[ProcessFacts], bool]) -> bool:
    """Whether a process with this ID runs on this machine, and is the right one.

    One that other users may not see counts as such.
    """
    try:
        found = find_process(pid)
    except PermissionError:
        return True
    return found is not None and not found.is_zombie and is_it(found)


def process_lives(process: ProcessIdentity) -> bool:
    """Whether a process of this machine runs, and not a later one with the same ID."""
    return runs(process.pid, lambda found: process.is_same(found.process))


def own_process() -> ProcessIdentity:
    """Returns this process, with its start by the present clock.

    After that was set, its start since the epoch is another one: heartbeats tell it anew.
    """
    pid = os.getpid()
    after_boot = seconds_after_boot(pid)
    return ProcessIdentity(pid, by_present_clock(after_boot), after_boot)


def runs_since(pid: int, after_boot: float) -> bool:
    """Whether the process runs on this machine that was started `after_boot` seconds after it."""
    return runs(pid, lambda found: is_same_start(found.after_boot, after_boot))


def seconds_after_boot(pid: int) -> float:
    """Returns how long after the machine a process was started; till now if it has gone."""
    with suppress(PermissionError):
        found = find_process(pid)
        if found is not None:
            return found.after_boot
    return time.time() - _booted_at()


def by_present_clock(after_boot: float) -> float:
    """Returns that time after the start of the machine in seconds since the epoch."""
    return _booted_at() + after_boot


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


def _booted_at() -> float:
    """Returns when this machine was started, by its present clock.

    That is the same each time, unless the clock was set or has drifted.
    """
    global _known_boot
    if not hasattr(time, "CLOCK_BOOTTIME"):
        import psutil

        return psutil.boot_time()
    while True:
        before = time.clock_gettime(time.CLOCK_BOOTTIME)
        booted = time.time() - before
        # Else this process was interrupted between the two.
        if time.clock_gettime(time.CLOCK_BOOTTIME) - before < _SAME_SECONDS / 10:
            break
    if abs(booted - _known_boot) >= _SAME_SECONDS:
        _known_boot = booted
    return _known_boot


def _find_without_proc(pid: int) -> ProcessFacts | None:
    import psutil

    try:
        process = psutil.Process(pid)
        after_boot, status = process.create_time() - psutil.boot_time(), process.status()
    except psutil.AccessDenied as error:
        raise PermissionError(str(error)) from error
    except psutil.NoSuchProcess:
        return None
    return ProcessFacts(
        pid,
        after_boot,
        is_zombie=status == psutil.STATUS_ZOMBIE,
        is_stopped=status == psutil.STATUS_STOPPED,
    )
