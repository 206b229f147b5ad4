"""Decides which start of which job may train: the job that `job.json` names, in its last start.

Slurm starts a job again while a cut-off node still runs it. The later start announces itself in
`job.json`, and waits for the lock. The earlier one reads `job.json`, lets its workers save, and
ends. Another job of the run ends before it trains.
"""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from tfckpt_trainer.errors import LaunchError
from tfckpt_trainer.launch.batch.job_record import load_job_record, read_job_record
from tfckpt_trainer.launch.slurm.controller import (
    cancel_steps,
    delay_job,
    describe_dead_nodes,
    requeue_job,
    running_steps,
    waits_again,
)
from tfckpt_trainer.launch.slurm.requeue_policy import QUEUE_SECONDS
from tfckpt_trainer.rundir.heartbeats.liveness import find_other_supervisor, find_other_trainer
from tfckpt_trainer.rundir.heartbeats.reading import read_supervisor
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.job import BatchJob
from tfckpt_trainer.rundir.records.run import SupervisorState
from tfckpt_trainer.rundir.storage.documents import store
from tfckpt_trainer.rundir.storage.locks import take_lock
from tfckpt_trainer.words.advice import Advice, command_or_key
from tfckpt_trainer.words.times import CLOCK, local_time

LIMIT_SECONDS = 600.0
"""How long a start waits for an earlier one to end.

The lock of a node that is gone for good is released by the server of the disk, after minutes.
"""

QUIET_SECONDS = 3.0
"""How long it waits without a word: the launch that submitted the job may still hold the lock."""

RECORD_SECONDS = 30.0
"""How long a job waits until it is recorded: it may start before its launch knows its ID."""

CANCEL_SECONDS = 60.0
"""How long job steps may take to end that were cancelled.

Slurm waits for ever for the tasks of a node that was started again before it was missed, if the
`srun` of their step has gone too.
"""

POLL_SECONDS = 1.0

_REPORTED = {SupervisorState.STOPPED, SupervisorState.FINISHED, SupervisorState.FAILED}


@dataclass(frozen=True)
class JobStart:
    """One start of a job.

    Attributes:
        job: The job ID.
        requeues: How often the job was started before.
    """

    job: str
    requeues: int

    def announce(self, run: RunDirectory) -> None:
        """Tells an earlier start of the same job to end."""
        record = load_job_record(run)
        if record is not None and record.id == self.job and record.requeues < self.requeues:
            # On a full disk, the earlier start ends when Slurm tells it to.
            with suppress(OSError):
                store(run.job_file, msgspec.structs.replace(record, requeues=self.requeues))

    def is_replaced(self, record: BatchJob | None) -> bool:
        """Whether `job.json` is that of a later start, or of another job."""
        return record is not None and (record.id != self.job or record.requeues > self.requeues)

    def is_submitted_after(self, record: BatchJob) -> bool:
        """Whether Slurm took this job after another one, by their IDs."""
        both = self.job, record.id
        return not all(job_id.isdecimal() for job_id in both) or int(self.job) > int(record.id)


def start_of_job(environment: Mapping[str, str]) -> JobStart:
    """Returns the start of the job in which this process runs."""
    restarts = int(environment.get("SLURM_RESTART_COUNT", "0") or 0)
    return JobStart(environment["SLURM_JOB_ID"], restarts)


def describe_lost_start(run: RunDirectory, record: BatchJob, own: JobStart) -> str:
    """Returns that the start before ended without a report; empty if it reported its end.

    Args:
        run: The run directory.
        record: `job.json`, as the start before wrote it.
        own: This start.
    """
    last = read_supervisor(run)
    is_of_job = record.started_at is not None and own.requeues > 0
    if last is None or not is_of_job or last.state in _REPORTED:
        return ""
    heard = local_time(last.updated_at, CLOCK)
    cause = describe_dead_nodes(record.nodes) or "A node of the job, or its supervisor, was lost."
    return (
        f"The start before ended on {last.host} without a report; its last heartbeat is of "
        f"{heard}. {cause} Slurm has started job {own.job} again."
    )


def read_later_start(run: RunDirectory, own: JobStart) -> BatchJob | None:
    """Returns `job.json` if it is that of a later start; None if it cannot be read."""
    record = read_job_record(run)
    return record if own.is_replaced(record) else None


def launch_in_app(run: RunDirectory) -> Advice:
    """Returns how to submit the batch script of a run again."""
    attach = shlex.join(("tfckpt-tui", "attach", str(run.root)))
    launch = command_or_key("launch", "attach", run.root)
    return Advice.of(
        "To launch the run, press L in `{attach}`.",
        "To launch the run, use {launch}.",
        attach=attach,
        launch=launch,
    )


