"""Detects whether another trainer or supervisor of a run is alive, including on other machines.

File locks may not work across the clients of a network file system, and the clocks of machines
differ. So a heartbeat that may be recent is watched: if its file changes, its writer is alive.
Ages are measured with the clock of the file system.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tfckpt_trainer.errors import DamagedFileError, RefusedError, UsageError
from tfckpt_trainer.rundir.heartbeats.attention import INTERVAL_SECONDS, look_at
from tfckpt_trainer.rundir.heartbeats.clock import file_system_time, load_heartbeat
from tfckpt_trainer.rundir.heartbeats.health import (
    ProcessProbe,
    heartbeat_age,
    lost_after,
)
from tfckpt_trainer.rundir.heartbeats.process_ids import is_pid_valid_here, process_namespace
from tfckpt_trainer.rundir.heartbeats.process_table import process_lives
from tfckpt_trainer.rundir.heartbeats.reading import read_workers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.run import SupervisorStatus
from tfckpt_trainer.rundir.records.worker import WorkerStatus
from tfckpt_trainer.rundir.storage.directory_changes import IDLE_SECONDS
from tfckpt_trainer.rundir.storage.files import file_time
from tfckpt_trainer.rundir.storage.filesystems import is_network_file_system

CERTAINLY_OLD_SECONDS = 60.0
"""Age at which a heartbeat is old without being watched, allowing for clock skew."""

WATCH_SECONDS = 3.0
"""Time for which a heartbeat is watched that is older than its interval allows."""

NETWORK_WATCH_SECONDS = 12.0
"""The same on a network disk, where this machine may see what it read ten seconds ago."""

LONGEST_WATCH_SECONDS = 20.0
"""Longest time for which a heartbeat is watched, whatever its interval is."""

_POLL_SECONDS = 0.1
_NETWORK_POLL_SECONDS = 0.5

_Beat = tuple[float, float]


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
            verdict = watch.judge(status, run.worker_status(status.index))
            if verdict is None:
                waiting = True
            elif verdict:
                return status
        if not waiting:
            return None
        if time.monotonic() - began > LONGEST_WATCH_SECONDS:
            live = (
                worker
                for worker in read_workers(run)
                if watch.judge(worker, run.worker_status(worker.index)) is not False
            )
            return next(live, None)
        sleep(watch.poll_seconds)


def find_other_supervisor(
    run: RunDirectory,
    *,
    lives: ProcessProbe = process_lives,
    sleep: Callable[[float], None] = time.sleep,
) -> SupervisorStatus | None:
    """Returns the heartbeat of a live supervisor other than this process; None if there is none.

    If its process ID is not visible here, its heartbeat is watched for at most
    `LONGEST_WATCH_SECONDS`.

    Args:
        run: The run directory.
        lives: Checks whether a process runs on this machine.
        sleep: Waits for a number of seconds.

    Raises:
        OSError: The directory cannot be read or written.
    """
    watch = _Watch(run, lives)
    began = time.monotonic()
    while True:
        try:
            status = load_heartbeat(run, run.supervisor_status, SupervisorStatus)
        except DamagedFileError:
            return None
        if status is None:
            return None
        verdict = watch.judge(status, run.supervisor_status)
        if verdict is None and time.monotonic() - began > LONGEST_WATCH_SECONDS:
            verdict = True
        if verdict is not None:
            return status if verdict else None
        sleep(watch.poll_seconds)


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
            f"`tfckpt-tui stop {run.shell_word}`, or use another directory."
        )


def refuse_another_run(run: RunDirectory, environment: Mapping[str, str]) -> None:
    """Raises an error if this process was launched to train in another run directory.

    Its supervisor, commands and the app would see no worker, and wait.

    Args:
        run: The run directory that the script uses.
        environment: The environment of this process.

    Raises:
        UsageError: The process was launched for another directory.
    """
    launched = environment.get("TFCKPT_RUN_DIR")
    # Users may set the directory themselves; the number of the start comes from a supervisor.
    if not launched or "TFCKPT_ATTEMPT" not in environment or _is_same(launched, run.root):
        return
    raise UsageError(
        f"The script trains in {run.root}, but it was launched for {launched}. Pass the same "
        "directory to `tfckpt-tui launch` and to the script, or none to the script."
    )


def _is_same(path: str, other: Path) -> bool:
    try:
        # One directory may be mounted in two places.
        return os.path.realpath(path) == str(other) or os.path.samefile(path, other)
    except OSError:
        return False


def heartbeat_age_on_disk(run: RunDirectory, index: int) -> float:
    """Returns the age of a heartbeat in seconds, by the clock of the file system.

    Raises:
        OSError: There is no heartbeat, or the directory cannot be written.
    """
    return _age_on_disk(run, run.worker_status(index))


def _age_on_disk(run: RunDirectory, path: Path) -> float:
    return file_system_time(run) / 1e9 - file_time(path)


class _Watch:
    """Watches heartbeats for changes."""

    def __init__(self, run: RunDirectory, lives: ProcessProbe) -> None:
        self._run = run
        self._lives = lives
        self._own = process_namespace()
        self._first: dict[Path, tuple[_Beat, float]] = {}
        self._is_network = is_network_file_system(run.root)
        look_at(run)

    @property
    def poll_seconds(self) -> float:
        """The pause between two looks."""
        return _NETWORK_POLL_SECONDS if self._is_network else _POLL_SECONDS

    def judge(self, status: WorkerStatus | SupervisorStatus, path: Path) -> bool | None:
        """Returns whether the writer of a heartbeat is alive; None while that is unknown."""
        if status.has_ended or self._is_this_process(status):
            return False
        if is_pid_valid_here(status):
            return self._lives(status.process)
        try:
            written = file_time(path)
            age = _age_on_disk(self._run, path)
        except FileNotFoundError:
            return False
        if isinstance(status, WorkerStatus) and status.measured_at is not None:
            # The steps of its chief tell of it, and its own file need not.
            age = min(age, heartbeat_age(status.updated_at, time.time()))
        identity = (written, status.updated_at)
        now = time.monotonic()
        seen, since = self._first.setdefault(path, (identity, now))
        if identity != seen:
            return True
        if age < lost_after(status):
            return None
        watched = NETWORK_WATCH_SECONDS if self._is_network else WATCH_SECONDS
        if status.lost_after_seconds is not None:
            # Until it has seen that this process looks.
            watched += IDLE_SECONDS + INTERVAL_SECONDS
        return False if age >= CERTAINLY_OLD_SECONDS or now - since >= watched else None

    def _is_this_process(self, status: WorkerStatus | SupervisorStatus) -> bool:
        return (
            status.pid == os.getpid()
            and is_pid_valid_here(status)
            and (not status.namespace or status.namespace == self._own)
        )
