"""Run directories with a batch job, and an app that asks a recorded Slurm about it."""

from __future__ import annotations

from typing import Any

from rundir_factory import RunFactory

from recorded_slurm import RecordedSlurm, job_line
from tfckpt_trainer.rundir.records.job import BatchJob
from tfckpt_trainer.rundir.storage.documents import store

SUBMITTED_AT = 1795341252.0


def with_job(made: RunFactory, **fields: Any) -> BatchJob:
    """Records a batch job in a run directory."""
    usual: dict[str, Any] = {
        "scheduler": "slurm",
        "id": "1234",
        "user": "ada",
        "name": "language-model",
        "submitted_at": SUBMITTED_AT,
        "script": ".tfckpt/job.sbatch",
    }
    job = BatchJob(**{**usual, **fields})
    store(made.run.job_file, job)
    return job


def waits(**fields: object) -> RecordedSlurm:
    """Slurm with the job in its queue."""
    return RecordedSlurm(job_line(**fields))


def runs(now: float, left: float = 12_000.0, **fields: object) -> RecordedSlurm:
    """Slurm with the job on two nodes; its time limit comes in `left` seconds."""
    times = {"start": int(now - 720), "end": int(now + left), "submitted": int(now - 900)}
    usual = {"state": "RUNNING", "reason": "None", "nodes": "tn[0-1]", **times}
    return RecordedSlurm(job_line(**{**usual, **fields}))


def ended(state: str, **fields: object) -> RecordedSlurm:
    """Slurm with the job just after its end."""
    return RecordedSlurm(job_line(state=state, reason="None", nodes="tn[0-1]", **fields))
