"""Worker processes: started in groups of their own, watched, and ended without a trace."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from tfckpt_trainer.launch.logs import open_log
from tfckpt_trainer.rundir.records import WorkerProcess

POLL_SECONDS = 0.05


@dataclass(frozen=True)
class RunningWorker:
    """One worker process, the leader of its own process group."""

    index: int
    process: subprocess.Popen[bytes]
    started_at: float

    def facts(self) -> WorkerProcess:
        """Returns what the supervisor's heartbeat says of it."""
        return WorkerProcess(
            index=self.index,
            pid=self.process.pid,
            process_started_at=self.started_at,
            exit_code=self.process.poll(),
        )


def start_worker(
    index: int,
    command: Sequence[str],
    environment: Mapping[str, str],
    working_directory: Path,
    log: Path,
    attempt: int,
) -> RunningWorker:
    """Starts one worker.

    Raises:
        OSError: The command cannot be run.
    """
    with open_log(log, attempt, command) as output:
        process = subprocess.Popen(
            command,
            cwd=working_directory,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return RunningWorker(index, process, _started_at(process.pid))


def end_workers(workers: Sequence[RunningWorker], grace_seconds: float) -> None:
    """Asks all workers to end, waits, and kills what is left of their process groups."""
    for worker in workers:
        if worker.process.poll() is None:
            signal_group(worker.process.pid, signal.SIGTERM)
    deadline = time.monotonic() + grace_seconds
    while time.monotonic() < deadline and any(w.process.poll() is None for w in workers):
        time.sleep(POLL_SECONDS)
    for worker in workers:
        # Also where the worker itself is gone: what it started may live.
        signal_group(worker.process.pid, signal.SIGKILL)
        worker.process.wait()


def signal_group(leader: int, number: signal.Signals) -> None:
    """Signals the process group of `leader`; one that is gone is passed over."""
    try:
        os.killpg(leader, number)
    except ProcessLookupError:
        return


def _started_at(pid: int) -> float:
    try:
        return psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:
        return time.time()
