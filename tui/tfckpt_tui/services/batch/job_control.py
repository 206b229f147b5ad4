"""Cancels the batch job of a run, and submits its batch script again."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from pathlib import Path

from tfckpt_trainer.errors import LaunchError, RefusedError, UsageError
from tfckpt_trainer.launch.orphans import living_supervisor
from tfckpt_trainer.launch.slurm.commands import Runner, run_command
from tfckpt_trainer.launch.slurm.jobs import (
    ACTIVE,
    WAITING,
    JobAnswer,
    JobReport,
    JobState,
    cancel_job,
    read_jobs,
)
from tfckpt_trainer.launch.slurm.submission import submit_script
from tfckpt_trainer.rundir.command_queue import requester
from tfckpt_trainer.rundir.documents import store
from tfckpt_trainer.rundir.journal import try_write_entry
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import JournalEntry, JournalKind
from tfckpt_trainer.rundir.records.job import BatchJob
from tfckpt_tui.services.batch.job_reader import JobReader, read_job_record
from tfckpt_tui.services.request import FrontEnd

CANCEL_SECONDS = 10.0
"""How long to wait until Slurm shows that a job is cancelled."""

_POLL_SECONDS = 1.0


def find_waiting_job(run: RunDirectory, runner: Runner = run_command) -> BatchJob | None:
    """Returns the batch job of a run if it waits in the queue."""
    view = JobReader(runner).read(read_job_record(run))
    return view.record if view is not None and view.is_waiting else None


def cancel_waiting_job(
    run: RunDirectory,
    *,
    through: FrontEnd,
    runner: Runner = run_command,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Cancels the batch job of a run, unless it has started meanwhile.

    Args:
        run: The run directory.
        through: The front end that asks, for the event log.
        runner: Runs the commands of Slurm.
        sleep: Waits for a number of seconds.

    Returns:
        What was done, as a sentence.

    Raises:
        UsageError: The run has no batch job.
        RefusedError: The job has started.
        LaunchError: Slurm did not cancel it.
    """
    job = read_job_record(run)
    if job is None:
        raise UsageError(f"{run.root} has no batch job; there is nothing to cancel.")
    cancel_job(job.id, only_waiting=True, runner=runner)
    report = _await_cancel(job, runner, sleep)
    if report is not None and report.state is JobState.COMPLETING:
        raise RefusedError(
            f"Job {job.id} was not cancelled: the processes of its last start are still leaving. "
            "Try again in a moment."
        )
    if report is not None and report.state is JobState.RUNNING:
        root = shlex.quote(str(run.root))
        raise RefusedError(
            f"Job {job.id} was not cancelled: it has started on {report.node_list}. Stop the run "
            f"with `tfckpt-tui stop {root}`."
        )
    if report is not None and report.state in WAITING:
        raise LaunchError(
            f"Job {job.id} still waits in the queue: Slurm did not cancel it. See why with "
            f"`scancel --verbose {job.id}`."
        )
    message = f"Cancelled batch job {job.id}, which waited in the queue."
    entry = JournalEntry(
        at=time.time(), kind=JournalKind.STOP, message=message, by=requester(through)
    )
    warning = try_write_entry(run, entry)
    return f"{message} {warning}" if warning else message


def submit_again(
    run: RunDirectory, *, through: FrontEnd, runner: Runner = run_command
) -> tuple[BatchJob, str]:
    """Submits the kept batch script of a run again, with the options of its last launch.

    Args:
        run: The run directory.
        through: The front end that asks, for the event log.
        runner: Runs the commands of Slurm.

    Returns:
        The new job, and what was done as a sentence.

    Raises:
        UsageError: The run has no batch job, or its script is missing.
        RefusedError: The run is active, or its job waits in the queue.
        LaunchError: Slurm did not accept the job.
        OSError: The new job cannot be recorded.
    """
    before = read_job_record(run)
    if before is None or not script_of(run, before).is_file():
        raise UsageError(
            f"{run.root} has no batch script. Launch it with `tfckpt-tui launch --slurm "
            f"{shlex.quote(str(run.root))} -- COMMAND`."
        )
    _refuse_active(run, before, read_jobs([before.id], runner=runner))
    script = script_of(run, before)
    job_id, cluster = submit_script(script, runner)
    job = _new_record(before, job_id, cluster)
    current = read_job_record(run)
    if current is None or current.id != job_id:
        # Else the job has started already, and its supervisor has recorded more.
        store(run.job_file, job)
    message = f"Submitted batch job {job_id}, with the options of job {before.id}."
    entry = JournalEntry(
        at=time.time(), kind=JournalKind.SUBMIT, message=message, by=requester(through)
    )
    warning = try_write_entry(run, entry)
    return job, f"{message} {warning}" if warning else message


def script_of(run: RunDirectory, job: BatchJob) -> Path:
    """Returns the path of the batch script of a job, which lies in its run directory."""
    path = Path(job.script)
    # A record cannot name a script elsewhere.
    leads_out = path.is_absolute() or ".." in path.parts
    return run.root / path if job.script and not leads_out else run.job_script


def _await_cancel(
    job: BatchJob, runner: Runner, sleep: Callable[[float], None]
) -> JobReport | None:
    """Returns the last report of a job; waits for a moment while it still waits."""
    deadline = time.monotonic() + CANCEL_SECONDS
    while True:
        report = read_jobs([job.id], runner=runner).jobs.get(job.id)
        if report is None or report.state not in WAITING or time.monotonic() > deadline:
            return report
        sleep(_POLL_SECONDS)


def _refuse_active(run: RunDirectory, job: BatchJob, answer: JobAnswer) -> None:
    root = shlex.quote(str(run.root))
    supervisor = living_supervisor(run, time.time())
    if supervisor is not None:
        raise RefusedError(
            f"The run is active: its supervisor runs on {supervisor.host} (process "
            f"{supervisor.pid}). Stop it first with `tfckpt-tui stop {root}`."
        )
    report = answer.report_on(job)
    if report is not None and report.state in ACTIVE:
        raise RefusedError(
            f"Job {job.id} of this run is {report.state.value}. Stop it first with "
            f"`tfckpt-tui stop {root}`."
        )


def _new_record(before: BatchJob, job_id: str, cluster: str) -> BatchJob:
    """Returns the record of a new job; what earlier starts recorded does not apply."""
    return BatchJob(
        scheduler=before.scheduler,
        id=job_id,
        cluster=cluster or before.cluster,
        user=before.user,
        name=before.name,
        submitted_at=time.time(),
        script=before.script,
        max_requeues=before.max_requeues,
    )
