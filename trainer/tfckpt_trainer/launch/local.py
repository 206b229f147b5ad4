"""Launches a run on this machine: a detached supervisor, which starts the workers."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import msgspec
from filelock import FileLock, Timeout

from tfckpt_trainer.catalog.files import look
from tfckpt_trainer.errors import LaunchError, TfckptError, UsageError
from tfckpt_trainer.launch.cluster import check_ports
from tfckpt_trainer.launch.logs import last_lines, open_log
from tfckpt_trainer.launch.options import LaunchOptions, encode_options
from tfckpt_trainer.launch.workers import signal_group
from tfckpt_trainer.rundir.documents import load_if_there, store
from tfckpt_trainer.rundir.health import is_live, read_workers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records import (
    Activity,
    RunInfo,
    SupervisorState,
    SupervisorStatus,
)

SUPERVISOR_SECONDS = 20.0
"""How long the supervisor has to come up."""

SETTLE_SECONDS = 1.5
"""How long a launch watches its workers, so that a script that fails at once is told of."""


def launch(options: LaunchOptions) -> SupervisorStatus:
    """Starts the workers of a run, detached from this process and its terminal.

    Returns:
        The status of the supervisor, with its workers started.

    Raises:
        UsageError: The command or the directory cannot be used.
        LaunchError: The run is alive already, or it failed at once.
    """
    run = RunDirectory(Path(options.run_directory))
    _check_options(options)
    _check_directory(run)
    _check_not_alive(run)
    run.create()
    _write_run_file(run, options)
    run.supervisor_status.unlink(missing_ok=True)
    supervisor = _start_supervisor(run, options)
    return _await_workers(run, supervisor)


def stop_supervisor(run: RunDirectory, timeout: float) -> bool:
    """Ends a run from outside, for when its trainer does not answer.

    Args:
        run: The run directory.
        timeout: Seconds that the workers have to save and end.

    Returns:
        Whether there was anything to end.

    Raises:
        TfckptError: It did not end in time.
    """
    status = load_if_there(run.supervisor_status, SupervisorStatus)
    now = time.time()
    if status is not None and is_live(status, now):
        os.kill(status.pid, signal.SIGTERM)
        _wait_until(lambda: not is_live(status, time.time()), timeout, "The supervisor", status.pid)
        return True
    survivors = [s for s in read_workers(run) if s.activity is not Activity.EXITED]
    survivors = [s for s in survivors if is_live(s, now)]
    for worker in survivors:
        signal_group(worker.pid, signal.SIGTERM)
    deadline = time.monotonic() + timeout
    for worker in survivors:
        while is_live(worker, time.time()) and time.monotonic() < deadline:
            time.sleep(0.1)
        signal_group(worker.pid, signal.SIGKILL)
    return bool(survivors)


def _check_options(options: LaunchOptions) -> None:
    if options.workers < 1:
        raise UsageError(f"--workers is {options.workers}; a run has at least 1.")
    if not options.command:
        raise UsageError("No command: name the script after `--`, as in `-- python train.py`.")
    program = options.command[0]
    there = shutil.which(program, path=os.environ.get("PATH"))
    if there is None and not os.access(Path(options.working_directory) / program, os.X_OK):
        raise UsageError(f"{program!r} is no program that can be run here; check its name.")
    if options.ports and len(options.ports) != options.workers:
        raise UsageError(
            f"--ports names {len(options.ports)} ports and there are {options.workers} workers; "
            "name one for each."
        )
    check_ports(list(options.ports))


def _check_directory(run: RunDirectory) -> None:
    root = run.root
    if root.exists() and not root.is_dir():
        raise UsageError(f"{root} is a file; a run needs a directory.")
    try:
        root.mkdir(parents=True, exist_ok=True)
        names = os.listdir(root)
    except OSError as error:
        raise UsageError(f"{root} cannot be used as a run directory: {error.strerror}.") from error
    if not os.access(root, os.W_OK):
        raise UsageError(f"{root} is not writable; choose another directory or its owner.")
    if names and not run.is_ours and not run.state_file.exists() and not look(root):
        raise UsageError(
            f"{root} holds something else ({sorted(names)[0]}); choose an empty directory, or "
            "one with TensorFlow checkpoints."
        )


def _check_not_alive(run: RunDirectory) -> None:
    if not run.is_ours:
        return
    try:
        with FileLock(run.supervisor_lock, timeout=0):
            pass
    except Timeout:
        status = load_if_there(run.supervisor_status, SupervisorStatus)
        who = f" (supervisor, process {status.pid})" if status else ""
        raise LaunchError(
            f"A run is alive in {run.root}{who}. Watch it with `tfckpt-tui attach {run.root}`, or "
            f"end it with `tfckpt-tui stop {run.root}`."
        ) from None
    alive = [
        str(s.pid)
        for s in read_workers(run)
        if s.activity is not Activity.EXITED and is_live(s, time.time())
    ]
    if alive:
        raise LaunchError(
            f"Workers of an earlier launch still train in {run.root} without their supervisor "
            f"(processes {', '.join(alive)}). End them with `tfckpt-tui stop {run.root}`, or "
            f"`tfckpt-tui stop --force {run.root}` if they do not answer."
        )


def _write_run_file(run: RunDirectory, options: LaunchOptions) -> None:
    known = load_if_there(run.run_file, RunInfo) or RunInfo(
        id=uuid.uuid4().hex[:12], created_at=time.time()
    )
    store(
        run.run_file,
        msgspec.structs.replace(
            known,
            command=list(options.command),
            working_directory=options.working_directory,
            worker_count=options.workers,
        ),
    )


def _start_supervisor(run: RunDirectory, options: LaunchOptions) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tfckpt_trainer.launch.supervisor", encode_options(options)]
    with open_log(run.supervisor_log, 0, options.command) as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _await_workers(run: RunDirectory, supervisor: subprocess.Popen[bytes]) -> SupervisorStatus:
    """Waits until all workers run and have lived for a moment, or tells why they do not."""
    deadline = time.monotonic() + SUPERVISOR_SECONDS
    running_since: float | None = None
    while time.monotonic() < deadline:
        status = load_if_there(run.supervisor_status, SupervisorStatus)
        if status is not None and status.state is SupervisorState.FAILED:
            raise LaunchError(_failure(run, status))
        if status is not None and status.state in _ENDED:
            return status
        if status is not None and status.state is SupervisorState.RUNNING:
            running_since = running_since or time.monotonic()
            if time.monotonic() - running_since > SETTLE_SECONDS:
                return status
        elif supervisor.poll() is not None:
            break
        time.sleep(0.05)
    said = " ".join(last_lines(run.supervisor_log))
    raise LaunchError(f"The supervisor did not come up: {said or 'it said nothing'}.")


_ENDED = {SupervisorState.FINISHED, SupervisorState.STOPPED}


def _failure(run: RunDirectory, status: SupervisorStatus) -> str:
    failed = [w.index for w in status.workers if w.exit_code not in (None, 0)]
    if not failed:
        return status.reason
    log = run.worker_log(failed[0])
    said = "\n".join(f"  {line}" for line in last_lines(log))
    return f"{status.reason} The end of {log}:\n{said}"


def _wait_until(condition: Callable[[], bool], timeout: float, who: str, pid: int) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TfckptError(
                f"{who} (process {pid}) did not end in {timeout:g} s; wait, or kill it."
            )
        time.sleep(0.05)
