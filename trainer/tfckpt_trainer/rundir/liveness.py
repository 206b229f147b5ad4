"""Detects whether another trainer of a run is alive, including trainers on other machines.

File locks may not work across the clients of a network file system, and the clocks of machines
differ. So a heartbeat that may be recent is watched: if its file changes, the trainer is alive.
Ages are measured with the clock of the file system.
"""

from __future__ import annotations

import os
import shlex
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
from tfckpt_trainer.rundir.processes import pid_is_visible, process_namespace
from tfckpt_trainer.rundir.records.worker import Activity, WorkerStatus

CERTAINLY_OLD_SECONDS = 60.0
"""Age at which a heartbeat is old without being watched, allowing for clock skew."""

WATCH_SECONDS = 3.0
"""Time for which a heartbeat is watched that is older than its interval allows."""

LONGEST_WATCH_SECONDS = 10.0
"""Longest time for which a heartbeat is watched, whatever its interval is."""

_POLL_SECONDS = 0.1

Identity = tuple[int, int, int]


def find_other_trainer(
    run: RunDirectory,
    index: int | None = None,
    *,
    lives: ProcessProbe = process_lives,
    sleep: Callable[[float], None] = time.sleep,
) -> WorkerStatus | None:
    """Returns the heartbeat of a live worker other than this process; None if there is none.

    If the process ID of a worker is not visible here, its heartbeat is watched for at most
    `LONGEST_WATCH_SECONDS`.

    Args:
        run: The run directory.
        index: Consider only this worker; None considers all.
        lives: Checks whether a process runs on this machine.
        sleep: Waits for a number of seconds.

    Raises:
        OSError: The directory cannot be read or written.
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
            live = (one for one in read_workers(run) if watch.judge(one) is not False)
            return next(live, None)
        sleep(_POLL_SECONDS)


def refuse_another_trainer(run: RunDirectory, index: int) -> None:
    """Raises an error if another process is worker `index` of the run.

    Call this before the first heartbeat, which would overwrite the other one.

    Raises:
        RefusedError: Another process writes these heartbeats.
        OSError: The directory cannot be read or written.
    """
    other = find_other_trainer(run, index)
    if other is not None:
        raise RefusedError(
            f"Another trainer is running in {run.root}: worker {other.index} on {other.host} "
            f"(process {other.pid}) writes heartbeats. Stop it with "
            f"`tfckpt-tui stop {shlex.quote(str(run.root))}`, or use another directory."
        )


def heartbeat_age_on_disk(run: RunDirectory, index: int) -> float:
    """Returns the age of a heartbeat in seconds, by the clock of the file system.

    Raises:
        OSError: There is no heartbeat, or the directory cannot be written.
    """
    return (_file_system_time(run) - os.lstat(run.worker_status(index)).st_mtime_ns) / 1e9


class _Watch:
    """Watches heartbeats for changes."""

    def __init__(self, run: RunDirectory, lives: ProcessProbe) -> None:
        self._run = run
        self._lives = lives
        self._own = process_namespace()
        self._first: dict[int, tuple[Identity, float]] = {}

    def judge(self, status: WorkerStatus) -> bool | None:
        """Returns whether a worker is alive; None while that is unknown."""
        if status.activity is Activity.EXITED or self._is_this_process(status):
            return False
        if pid_is_visible(status):
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
            and pid_is_visible(status)
            and (not status.namespace or status.namespace == self._own)
        )


def _file_system_time(run: RunDirectory) -> int:
    """Returns the time of the file system in nanoseconds since the epoch."""
    probe = run.control / f".clock.{uuid4().hex}.tmp"
    try:
        descriptor = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except OSError:
        # A full disk takes no new file, but the time of an existing file can be updated.
        return _touch_lock(run)
    try:
        os.utime(descriptor)
        return os.fstat(descriptor).st_mtime_ns
    finally:
        os.close(descriptor)
        probe.unlink(missing_ok=True)


def _touch_lock(run: RunDirectory) -> int:
    descriptor = os.open(run.trainer_lock, os.O_WRONLY | os.O_NOFOLLOW)
    try:
        os.utime(descriptor)
        return os.fstat(descriptor).st_mtime_ns
    finally:
        os.close(descriptor)
