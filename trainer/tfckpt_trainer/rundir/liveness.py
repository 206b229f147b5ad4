"""Whether a trainer of a run lives, by the clock of the file system and not by that of a machine.

A lock need not be shared between the clients of a network file system, and the clocks of two
machines differ. What both sides see is the file of the heartbeat: it is replaced about once a
second. So a heartbeat that may be fresh is watched until it beats again or is certainly old.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from uuid import uuid4

from tfckpt_trainer.errors import RefusedError
from tfckpt_trainer.rundir.health import (
    LOST_AFTER_INTERVALS,
    ProcessProbe,
    process_lives,
    read_workers,
)
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.processes import is_seen_from_here, process_namespace
from tfckpt_trainer.rundir.records.worker import Activity, WorkerStatus

CERTAINLY_OLD_SECONDS = 60.0
"""A heartbeat of this age is not waited for, even where the times of a file system are skewed."""

WATCH_SECONDS = 3.0
"""For so long a heartbeat is watched whose age alone would say that it is old."""

LONGEST_WATCH_SECONDS = 10.0
"""Nobody waits longer, whatever a heartbeat says of its interval."""

_LOOK_SECONDS = 0.1

Identity = tuple[int, int, int]


def other_trainer_lives(
    run: RunDirectory,
    index: int | None = None,
    *,
    lives: ProcessProbe = process_lives,
    sleep: Callable[[float], None] = time.sleep,
) -> WorkerStatus | None:
    """Returns the heartbeat of a worker that lives, other than this process; None if none does.

    A worker has ended if it says so, or if its process is gone from the processes that this one
    can see. Otherwise its heartbeat is watched, for at most `LONGEST_WATCH_SECONDS`.

    Args:
        run: The run directory.
        index: Only this worker.
        lives: Whether a process of this machine lives.
        sleep: How to wait.

    Raises:
        OSError: The directory cannot be read or written to.
    """
    watch = _Watch(run, lives)
    began = time.monotonic()
    while True:
        waiting = False
        for status in read_workers(run):
            if index is not None and status.index != index:
                continue
            verdict = watch.judge(status)
            if verdict is None:
                waiting = True
            elif verdict:
                return status
        if not waiting:
            return None
        if time.monotonic() - began > LONGEST_WATCH_SECONDS:
            return next(s for s in read_workers(run) if watch.judge(s) is not False)
        sleep(_LOOK_SECONDS)


def refuse_another_trainer(run: RunDirectory, index: int) -> None:
    """Makes sure that no other process is worker `index` of the run.

    A worker that starts calls this before its own first heartbeat, which would replace that of
    the other one.

    Raises:
        RefusedError: Another one writes heartbeats.
        OSError: The directory cannot be read or written to.
    """
    other = other_trainer_lives(run, index)
    if other is not None:
        raise RefusedError(
            f"Another trainer works in {run.root}: worker {other.index} on {other.host} (process "
            f"{other.pid}) writes heartbeats. Stop it with `tfckpt-tui stop {run.root}`, or train "
            "in another directory."
        )


def heartbeat_age_on_disk(run: RunDirectory, index: int) -> float:
    """Returns how old a heartbeat is in seconds, both times given by the file system.

    Raises:
        OSError: There is none, or the directory cannot be written to.
    """
    return (_file_system_time(run) - os.lstat(run.worker_status(index)).st_mtime_ns) / 1e9


class _Watch:
    """Looks at heartbeats again and again."""

    def __init__(self, run: RunDirectory, lives: ProcessProbe) -> None:
        self._run = run
        self._lives = lives
        self._own = process_namespace()
        self._first: dict[int, tuple[Identity, float]] = {}

    def judge(self, status: WorkerStatus) -> bool | None:
        """Returns whether a worker lives; None while that is not known."""
        if status.activity is Activity.EXITED or self._is_this_process(status):
            return False
        if is_seen_from_here(status):
            return self._lives(status.pid, status.process_started_at)
        try:
            facts = os.lstat(self._run.worker_status(status.index))
            age = heartbeat_age_on_disk(self._run, status.index)
        except FileNotFoundError:
            return False
        identity = (facts.st_size, facts.st_mtime_ns, facts.st_ino)
        now = time.monotonic()
        seen, since = self._first.setdefault(status.index, (identity, now))
        if identity != seen:
            return True
        limit = LOST_AFTER_INTERVALS * status.interval_seconds
        if age < limit:
            return None
        return False if age >= CERTAINLY_OLD_SECONDS or now - since >= WATCH_SECONDS else None

    def _is_this_process(self, status: WorkerStatus) -> bool:
        return (
            status.pid == os.getpid()
            and is_seen_from_here(status)
            and (not status.namespace or status.namespace == self._own)
        )


def _file_system_time(run: RunDirectory) -> int:
    """Returns what time it is for the file system, in nanoseconds since the epoch."""
    probe = run.control / f".clock.{uuid4().hex}.tmp"
    try:
        descriptor = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except OSError:
        # A full disk takes no new file. The time of one that is there can still be set to now.
        return _touched(run)
    try:
        os.utime(descriptor)
        return os.fstat(descriptor).st_mtime_ns
    finally:
        os.close(descriptor)
        probe.unlink(missing_ok=True)


def _touched(run: RunDirectory) -> int:
    descriptor = os.open(run.trainer_lock, os.O_WRONLY | os.O_NOFOLLOW)
    try:
        os.utime(descriptor)
        return os.fstat(descriptor).st_mtime_ns
    finally:
        os.close(descriptor)
