"""Cancels the batch job of a run, and submits its batch script again."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable
from pathlib import Path

from tfckpt_trainer.errors import LaunchError, RefusedError, UsageError
from tfckpt_trainer.launch.batch.job_record import read_job_record, unknown_job
from tfckpt_trainer.launch.batch.jobs import ACTIVE, WAITING, JobReport, JobState
from tfckpt_trainer.launch.batch.scheduler import Scheduler
from tfckpt_trainer.launch.processes.orphans import living_supervisor
from tfckpt_trainer.launch.schedulers import SCHEDULER
from tfckpt_trainer.rundir.heartbeats.reading import trainer_answers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.job import BatchJob
from tfckpt_trainer.rundir.storage.documents import store
from tfckpt_trainer.rundir.storage.files import read_bounded
from tfckpt_trainer.words.advice import Advice, command_or_key
from tfckpt_tui.services.batch.job_reader import JobReader
from tfckpt_tui.services.control.request import FrontEnd, log_event

CANCEL_SECONDS = 10.0
"""How long to wait until the scheduler shows that a job is cancelled."""

_POLL_SECONDS = 1.0


def find_waiting_job(run: RunDirectory, scheduler: Scheduler = SCHEDULER) -> BatchJob | None:
    """Returns the batch job of a run if it waits in the queue, and no trainer answers.

    A trainer that answers is stopped, whatever waits.

    Raises:
        LaunchError: The scheduler may have accepted a job, and cannot be asked about it.
        OSError: A job that it has accepted cannot be recorded.
    """
    if trainer_answers(run, time.time()):
        return None
    scheduler.adopt(run)
    view = JobReader(scheduler).read(read_job_record(run))
    return view.record if view is not None and view.is_waiting else None


def cancel_waiting_job(
    run: RunDirectory,
    *,
    through: FrontEnd,
    scheduler: Scheduler = SCHEDULER,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Cancels the batch job of a run, unless it has started meanwhile.

    Args:
        run: The run directory.
        through: The front end that asks, for the event log.
        scheduler: The scheduler of its batch job.
        sleep: Waits for a number of seconds.

    Returns:
        What was done, as a sentence.

    Raises:
        UsageError: The run has no batch job.
        RefusedError: The job has started.
        LaunchError: The scheduler did not cancel it, or cannot be asked whether it has a job.
    """
    scheduler.adopt(run, through.requester)
    job = read_job_record(run)
    if job is None:
        raise UsageError(f"{run.root} has no batch job; there is nothing to cancel.")
    scheduler.cancel(run, job, only_waiting=True)
    report = _await_cancel(job, scheduler, sleep)
    if report is not None and report.state is JobState.COMPLETING:
        raise RefusedError(
            f"Job {job.id} was not cancelled: the processes of its last start are still leaving. "
            "Try again in a moment."
        )
    if report is not None and report.state is JobState.RUNNING:
        raise RefusedError(
            f"Job {job.id} was not cancelled: it has started on {report.node_list}.",
            _stop(run, "Stop the run with {stop}."),
        )
    if report is not None and report.state in WAITING:
        raise LaunchError(
            f"Job {job.id} still waits in the queue: Slurm did not cancel it. See why with "
            f"`scancel -v {job.id}`."
        )
    message = f"Cancelled batch job {job.id}, which waited in the queue."
    warning = log_event(run, EventKind.STOP, message, through=through)
    return f"{message} {warning}" if warning else message


def submit_again(
    run: RunDirectory, *, through: FrontEnd, scheduler: Scheduler = SCHEDULER
) -> tuple[BatchJob, str]:
    """Submits the kept batch script of a run again, with the options of its last launch.

    Args:
        run: The run directory.
        through: The front end that asks, for the event log.
        scheduler: The scheduler of its batch job.

    Returns:
        The job, new or of an unanswered submission, and what was done as a sentence.

    Raises:
        UsageError: The last launch was not one to the scheduler, or its script is missing.
        NotTrustedError: Another user could have written the batch script.
        RefusedError: The run is active, its job waits, or the scheduler cannot be asked about it.
        LaunchError: The scheduler did not accept the job.
        OSError: The new job cannot be recorded.
    """
    adopted = scheduler.adopt(run, through.requester)
    if adopted is not None:
        return adopted, f"Slurm had accepted job {adopted.id} already. No other was submitted."
    before = read_job_record(run)
    script = script_of(run, before)
    if (before is None and not scheduler.has_launched(run)) or not script.is_file():
        raise UsageError(
            f"{run.root} has no batch script.",
            launch_to_slurm(run.root),
        )
    # Slurm runs what it says, as this user.
    read_bounded(script, written_by=os.geteuid())
    _refuse_active(run, before, scheduler)
    job = scheduler.submit_again(run, script, through.requester, before)
    current = read_job_record(run)
    if current is None or current.id != job.id:
        # Else the job has started already, and its supervisor has recorded more.
        store(run.job_file, job)
    message = f"Submitted batch job {job.id}, with the options of the last launch."
    warning = log_event(run, EventKind.SUBMIT, message, through=through)
    return job, f"{message} {warning}" if warning else message


def launch_to_slurm(root: Path | str) -> Advice:
    """Returns how to launch a run that has no batch script; only the command line can."""
    command = shlex.join(("tfckpt-tui", "launch", "--slurm", str(root), "--", "COMMAND"))
    return Advice.of("Launch it with `{command}`.", command=command)


def _stop(run: RunDirectory, template: str) -> Advice:
    return Advice.of(template, stop=command_or_key("stop", "stop", run.root))


def script_of(run: RunDirectory, job: BatchJob | None) -> Path:
    """Returns the path of the batch script of a job, which lies in its run directory."""
    path = Path(job.script if job is not None else "")
    # A record cannot name a script elsewhere.
    leads_out = path.is_absolute() or ".." in path.parts
    return run.root / path if path.name and not leads_out else run.job_script


def _await_cancel(
    job: BatchJob, scheduler: Scheduler, sleep: Callable[[float], None]
) -> JobReport | None:
    """Returns the last report of a job; waits for a moment while it still waits."""
    deadline = time.monotonic() + CANCEL_SECONDS
    while True:
        report = scheduler.read([job]).report_on(job)
        if report is None or report.state not in WAITING or time.monotonic() > deadline:
            return report
        sleep(_POLL_SECONDS)


def _refuse_active(run: RunDirectory, job: BatchJob | None, scheduler: Scheduler) -> None:
    supervisor = living_supervisor(run, time.time())
    if supervisor is not None:
        raise RefusedError(
            f"The run is active: its supervisor runs on {supervisor.host} (process "
            f"{supervisor.pid}).",
            _stop(run, "Stop it first with {stop}."),
        )
    if job is None:
        return
    answer = scheduler.read([job])
    unknown = unknown_job(run, job, answer.silence_about(job))
    if unknown is not None:
        raise RefusedError(unknown.words, unknown.launch_advice)
    report = answer.report_on(job)
    if report is not None and report.state in ACTIVE:
        raise RefusedError(
            f"Job {job.id} of this run is {report.state.value}.",
            _stop(run, "Stop it first with {stop}."),
        )
