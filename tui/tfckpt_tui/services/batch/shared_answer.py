"""Slurm's last answer about the job of a run, shared by all who look at the run.

Whoever finds it too old asks Slurm, and replaces it. Those who cannot write it ask for themselves.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import msgspec

from tfckpt_trainer.errors import DamagedFileError, TfckptError
from tfckpt_trainer.launch.slurm.jobs import JobAnswer, JobReport
from tfckpt_trainer.rundir.heartbeats.clock import (
    TOLERANCE_SECONDS,
    file_system_ahead,
    file_time,
    known_ahead,
)
from tfckpt_trainer.rundir.heartbeats.health import HAS_ENDED, RunState
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.job import BatchJob
from tfckpt_trainer.rundir.storage.documents import Document, load_if_exists, store

_LATEST = 1e12
"""Times in seconds since the epoch are below it, as Slurm writes them."""


class Topic(NamedTuple):
    """What a question about a job is about, with the same fields as a shared answer."""

    id: str
    started_at: float | None
    requeues: int
    has_ended: bool
    told_at: float

    @classmethod
    def of(cls, record: BatchJob, state: RunState | None, told_at: float) -> Topic:
        """Returns the topic of a question.

        Args:
            record: The job.
            state: The state of its run, by heartbeats.
            told_at: Time of the newest entry about the job in the event log; 0 without one.
        """
        return cls(record.id, record.started_at, record.requeues, state in HAS_ENDED, told_at)


class SharedAnswer(Document, frozen=True, kw_only=True):
    """`status/job.json`: what Slurm last said about the job. Its age is that of the file.

    Attributes:
        id: ID of the job, as in `job.json` when Slurm was asked.
        started_at: The start that it was asked about, as in `job.json`.
        requeues: The same.
        has_ended: Whether the run had ended then, by its heartbeats.
        told_at: Time of the newest event about the job that was known then; 0 without one.
        report: The answer; None if Slurm does not know the job any more. Texts are not cleaned.
    """

    id: str
    started_at: float | None = None
    requeues: int = 0
    has_ended: bool = False
    told_at: float = 0.0
    report: JobReport | None = None

    @property
    def as_answer(self) -> JobAnswer:
        """The answer, as Slurm would give it now."""
        return JobAnswer({self.report.id: self.report} if self.report is not None else {})

    def is_about(self, topic: Topic) -> bool:
        """Whether it answers a question about a topic, and nothing has changed since."""
        own = Topic(self.id, self.started_at, self.requeues, self.has_ended, topic.told_at)
        return own == topic and self.told_at >= topic.told_at


class FoundAnswer(msgspec.Struct, frozen=True):
    """An answer that was found in the run directory.

    Attributes:
        answer: The answer.
        age: Its age in seconds.
        written_at: When it was written, by the clock of the file system.
    """

    answer: SharedAnswer
    age: float
    written_at: float


def load_answer(run: RunDirectory) -> FoundAnswer | None:
    """Returns the shared answer; None if there is none that can be used."""
    try:
        answer = load_if_exists(run.job_answer, SharedAnswer)
        written_at = file_time(run.job_answer)
    except (DamagedFileError, OSError):
        return None
    age = time.time() + _seconds_ahead(run) - written_at
    if answer is None or age < -TOLERANCE_SECONDS or not _is_plausible(answer.report):
        return None
    return FoundAnswer(answer, max(age, 0.0), written_at)


def share_answer(run: RunDirectory, answer: SharedAnswer) -> float:
    """Replaces the shared answer, if this user may.

    Returns:
        When it was written, by the clock of the file system; 0 if it was not.
    """
    try:
        store(run.job_answer, answer, durable=False)
        return file_time(run.job_answer)
    except (TfckptError, OSError):
        return 0.0


def _seconds_ahead(run: RunDirectory) -> float:
    try:
        return file_system_ahead(run)
    except OSError:
        return known_ahead(run)


def _is_plausible(report: JobReport | None) -> bool:
    if report is None:
        return True
    times = (report.expected_start, report.started_at, report.ends_at, report.submitted_at)
    return all(moment is None or 0 < moment < _LATEST for moment in times)
