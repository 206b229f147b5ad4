"""The batch job of a run: its record, joined with what the scheduler says."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from tfckpt_trainer.launch.batch.jobs import ENDED, WAITING, JobAnswer, JobReport, JobState
from tfckpt_trainer.rundir.heartbeats.health import HAS_ENDED, RunState
from tfckpt_trainer.rundir.records.event import EventEntry, EventKind
from tfckpt_trainer.rundir.records.job import BatchJob
from tfckpt_trainer.words.counts import few_of
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.reports.run_facts import JobFacts

_EXACT_BELOW = 90.0
"""Seconds below which a duration is shown with its seconds."""

_SAME_START_SECONDS = 30.0
"""How much later than a heartbeat of the same start the scheduler may say that it began."""

_TRAINS = frozenset({RunState.TRAINING, RunState.PAUSED, RunState.DEGRADED})

_IMPLIED = frozenset({JobState.QUEUED, JobState.RUNNING, JobState.FINISHED, JobState.UNKNOWN})
"""States of a job that the state of its run shows already, or that say nothing."""

_LEAVING = frozenset({JobState.RUNNING, JobState.COMPLETING})
"""States of a job whose processes leave, after the supervisor has requeued it."""

_AFTER_JOB = {JobState.CANCELLED: RunState.STOPPED, JobState.FINISHED: RunState.UNATTENDED}
"""States of a run whose job ended without a sign of its processes; otherwise it failed."""

_WORDS = {JobState.TIMEOUT: "time limit reached"}


class JobView(msgspec.Struct, frozen=True):
    """The batch job of a run.

    Attributes:
        record: The job, as the launch and the supervisor recorded it.
        report: What the scheduler says; None if it did not answer or does not know the job.
        problem: Why the scheduler says nothing; safe to show.
        is_forgotten: Whether the scheduler answered and does not know the job any more.
        told: Kinds of events since the last start, by the event log: whether the job was
            preempted, requeued or cancelled.
    """

    record: BatchJob
    report: JobReport | None = None
    problem: str = ""
    is_forgotten: bool = False
    told: frozenset[EventKind] = frozenset()

    @classmethod
    def of(cls, record: BatchJob, answer: JobAnswer | None) -> JobView:
        """Returns a job with what the scheduler says about it.

        Args:
            record: The job.
            answer: The scheduler's answer to a question about it; None if it was not asked.
        """
        if answer is None:
            return cls(record)
        silence = answer.silence_about(record)
        if silence:
            return cls(record, None, clean(silence))
        report = answer.report_on(record)
        if report is None:
            return cls(record, None, "Slurm does not know the job any more", is_forgotten=True)
        return cls(record, report)

    @property
    def state(self) -> JobState:
        """The state of the job; one that has started before waits as `requeued`."""
        if self.report is None:
            return JobState.UNKNOWN
        state = self.report.state
        waits_again = state is JobState.QUEUED and self.record.started_at is not None
        # The processes of the last start leave first.
        will_wait = state in _LEAVING and EventKind.REQUEUE in self.told
        return JobState.REQUEUED if waits_again or will_wait else state

    @property
    def is_waiting(self) -> bool:
        """Whether the job waits in the queue."""
        return self.state in WAITING

    def is_newer_than(self, heard_at: float) -> bool:
        """Whether the scheduler speaks of a start that has left no sign in the run directory.

        Args:
            heard_at: The newest heartbeat, in seconds since the epoch; 0 if there is none.
        """
        if self.report is None:
            return False
        started_at = self.report.started_at
        is_later = started_at is not None and started_at > heard_at + _SAME_START_SECONDS
        is_silent = self.record.started_at is None and heard_at < self.record.submitted_at
        return is_silent or is_later

    @property
    def ended_unseen(self) -> bool:
        """Whether the job ended without a start, as far as is known, and nobody cancelled it."""
        is_first = self.record.started_at is None
        return self.is_forgotten and is_first and EventKind.STOP not in self.told

    @property
    def is_active_on_nodes(self) -> bool:
        """Whether the scheduler says that it runs or ends, and it was not requeued."""
        return self.state in _LEAVING

    @property
    def was_preempted(self) -> bool:
        """Whether the scheduler preempted the last start of the job."""
        return self.state is JobState.PREEMPTED or EventKind.PREEMPT in self.told

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of the current start, or of the last one."""
        reported = self.report.nodes if self.report is not None else ()
        return reported or tuple(self.record.nodes)

    @property
    def node_list(self) -> str:
        """The nodes in few characters; safe to show."""
        if self.report is not None and self.report.node_list:
            return clean(self.report.node_list)
        return clean(few_of(self.record.nodes, 1))

    @property
    def ends_at(self) -> float | None:
        """When a running job reaches its time limit; None if unknown or without a limit."""
        if self.state is JobState.RUNNING and self.report is not None:
            return self.report.ends_at
        # A job that Slurm has forgotten has ended.
        is_unknown = self.state is JobState.UNKNOWN and not self.is_forgotten
        return self.record.ends_at if is_unknown else None

    @property
    def silence(self) -> str:
        """Why the scheduler cannot be asked about the job, safe to show; empty if it answered."""
        return "" if self.report is not None or self.is_forgotten else self.problem

    @property
    def reason(self) -> str:
        """Why the job waits, in the scheduler's words; safe to show."""
        return clean(self.report.reason) if self.report is not None and self.is_waiting else ""

    @property
    def explanation(self) -> str:
        """The reason in plain words, if it is a common one; safe to show."""
        return clean(self.report.explanation) if self.report is not None and self.is_waiting else ""

    @property
    def is_stuck(self) -> bool:
        """Whether the job does not start until somebody acts."""
        return self.report is not None and self.is_waiting and self.report.is_stuck

    @property
    def expected_start(self) -> float | None:
        """When the scheduler expects it to start; None if unknown, or if somebody has to act first.

        The scheduler keeps the forecast of a job that is held.
        """
        return self.report.expected_start if self.report is not None and not self.is_stuck else None

    @property
    def word(self) -> str:
        """The state of the job, unless the state of its run says as much; else empty."""
        if self.state is JobState.REQUEUED and self.was_preempted:
            return JobState.PREEMPTED.value
        return "" if self.state in _IMPLIED else _WORDS.get(self.state, self.state.value)

    @property
    def ending(self) -> str:
        """How the scheduler says that the job ended: `cancelled`, `out of memory`."""
        assert self.report is not None
        if self.report.out_of_memory:
            return "out of memory"
        return _WORDS.get(self.state, self.state.value)

    def details(self, now: float, *, runs: bool) -> tuple[str, ...]:
        """Returns what is worth knowing about the job, the most important first; safe to show.

        Args:
            now: Seconds since the epoch.
            runs: Whether processes of the run live, by their heartbeats.
        """
        facts = [self.word, self.reason]
        if self.silence and not runs:
            # It may wait in the queue.
            facts.append(self.state.value)
        if self.is_waiting:
            expected = self.expected_start
            if expected is not None and expected > now:
                facts.append(f"starts in {_about(expected - now)}")
        elif self.state is JobState.RUNNING or (runs and not self.word):
            if self.ends_at is not None:
                left = self.ends_at - now
                facts.append(f"{_about(left)} left" if left > 0 else "at its time limit")
            facts.append(self.node_list)
        return tuple(part for part in facts if part)

    @property
    def facts(self) -> JobFacts:
        """The job as `status --json` prints it."""
        record, report = self.record, self.report
        return JobFacts(
            scheduler=record.scheduler,
            id=record.id,
            name=record.name,
            user=record.user,
            state=self.state,
            reason=report.reason if report is not None and self.is_waiting else "",
            expected_start=self.expected_start,
            started_at=record.started_at if report is None else report.started_at,
            ends_at=self.ends_at,
            nodes=self.nodes,
            requeues=record.requeues,
            max_requeues=record.max_requeues,
            preempted=self.was_preempted,
            submitted_at=record.submitted_at,
            problem=self.problem,
        )


