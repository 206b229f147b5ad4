"""Launches a run on this machine: starts a detached supervisor, which starts the workers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tfckpt_trainer.code_version import code_directory, read_code_version
from tfckpt_trainer.errors import LaunchError
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.preflight import (
    already_alive,
    check_directory,
    check_nothing_trains,
    check_options,
)
from tfckpt_trainer.launch.processes.logs import last_lines, open_log
from tfckpt_trainer.launch.schedulers import SCHEDULER
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.full_disk import explain_disk_errors
from tfckpt_trainer.rundir.heartbeats.reading import read_supervisor
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.job import BatchJob
from tfckpt_trainer.rundir.records.run import SupervisorState, SupervisorStatus
from tfckpt_trainer.rundir.run_info import update_run_info
from tfckpt_trainer.rundir.storage.documents import encode, store
from tfckpt_trainer.rundir.storage.files import delete_file
from tfckpt_trainer.rundir.storage.locks import is_locked, take_lock
from tfckpt_trainer.rundir.storage.object_storage import refuse_url
from tfckpt_trainer.words.advice import Advice, command_or_key

SUPERVISOR_SECONDS = 30.0
"""Time limit for the supervisor to start its workers."""

SETTLE_SECONDS = 1.5
"""How long a launch watches its workers, to report a script that fails at once."""

LEAVING_SECONDS = 3.0
"""Time limit for a supervisor that has ended to exit and release its lock."""

POLL_SECONDS = 0.05


def launch(
    options: LaunchOptions, by: str = "", *, force: bool = False
) -> SupervisorStatus | BatchJob:
    """Starts the workers of a run, detached from this process and its terminal.

    Args:
        options: The options; with those for Slurm, the run is submitted as a batch job.
        by: Who asks, for the event log of a batch job.
        force: Whether to launch although Slurm cannot be asked about an earlier batch job.

    Returns:
        The status of the supervisor, with its workers started; or the submitted job.

    Raises:
        UsageError: The command or the directory cannot be used.
        LaunchError: The run is already running, it failed at once, or Slurm refused it.
    """
    refuse_url(options.run_directory)
    run = RunDirectory(Path(options.run_directory))
    check_options(options)
    check_directory(run)
    with explain_disk_errors(run):
        lock = _take_lock(run)
    if lock is None:
        raise already_alive(run)
    try:
        check_nothing_trains(run, force=force)
        with explain_disk_errors(run):
            _write_run_file(run, options)
            store(run.launch_file, options)
        if options.slurm is not None:
            job = SCHEDULER.submit(run, options, by)
            delete_file(run.supervisor_status)
            return job
        # Of an earlier launch: the app must not take it for the job of this one.
        delete_file(run.job_file)
        # It stays until the new supervisor writes its own: without it, the run looks as if it had
        # failed, by the heartbeats of workers that were killed.
        earlier = read_supervisor(run)
        _start_supervisor(run, options, lock)
    finally:
        os.close(lock)
    return _await_workers(run, earlier)


def planned_script(options: LaunchOptions) -> str:
    """Returns the batch script that a launch with these options would submit.

    Raises:
        UsageError: The command or the options cannot be used.
    """
    check_options(options)
    return SCHEDULER.script(RunDirectory(Path(options.run_directory)), options)


def _write_run_file(run: RunDirectory, options: LaunchOptions) -> None:
    """Writes `run.json`; the id of an earlier launch in this directory stays."""
    code = read_code_version(code_directory(options.command, Path(options.working_directory)))
    update_run_info(run, launched=True, worker_count=len(options.tasks), code=code)


def _take_lock(run: RunDirectory) -> int | None:
    """Takes the lock; waits for a supervisor that has ended but not exited."""
    deadline = time.monotonic() + LEAVING_SECONDS
    while (lock := take_lock(run.supervisor_lock)) is None:
        status = read_supervisor(run)
        at_work = status is not None and not status.has_ended
        if at_work or time.monotonic() > deadline:
            return None
        time.sleep(POLL_SECONDS)
    return lock


def _start_supervisor(run: RunDirectory, options: LaunchOptions, lock: int) -> None:
    """Starts the supervisor detached, in its own session; hands it the lock and the options."""
    # -P: modules in the working directory must not shadow those of this library.
    command = [sys.executable, "-P", "-m", "tfckpt_trainer.launch.local.local_supervisor"]
    command += ["--lock", str(lock), str(run.root)]
    with open_log(run.supervisor_log, 0, options.command) as log:
        process = subprocess.Popen(
            command,
            cwd=options.working_directory,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=(lock,),
        )
    try:
        process.communicate(encode(options), SUPERVISOR_SECONDS)
        code: int | None = process.returncode
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        code = None
    if code != 0:
        raise _did_not_start(run)


def _await_workers(run: RunDirectory, earlier: SupervisorStatus | None) -> SupervisorStatus:
    """Waits until all workers have run for a moment, or raises why they do not.

    Args:
        run: The run directory.
        earlier: The status that an earlier supervisor left, if any.
    """
    deadline = time.monotonic() + SUPERVISOR_SECONDS
    running_since: float | None = None
    while time.monotonic() < deadline:
        held = is_locked(run.supervisor_lock)
        status = read_supervisor(run)
        status = status if status != earlier else None
        if status is not None and status.has_ended:
            # Until it has exited, the next launch would be refused.
            if not held:
                return _ended(run, status)
        elif not held:
            raise _did_not_start(run)
        elif status is not None and status.state is SupervisorState.RESTARTING:
            return status
        elif status is not None and status.state is SupervisorState.RUNNING:
            running_since = running_since or time.monotonic()
            if time.monotonic() - running_since > SETTLE_SECONDS:
                return status
        time.sleep(POLL_SECONDS)
    attach, logs = command_or_key("", "attach", run.root), command_or_key("logs", "logs", run.root)
    stop = command_or_key("force-stop", "stop", "--force", run.root)
    raise LaunchError(
        f"The supervisor has not started its workers within {SUPERVISOR_SECONDS:g} s and is still "
        "trying.",
        Advice.of(
            "Watch it with {attach}, or end it with {stop}.",
            "Watch its log with {logs}, or end it with {stop}.",
            attach=attach,
            stop=stop,
            logs=logs,
        ),
    )


def _ended(run: RunDirectory, status: SupervisorStatus) -> SupervisorStatus:
    """Returns the status of a run that has ended, or raises why it failed."""
    if status.state is not SupervisorState.FAILED:
        return status
    lost = next(
        (
            entry.details.get("worker")
            for entry in reversed(read_entries(run))
            if entry.kind is EventKind.WORKER_LOST and entry.message == status.reason
        ),
        None,
    )
    if not isinstance(lost, int):
        raise LaunchError(status.reason)
    log = run.worker_log(lost)
    lines = "\n".join(f"  {line}" for line in last_lines(log))
    raise LaunchError(f"{status.reason} The end of {log}:\n{lines or '  (it is empty)'}")


def _did_not_start(run: RunDirectory) -> LaunchError:
    lines = "\n".join(f"  {line}" for line in last_lines(run.supervisor_log))
    return LaunchError(
        f"The supervisor did not start. The end of {run.supervisor_log}:\n"
        f"{lines or '  (it is empty)'}"
    )
