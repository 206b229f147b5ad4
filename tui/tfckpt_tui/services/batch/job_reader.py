"""Asks the scheduler about the job of a run, at a rate that its controller can bear."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tfckpt_trainer.errors import DamagedFileError, TfckptError
from tfckpt_trainer.launch.batch.job_record import read_job_record
from tfckpt_trainer.launch.batch.jobs import ENDED, WAITING, JobAnswer, JobReport, JobState
from tfckpt_trainer.rundir.heartbeats.clock import TOLERANCE_SECONDS, file_system_ahead, known_ahead
from tfckpt_trainer.rundir.heartbeats.health import HAS_ENDED, RunState
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventEntry, EventKind
from tfckpt_trainer.rundir.records.job import BatchJob
from tfckpt_trainer.rundir.storage.documents import Document, load_if_exists, store
from tfckpt_trainer.rundir.storage.files import file_time
from tfckpt_tui.formats.text import clean
from tfckpt_tui.services.batch.job_view import JobView

if TYPE_CHECKING:
    from tfckpt_trainer.launch.batch.scheduler import Scheduler

_LATEST = 1e12
"""Times in seconds since the epoch are below it, as the scheduler writes them."""

WAITING_SECONDS = 10.0
"""Seconds between two questions about a job that waits, or that starts or ends."""

RUNNING_SECONDS = 30.0
"""Seconds between two questions about a job that runs."""

ENDED_SECONDS = 300.0
"""Seconds between two questions about a job that has ended."""

SILENT_SECONDS = 60.0
LONGEST_SILENT_SECONDS = 600.0
"""Seconds between two questions after one without an answer; they double up to the longest."""

LEAST_SECONDS = 3.0
"""Least time between two questions, whatever happens."""

SPREAD = 0.2
"""How much later than due, at most and as a share of the pause, a reader of a shared answer asks.

