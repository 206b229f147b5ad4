"""Timestamps of worker logs, recorded beside the log as pairs of time and size.

The output of workers has no timestamps. The first line of `worker-0.times` is the inode of the
log. Each further line is a time in seconds since the epoch and the size of the log in bytes.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.rundir.storage.disk import disk
from tfckpt_trainer.rundir.storage.files import open_plain, write_atomic

RECORD_SECONDS = 0.5
"""Interval at which the size of a growing log is recorded."""

IDLE_RECORD_SECONDS = 20.0
"""The same on a network disk while nobody looks at the run."""

IDLE_LOG_SECONDS = 5.0
"""The same for each log, if there are many."""

MAX_RECORDS = 8192
"""Number of records beyond which every second of the older ones is dropped."""

_LONGEST_LINE = 40
_READ_LIMIT = 2 * MAX_RECORDS * _LONGEST_LINE


@dataclass(frozen=True)
class LogTimes:
    """The recorded times and sizes of one log, oldest first.

    Attributes:
        inode: Inode of the log; None if nothing is recorded.
        moments: Times in seconds since the epoch.
        sizes: Sizes of the log at these times, in bytes.
    """

    inode: int | None = None
    moments: tuple[float, ...] = ()
    sizes: tuple[int, ...] = ()

    def printed_at(self, end: int) -> float | None:
        """Returns the first time by which the log had `end` bytes; None if not recorded yet."""
        place = bisect_left(self.sizes, end)
        return self.moments[place] if place < len(self.moments) else None


def times_path(log: Path) -> Path:
    """Returns the path of the times file of a log."""
    return log.with_suffix(".times")


def read_log_times(log: Path) -> LogTimes:
    """Reads the times of a log; empty if the file is missing or invalid."""
    try:
        with open_plain(times_path(log)) as file:
            lines = file.read(_READ_LIMIT).split(b"\n")
        inode = int(lines[0].removeprefix(b"inode "))
    except (OSError, DamagedFileError, ValueError):
        return LogTimes()
    moments: list[float] = []
    sizes: list[int] = []
    for line in lines[1:]:
        with suppress(ValueError):
            moment, size = line.split(b" ")
            note = float(moment), int(size)
            # A line truncated by a full disk must not break the order of the others.
            if not sizes or note[1] >= sizes[-1]:
                moments.append(note[0])
                sizes.append(note[1])
    return LogTimes(inode, tuple(moments), tuple(sizes))


def idle_record_seconds(count: int) -> float:
    """Returns the interval for so many logs on a network disk while nobody looks."""
    return max(IDLE_RECORD_SECONDS, IDLE_LOG_SECONDS * count)


class LogTimesRecorder:
    """Records the times and sizes of growing logs."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._recorded_at = float("-inf")
        self._known: dict[Path, tuple[int, int, int]] = {}

    def record_if_due(self, logs: Collection[Path], *, is_looked_at: bool = True) -> None:
        """Records the sizes of `logs`, if that is due.

        Args:
            logs: The logs.
            is_looked_at: Whether somebody looks at the run; otherwise it is due more rarely.
        """
        now = self._clock()
        pause = RECORD_SECONDS if is_looked_at else idle_record_seconds(len(logs))
        if not 0 <= now - self._recorded_at < pause:
            self.record(logs)

    def record(self, logs: Iterable[Path]) -> None:
        """Records the sizes of those `logs` that grew or were replaced."""
        self._recorded_at = self._clock()
        for log in logs:
            # Times are optional, so a disk error only leaves a gap.
            with suppress(OSError, DamagedFileError):
                self._record_one(log)

    def _record_one(self, log: Path) -> None:
        facts = log.stat()
        inode, size, count = self._known.get(log) or _last_record(log)
        if inode == facts.st_ino and size == facts.st_size:
            return
        path = times_path(log)
        line = f"{self._recorded_at:.2f} {facts.st_size}\n"
        if inode != facts.st_ino or facts.st_size < size:
            write_atomic(path, f"inode {facts.st_ino}\n{line}".encode(), durable=False)
            count = 1
        else:
            _append(path, line.encode())
            count += 1
        if count > MAX_RECORDS:
            count = _thin_out(log)
        self._known[log] = facts.st_ino, facts.st_size, count


def _append(path: Path, line: bytes) -> None:
    try:
        descriptor = disk().open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)
    except PermissionError:
        # It is of a colleague who launched before.
        with open_plain(path) as old:
            write_atomic(path, old.read(_READ_LIMIT) + line, durable=False)
        return
    with os.fdopen(descriptor, "ab") as file:
        file.write(line)


def _last_record(log: Path) -> tuple[int, int, int]:
    times = read_log_times(log)
    if times.inode is None or not times.sizes:
        return 0, 0, 0
    return times.inode, times.sizes[-1], len(times.sizes)


def _thin_out(log: Path) -> int:
    times = read_log_times(log)
    notes = list(zip(times.moments, times.sizes, strict=True))
    settled = len(notes) * 3 // 4
    notes = [*notes[:settled:2], *notes[settled:]]
    lines = [f"inode {times.inode}", *(f"{moment:.2f} {size}" for moment, size in notes), ""]
    write_atomic(times_path(log), "\n".join(lines).encode(), durable=False)
    return len(notes)