def _about(seconds: float) -> str:
    """Returns a duration, in whole minutes unless it is short."""
    return units.duration(round(seconds / 60) * 60 if seconds > _EXACT_BELOW else seconds)


def with_events(job: JobView | None, entries: Iterable[EventEntry]) -> JobView | None:
    """Adds what the event log says about a job since its last start.

    Args:
        job: The job.
        entries: The event log, newest first.
    """
    if job is None:
        return None
    told = set()
    for entry in entries:
        if entry.kind is EventKind.START or entry.at <= (job.record.started_at or 0.0):
            break
        is_cancel = entry.kind is EventKind.STOP and entry.at >= job.record.submitted_at
        if is_cancel or entry.kind in {EventKind.PREEMPT, EventKind.REQUEUE}:
            told.add(entry.kind)
    return replace(job, told=frozenset(told))


def state_with_job(
    state: RunState, job: JobView | None, last_sign_at: float, *, reported: bool = True
) -> RunState:
    """Returns the state of a run, given the state by its heartbeats alone and its job.

    Args:
        state: The state of the run by its heartbeats.
        job: Its batch job, if it has one.
        last_sign_at: The newest heartbeat, in seconds since the epoch; 0 if there is none.
        reported: Whether the processes reported their end, instead of falling silent.
    """
    if job is None:
        return state
    if job.report is None:
        is_lost = job.ended_unseen and state is RunState.UNATTENDED
        return RunState.FAILED if is_lost else state
    if job.is_waiting:
        return state if state in _TRAINS else RunState.QUEUED
    if job.state in ENDED and job.is_newer_than(last_sign_at) and state in HAS_ENDED:
        return _AFTER_JOB.get(job.state, RunState.FAILED)
    started = job.report.started_at
    begins = job.state is JobState.RUNNING and started is not None and started > last_sign_at
    if begins and state in HAS_ENDED:
        return RunState.STARTING
    is_lost = state is RunState.FAILED and not reported and job.is_active_on_nodes
    return RunState.DEGRADED if is_lost else state
