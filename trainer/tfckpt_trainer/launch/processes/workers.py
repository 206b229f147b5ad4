"""Worker processes: each starts in its own process group, and the whole group is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

import psutil

from tfckpt_trainer.rundir.heartbeats.process_table import by_present_clock, seconds_after_boot
from tfckpt_trainer.rundir.records.run import WorkerProcess

POLL_SECONDS = 0.05

KILL_SECONDS = 5.0
"""How long to wait for a killed process; one that hangs in the kernel takes longer."""


class Process(Protocol):
    """The part of `subprocess.Popen` that is used here."""

    pid: int

    def poll(self) -> int | None:
        """Returns the exit status, negative for a signal; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Waits until it has ended, or raises `subprocess.TimeoutExpired`."""


class Worker(Protocol):
    """One worker process, on this machine or another."""

    @property
    def index(self) -> int:
        """Number of the worker."""

    @property
    def pid(self) -> int:
        """Its process ID on its machine; 0 while unknown."""

    @property
    def exit_code(self) -> int | None:
        """Exit status, negative for a signal; None while it runs."""

    @property
    def is_silent(self) -> bool:
        """Whether it counts as ended only because it sends no more messages."""

    def kill(self) -> None:
        """Kills it and the processes that it started."""

    def facts(self) -> WorkerProcess:
        """Returns its entry in the supervisor's heartbeat."""


class RunningWorker:
    """One worker process, the leader of its own process group."""

    is_silent = False

    def __init__(self, index: int, process: Process) -> None:
        self.index = index
        self.pid = process.pid
        self.after_boot = seconds_after_boot(process.pid)
        self._process = process
        self._group_gone = False

    @property
    def exit_code(self) -> int | None:
        """Exit status, negative for a signal; None while it runs."""
        return self._process.poll()

    @property
    def started_at(self) -> float:
        """When it was started, in seconds since the epoch, by the present clock."""
        return by_present_clock(self.after_boot)

    @property
    def group_lives(self) -> bool:
        """Whether the worker or a process in its group still runs."""
        if self._process.poll() is None:
            return True
        if not self._group_gone:
            # Once it is empty, others may get its id: it is never checked again.
            self._group_gone = not _has_members(self.pid)
        return not self._group_gone

    def signal(self, number: signal.Signals) -> None:
        """Signals the worker and what it started, if any of it lives."""
        if self.group_lives:
            signal_group(self.pid, number)

    def kill(self) -> None:
        """Kills the group, and waits for the worker itself."""
        self.signal(signal.SIGKILL)
        try:
            self._process.wait(KILL_SECONDS)
        except subprocess.TimeoutExpired:
            return  # It hangs in the kernel; the heartbeat goes on listing it as running.
        self._group_gone = True

    def facts(self) -> WorkerProcess:
        """Returns its entry in the supervisor's heartbeat."""
        return WorkerProcess(
            index=self.index,
            pid=self.pid,
            process_started_at=self.started_at,
            process_after_boot=self.after_boot,
            exit_code=self.exit_code,
        )


def start_worker(
    index: int,
    command: Sequence[str],
    environment: Mapping[str, str],
    working_directory: Path,
    output: BinaryIO,
    before_command: Callable[[], None] | None = None,
) -> RunningWorker:
    """Starts one worker.

    Args:
        index: Its number.
        command: Its command.
        environment: Variables that are added to those of this process.
        working_directory: Where the command runs.
        output: The open file that its output goes to.
        before_command: Runs in the new process, before the command.

    Raises:
        OSError: The command cannot be run.
    """
    process = subprocess.Popen(
        command,
        cwd=working_directory,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=before_command,
    )
    return RunningWorker(index, process)


def end_workers(
    workers: Sequence[RunningWorker],
    grace_seconds: float,
    while_waiting: Callable[[], None] = lambda: None,
) -> list[int]:
    """Asks all workers to exit, waits, and kills the rest of their process groups.

    Processes that a worker started get the grace period too. If the command is a shell script,
    the shell exits at once and its child is the one that saves.

    Args:
        workers: All workers of a run.
        grace_seconds: Seconds between the request and the kill; 0 kills at once.
        while_waiting: Called every `POLL_SECONDS`.

    Returns:
        Indexes of the workers with a killed process.
    """
    if grace_seconds > 0:
        for worker in workers:
            worker.signal(signal.SIGTERM)
    deadline = time.monotonic() + grace_seconds
    while any(worker.group_lives for worker in workers) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        while_waiting()
    killed = [worker.index for worker in workers if worker.group_lives]
    for worker in workers:
        worker.kill()
    return killed


def signal_group(leader: int, number: signal.Signals) -> None:
    """Signals the process group of `leader`, if it still exists."""
    try:
        os.killpg(leader, number)
    except ProcessLookupError:
        return


def _has_members(group: int) -> bool:
    """Whether a process group has a member that is not a zombie."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    # The signal also reaches zombies.
    return any(_lives_in(process, group) for process in psutil.process_iter())


def _lives_in(process: psutil.Process, group: int) -> bool:
    try:
        return os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, psutil.NoSuchProcess):
        return False