def require_job_of_run(
    run: RunDirectory, own: JobStart, limit_seconds: float = RECORD_SECONDS
) -> None:
    """Makes sure that `job.json` names this job: another job of the run must not train.

    Args:
        run: The run directory.
        own: This start.
        limit_seconds: How long to wait until a job is recorded that was submitted later.

    Raises:
        LaunchError: It names another job.
        OSError: The run directory cannot be read.
    """
    deadline = time.monotonic() + limit_seconds
    while True:
        record = load_job_record(run)
        if record is None or record.id == own.job:
            return
        if not own.is_submitted_after(record) or time.monotonic() >= deadline:
            raise LaunchError(
                f"Job {own.job} ends without training: job {record.id} is the job of this run.",
                launch_in_app(run),
            )
        time.sleep(POLL_SECONDS)


def end_left_steps(
    job: str,
    grace_seconds: float,
    tell: Callable[[str, EventKind], None],
    *,
    may_requeue: bool,
    limit_seconds: float = LIMIT_SECONDS,
) -> None:
    """Waits for the job steps of a supervisor that was killed; cancels those that do not end.

    If they do not end then, the job is requeued, for which Slurm ends this process.

    Args:
        job: The job ID.
        grace_seconds: Time of the workers to save.
        tell: Called with what is cancelled and requeued.
        may_requeue: Whether the job may be requeued once more.
        limit_seconds: How long to wait.

    Raises:
        LaunchError: A step does not end, or Slurm does not answer.
    """
    began, cancelled = time.monotonic(), False
    while True:
        waited = time.monotonic() - began
        try:
            steps = running_steps(job)
            if not steps:
                return
            left = f"Job steps of a killed supervisor still run: {', '.join(steps)}."
            if waited > grace_seconds and not cancelled:
                cancel_steps(steps)
                cancelled = True
                tell(f"{left} They are cancelled.", EventKind.NOTE)
            if may_requeue and waited > grace_seconds + CANCEL_SECONDS:
                _requeue(job, f"{left} A cancel does not end them.", tell)
                may_requeue = False
        except LaunchError as error:
            left = str(error)
        if waited > limit_seconds:
            raise LaunchError(f"{left} They did not end within {limit_seconds:g} s.")
        time.sleep(POLL_SECONDS)


def _requeue(job: str, why: str, tell: Callable[[str, EventKind], None]) -> None:
    """Requeues a job. Until all of that is asked for, this process does not end for it.

    Raises:
        LaunchError: Slurm refuses, or it does not answer.
    """
    listening = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        requeue_job(job)
        tell(f"{why} {waits_again(job, QUEUE_SECONDS)}", EventKind.REQUEUE)
        delay_job(job, QUEUE_SECONDS, lambda words: tell(words, EventKind.NOTE))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, listening)


def await_earlier_start(
    run: RunDirectory,
    own: JobStart,
    tell: Callable[[str], None],
    limit_seconds: float = LIMIT_SECONDS,
) -> int:
    """Takes the lock of the supervisor as soon as no process of an earlier start is left.

    Args:
        run: The run directory.
        own: This start.
        tell: Called once with what it waits for, if it takes longer.
        limit_seconds: How long to wait.

    Returns:
        The descriptor that holds the lock.

    Raises:
        LaunchError: A process is left.
        OSError: The run directory cannot be read or written.
    """
    began, told = time.monotonic(), False
    while True:
        lock = take_lock(run.supervisor_lock)
        left = _what_is_left(run, lock is not None)
        if lock is not None:
            if not left:
                return lock
            # On a disk that does not share locks.
            os.close(lock)
        waited = time.monotonic() - began
        if waited > limit_seconds:
            raise LaunchError(f"{left} It did not end within {limit_seconds:g} s.")
        if not told and waited > QUIET_SECONDS:
            told = True
            own.announce(run)
            until = local_time(time.time() + limit_seconds - waited, CLOCK)
            tell(f"{left} This start waits until it has ended, until {until} at the latest.")
        time.sleep(POLL_SECONDS)


def _what_is_left(run: RunDirectory, locked: bool) -> str:
    """Returns which process of an earlier start is left, in words; empty if none is."""
    supervisor = find_other_supervisor(run)
    if supervisor is not None:
        return (
            f"The supervisor of an earlier start still runs on {supervisor.host} (process "
            f"{supervisor.pid})."
        )
    if not locked:
        last = read_supervisor(run)
        where = f" on {last.host}" if last is not None else ""
        return f"The supervisor of an earlier start{where} is silent, but still holds the lock."
    worker = find_other_trainer(run)
    if worker is not None:
        return (
            f"Worker {worker.index} of an earlier start still runs on {worker.host} (process "
            f"{worker.pid})."
        )
    return ""
