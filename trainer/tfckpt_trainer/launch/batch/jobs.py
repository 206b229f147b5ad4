"""The state of batch jobs, and what a scheduler says about them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.records.job import BatchJob
from tfckpt_trainer.rundir.storage.owners import user_id

_CLOCK_SECONDS = 3600.0
"""How much the clocks of two machines may differ before a job is taken for another one."""


class JobState(StrEnum):
    """State of a batch job. `requeued` is a job that waits for a further start."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETING = "completing"
    REQUEUED = "requeued"
    PREEMPTED = "preempted"
    NODE_FAILURE = "node failure"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    FAILED = "failed"
    FINISHED = "finished"
    UNKNOWN = "unknown"


WAITING = frozenset({JobState.QUEUED, JobState.REQUEUED})
"""States of a job that waits in the queue."""

ACTIVE = WAITING | {JobState.RUNNING, JobState.COMPLETING}
"""States of a job that runs, or will run."""

ENDED = frozenset(
    {
        JobState.PREEMPTED,
        JobState.NODE_FAILURE,
        JobState.TIMEOUT,
        JobState.CANCELLED,
        JobState.FAILED,
        JobState.FINISHED,
    }
)
"""States of a job that does not start again."""


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a scheduler says about a job. Texts are not cleaned; times are seconds since the epoch.

    Attributes:
        id: The job ID; `1234_5` for a task of an array.
        script: Path of the batch script, as it was when the job was submitted; empty if unknown.
        reason: Why the job waits or ended, in the scheduler's words; empty without one.
        explanation: The reason for which it waits, in plain words, if it is a common one.
        is_stuck: Whether it does not start until somebody acts.
        expected_start: When a waiting job will probably start; None if that is not known.
        started_at: When the job started; None while it waits.
        ends_at: When a running job reaches its time limit; None without a limit.
        submitted_at: When it was submitted or requeued.
        node_list: Its nodes as the scheduler writes them: `tn[0-3]`.
        out_of_memory: Whether a job that failed had used all of its memory.
    """

    id: str
    name: str
    state: JobState
    user: str
    partition: str
    working_directory: str
    script: str = ""
    reason: str = ""
    explanation: str = ""
    is_stuck: bool = False
    expected_start: float | None = None
    started_at: float | None = None
    ends_at: float | None = None
    submitted_at: float | None = None
    node_list: str = ""
    out_of_memory: bool = False

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of its nodes, in the scheduler's order."""
        # Imported here: most runs have no batch job.
        from tfckpt_trainer.cluster.host_list import expand_hosts

        try:
            return expand_hosts(self.node_list) if self.node_list else ()
        except UsageError:
            return (self.node_list,)


class JobAnswer(msgspec.Struct, frozen=True):
    """A scheduler's answer to a question about jobs.

    Attributes:
        jobs: The jobs that it knows, by ID. A scheduler may forget a job minutes after its end.
        is_present: Whether this machine has the commands that ask it.
        problem: Why it did not answer; empty if it did. Not cleaned.
        hidden_by: The setting that hides jobs of other users from this one; empty without one.
    """

    jobs: Mapping[str, JobReport] = {}
    is_present: bool = True
    problem: str = ""
    hidden_by: str = ""

    def report_on(self, record: BatchJob) -> JobReport | None:
        """Returns what it says about a recorded job; None if it does not know that job."""
        report = self.jobs.get(record.id)
        return report if report is not None and is_same_job(record, report) else None

    def silence_about(self, record: BatchJob) -> str:
        """Why nothing is known about a recorded job; empty if it answered. Not cleaned."""
        if self.report_on(record) is not None:
            return ""
        if self.hidden_by and not is_own(record):
            return f"this job of {record.user} is not visible to you ({self.hidden_by})"
        return self.problem


def is_own(record: BatchJob) -> bool:
    """Whether this user submitted a job; also if nobody knows who did."""
    own = os.geteuid()
    return record.user in {"", str(own)} or user_id(record.user, own + 1) == own


def is_same_job(record: BatchJob, report: JobReport) -> bool:
    """Whether the job of a report is the recorded one: an ID may come back on another cluster."""
    if record.id != report.id:
        return False
    if record.user and record.user != report.user:
        return False
    submitted = report.submitted_at
    return submitted is None or submitted > record.submitted_at - _CLOCK_SECONDS
