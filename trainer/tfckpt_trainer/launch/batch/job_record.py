"""Reads `job.json`, the record of the batch job of a run, and whether that job may be active."""

from __future__ import annotations

from functools import partial

import msgspec

from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.heartbeats.reading import read_supervisor
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.job import BatchJob
from tfckpt_trainer.rundir.records.run import SupervisorState
from tfckpt_trainer.rundir.storage.documents import OnError, ignore, load_if_exists, try_read
from tfckpt_trainer.words.advice import Advice, command_or_key


def load_job_record(run: RunDirectory) -> BatchJob | None:
    """Returns the record of the batch job of a run; None if there is none.

    Raises:
        DamagedFileError: It is damaged.
        OSError: It cannot be read.
    """
    return load_if_exists(run.job_file, BatchJob)


def read_job_record(run: RunDirectory, on_error: OnError = ignore) -> BatchJob | None:
    """Returns the record of the batch job of a run; None if there is none or it cannot be read.

    Args:
        run: The run directory.
        on_error: Called if it cannot be read.
    """
    return try_read(partial(load_job_record, run), on_error)


class UnknownJob(msgspec.Struct, frozen=True):
    """A batch job that may wait or run, because the scheduler cannot be asked about it.

    Attributes:
        record: The job.
        silence: Why the scheduler cannot be asked. Not cleaned.
    """

    record: BatchJob
    silence: str

    @property
    def words(self) -> str:
        """What is not known, and why."""
        return (
            f"Batch job {self.record.id} of this run may wait in the queue or run. "
            f"{self.record.scheduler.title()} cannot be asked: {self.silence.rstrip('.')}."
        )

    @property
    def launch_advice(self) -> Advice:
        """How to launch the run nevertheless."""
        job = self.record.id
        before = (
            "Launch as the user of the job, on a host where `squeue` works, or cancel the job "
            "there with `scancel {job}`."
        )
        return Advice.of(
            before + " {launch} launches now; job {job} then ends without training.",
            before,
            launch=command_or_key("", "launch", "--force"),
            job=job,
        )


def unknown_job(run: RunDirectory, job: BatchJob, silence: str) -> UnknownJob | None:
    """Returns the batch job of a run if it may be active; None if its end is known.

    Args:
        run: The run directory.
        job: The job.
        silence: Why the scheduler cannot be asked about it; empty if it answered.
    """
    return UnknownJob(job, silence) if silence and not _is_end_recorded(run, job) else None


def _is_end_recorded(run: RunDirectory, job: BatchJob) -> bool:
    """Whether the supervisor has reported the end of a job that does not start again."""
    last = read_supervisor(run)
    if job.started_at is None or last is None or not last.has_ended:
        return False
    if last.updated_at < job.started_at:
        return False
    # One that failed or finished is not requeued.
    return last.state is not SupervisorState.STOPPED or not any(
        entry.kind is EventKind.REQUEUE and entry.at >= job.started_at
        for entry in read_entries(run)
    )
