"""The batch job in which a scheduler runs the supervisor."""

from __future__ import annotations

from typing import Annotated

import msgspec

from tfckpt_trainer.rundir.storage.documents import Document

JobId = Annotated[str, msgspec.Meta(pattern=r"^[0-9A-Za-z][0-9A-Za-z_.+:@-]{0,99}\Z")]
"""The ID of a batch job: one word of a command, which messages contain."""


class BatchJob(Document, frozen=True, kw_only=True):
    """`job.json`: the batch job in which a scheduler runs the supervisor.

    Attributes:
        scheduler: The scheduler: `slurm`.
        id: ID of the job; `1234_5` for a task of a job array.
        cluster: Name of the scheduler's cluster; empty if it has none.
        user: The user that submitted the job.
        name: Name of the job.
        submitted_at: Time of submission, in seconds since the epoch like all times.
        script: The batch script, relative to the run directory.
        requeues: How often the job was started again.
        max_requeues: How often the supervisor requeues it at most.
        fruitless: Starts in a row that ended before a step.
        nodes: Nodes of the current or last start, in the scheduler's order; without those that
            were dropped.
        started_at: Time of the current start; None before the first.
        ends_at: Time at which the time limit ends the current start; None without a limit.
    """

    scheduler: str
    id: JobId
    cluster: str = ""
    user: str = ""
    name: str = ""
    submitted_at: float
    script: str
    requeues: int = 0
    max_requeues: int = 0
    fruitless: int = 0
    nodes: list[str] = []
    started_at: float | None = None
    ends_at: float | None = None