Otherwise all readers would ask at the moment at which their common answer is too old.
"""

_ABOUT_JOB = frozenset({EventKind.SUBMIT, EventKind.STOP, EventKind.REQUEUE, EventKind.PREEMPT})


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
    """`status/job.json`: what the scheduler last said about the job. Its age is that of the file.

    Attributes:
        id: ID of the job, as in `job.json` when it was asked for.
        started_at: The start that it was asked about, as in `job.json`.
        requeues: The same.
        has_ended: Whether the run had ended then, by its heartbeats.
        told_at: Time of the newest event about the job that was known then; 0 without one.
        report: The answer; None if the scheduler has forgotten the job. Texts are not cleaned.
    """

    id: str
    started_at: float | None = None
    requeues: int = 0
    has_ended: bool = False
    told_at: float = 0.0
    report: JobReport | None = None

    @property
    def as_answer(self) -> JobAnswer:
        """The answer, as the scheduler would give it now."""
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


def last_told(event_log: Iterable[EventEntry]) -> float:
    """Returns the time of the newest event that may have changed the batch job; 0 without one."""
    return max((entry.at for entry in event_log if entry.kind in _ABOUT_JOB), default=0.0)


class JobReader:
    """Reads the state of one job, and remembers it until it is time to ask again.

    Readers of one run share their answers through the run directory.
    """

    def __init__(
        self, scheduler: Scheduler | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Creates a reader.

        Args:
            scheduler: The scheduler that is asked; by default `SCHEDULER`.
            clock: Returns seconds; never goes back.
        """
        self._given_scheduler = scheduler
        self._clock = clock
        self._known: JobView | None = None
        self._asked_about: Topic | None = None
        self._asked_at = float("-inf")
        self._pause = 0.0
        self._spread = 1.0
        self._seen = 0.0
        self._silences = 0

    @cached_property
    def _scheduler(self) -> Scheduler:
        # Imported here: most runs have no batch job.
        from tfckpt_trainer.launch.schedulers import SCHEDULER

        return self._given_scheduler or SCHEDULER

    def known(self, record: BatchJob | None) -> JobView | None:
        """Returns what is known about the job, without a question."""
        if record is None:
            return None
        view = self._known
        if view is None or view.record.id != record.id:
            return JobView(record)
        restarted = view.record.started_at != record.started_at
        report = None if restarted else view.report
        return JobView(record, report, view.problem, view.is_forgotten)

    def is_due(
        self, record: BatchJob | None, state: RunState | None = None, told_at: float = 0.0
    ) -> bool:
        """Whether it is time to ask: at intervals, and soon after something has changed.

        Args:
            record: The job.
            state: The state of its run, by heartbeats.
            told_at: Time of the newest entry about the job in the event log; 0 without one.
        """
        if record is None or record.scheduler != self._scheduler.name:
            return False
        since = self._clock() - self._asked_at
        if Topic.of(record, state, told_at) != self._asked_about:
            return since >= LEAST_SECONDS
        return since >= self._pause * self._spread

    def read(
        self,
        record: BatchJob | None,
        state: RunState | None = None,
        told_at: float = 0.0,
        *,
        share: RunDirectory | None = None,
    ) -> JobView | None:
        """Returns the job of a run; asks the scheduler if `is_due`. Takes seconds at worst.

        Args:
            record: The job.
            state: The state of its run, by heartbeats.
            told_at: Time of the newest entry about the job in the event log; 0 without one.
            share: The run directory, to use and leave there an answer for all readers; None to
                ask the scheduler in any case.
        """
        if record is None or not self.is_due(record, state, told_at):
            return self.known(record)
        topic = Topic.of(record, state, told_at)
        if share is None:
            return self._ask(record, state, topic)
        self._spread = 1.0 + SPREAD * os.urandom(1)[0] / 255
        answer_file = load_answer(share)
        if answer_file is not None and not answer_file.answer.is_about(topic):
            answer_file = None
        view = self._take(answer_file, record, state, topic) if answer_file is not None else None
        if view is not None:
            return view
        view = self._ask(record, state, topic)
        if not self._silences:
            if answer_file is not None:
                # Of the event log, others may know more.
                topic = topic._replace(told_at=max(told_at, answer_file.answer.told_at))
            self._seen = share_answer(share, SharedAnswer(**topic._asdict(), report=view.report))
        return view

    def _take(
        self, answer_file: FoundAnswer, record: BatchJob, state: RunState | None, topic: Topic
    ) -> JobView | None:
        """Returns the job by a shared answer; None if that is too old."""
        view = JobView.of(record, answer_file.answer.as_answer)
        pause = pause_after(view.state, state)
        # Of a job that has ended, a command that is called once should not show an old answer.
        oldest = pause if self._known is not None else min(pause, RUNNING_SECONDS)
        # The one that this reader has seen is too old, whatever the clocks say.
        if answer_file.written_at == self._seen or answer_file.age >= oldest:
            return None
        self._known, self._asked_about, self._silences = view, topic, 0
        self._asked_at, self._pause = self._clock() - answer_file.age, pause
        self._seen = answer_file.written_at
        return view

    def _ask(self, record: BatchJob, state: RunState | None, topic: Topic) -> JobView:
        view = JobView.of(record, self._scheduler.read([record]))
        self._silences = self._silences + 1 if view.silence else 0
        self._known, self._asked_about, self._asked_at = view, topic, self._clock()
        self._pause = pause_after(view.state, state, self._silences)
        return view


def pause_after(state: JobState, run_state: RunState | None = None, silences: int = 0) -> float:
    """Returns the seconds until the scheduler is asked again about a job.

    Args:
        state: The state of the job.
        run_state: The state of its run, by heartbeats.
        silences: How many questions in a row had no answer.
    """
    if silences:
        return min(SILENT_SECONDS * 2.0 ** min(silences - 1, 10), LONGEST_SILENT_SECONDS)
    ends = state is JobState.RUNNING and run_state in HAS_ENDED
    if state in WAITING or state is JobState.COMPLETING or ends:
        return WAITING_SECONDS
    return ENDED_SECONDS if state in ENDED or state is JobState.UNKNOWN else RUNNING_SECONDS


def why_no_logs(run: RunDirectory) -> str:
    """Returns why a run has no log of a worker, as the end of a sentence."""
    aside = sorted(run.control.glob(f"{run.logs_directory.name}.damaged-*"))
    if aside:
        return f"what this run could not use there is {clean(str(aside[-1]))} now."
    job = read_job_record(run)
    if job is None:
        return "only `tfckpt-tui launch` keeps logs."
    if run.job_log.exists():
        return f"the output of batch job {job.id} is in {run.job_log}."
    return (
        f"batch job {job.id} has left no output either. It has not started, or its nodes do not "
        "see this directory."
    )
