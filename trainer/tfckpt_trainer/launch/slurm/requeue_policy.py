"""Decides whether a job is started again after its supervisor has ended; pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from tfckpt_trainer.launch.slurm.controller import SlurmJob
from tfckpt_trainer.rundir.records.job import BatchJob
from tfckpt_trainer.rundir.records.run import SupervisorState
from tfckpt_trainer.words.counts import all_are

FIRST_PAUSE_SECONDS = 240.0
"""Pause after the first start without a step."""

LONGEST_PAUSE_SECONDS = 3600.0

QUEUE_SECONDS = 120.0
"""How long a requeued job waits at least; Slurm itself starts some at once."""

MOST_FRUITLESS_STARTS = 3
"""After this many starts in a row without a step, only a preempted job is started again."""


class Requeue(Enum):
    """What to do with a job after its supervisor has ended."""

    NO = auto()
    REQUEUE = auto()
    BY_SLURM = auto()
    CANCEL = auto()
    REFUSED = auto()


@dataclass(frozen=True)
class JobEnding:
    """How the workers of one start of a job ended.

    Attributes:
        state: The last state of the supervisor.
        facts: What Slurm says about the job.
        near_limit: Whether Slurm announced the time limit.
        obstacle: What prevented or ended the last start, and may not prevent or end another; empty
            if nothing did.
        trained: Whether any worker made a step.
        dead_nodes: Which nodes of the job are down, as a sentence; empty if none is.
        stopped_by: Who sent a command to stop that was accepted; empty if nobody did.
    """

    state: SupervisorState
    facts: SlurmJob
    near_limit: bool = False
    obstacle: str = ""
    trained: bool = False
    dead_nodes: str = ""
    stopped_by: str = ""


@dataclass(frozen=True)
class RequeueDecision:
    """Whether the job is started again, and why; a job that ends for good may need no reason.

    Attributes:
        pause_seconds: Time that it waits at least.
        fruitless: Starts in a row without a step, with this one.
    """

    requeue: Requeue
    reason: str = ""
    pause_seconds: float = 0.0
    fruitless: int = 0


def decide_requeue(ending: JobEnding, job: BatchJob) -> RequeueDecision:
    """Decides whether a job is started again.

    A job that was preempted or killed, that reached its time limit, that lost nodes, or whose
    workers were killed again and again, is started again. A job that finished, failed, was stopped
    or was cancelled is not.
    """
    if ending.state is not SupervisorState.STOPPED:
        return RequeueDecision(Requeue.NO)
    facts = ending.facts
    reason = _reason(ending)
    if facts.restarts > job.requeues:
        if ending.stopped_by:
            stopped = f"The run was stopped by {ending.stopped_by}."
            words = f"{stopped} Slurm requeues job {job.id}, which is cancelled therefore."
            return RequeueDecision(Requeue.CANCEL, words)
        cause = reason or ending.dead_nodes
        return RequeueDecision(Requeue.BY_SLURM, f"{cause} Slurm requeues the job.".lstrip())
    if ending.stopped_by:
        return RequeueDecision(Requeue.NO)
    if not reason:
        return RequeueDecision(Requeue.NO, _why_over(facts, job))
    fruitless = 0 if ending.trained else job.fruitless + 1
    if job.requeues >= job.max_requeues:
        used = (
            f"{all_are(job.max_requeues, 'requeue')} used."
            if job.max_requeues
            else "No requeue is allowed."
        )
        return RequeueDecision(Requeue.REFUSED, f"{reason} {used}")
    if fruitless >= MOST_FRUITLESS_STARTS and not facts.preempted:
        at_limit = ending.near_limit or facts.timed_out
        advice = " Launch again with a longer time limit." if at_limit else ""
        return RequeueDecision(
            Requeue.REFUSED, f"{reason} {fruitless} starts in a row ended before a step.{advice}"
        )
    return RequeueDecision(Requeue.REQUEUE, reason, pause_after(fruitless), fruitless)


def pause_after(fruitless: int) -> float:
    """Returns how long to wait after a number of starts without a step."""
    if fruitless < 1:
        return 0.0
    return min(FIRST_PAUSE_SECONDS * 2.0 ** min(fruitless - 1, 64), LONGEST_PAUSE_SECONDS)


def _why_over(facts: SlurmJob, job: BatchJob) -> str:
    """Returns how Slurm ends a job for good; empty if the run was stopped by a command."""
    if facts.state in {"", "RUNNING"}:
        return ""
    if facts.state in {"CANCELLED", "COMPLETING"}:
        return f"Batch job {job.id} was cancelled."
    return f"Slurm ended batch job {job.id} ({facts.state})."


def _reason(ending: JobEnding) -> str:
    facts = ending.facts
    if facts.preempted:
        return "The job is preempted."
    if facts.timed_out:
        return "The time limit of the job is reached."
    if facts.killed:
        return "The process that Slurm started was killed."
    if facts.state not in {"", "RUNNING"}:
        return ""  # A person cancelled it.
    if ending.near_limit:
        return "The time limit of the job is near."
    return ending.obstacle
