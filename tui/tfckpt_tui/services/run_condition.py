"""What a run does, why, and what is wrong: from heartbeats, its batch job and its event log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfckpt_trainer.catalog.alerts import Alert, find_alerts
from tfckpt_trainer.catalog.scan.checkpoints import Checkpoint
from tfckpt_trainer.rundir.health import RunState, has_reported_end
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import JournalEntry
from tfckpt_tui.services.batch.job_alerts import find_job_alerts
from tfckpt_tui.services.batch.job_view import JobView, state_with_job, with_events
from tfckpt_tui.services.failure import find_failure, state_reason
from tfckpt_tui.services.heartbeats import Heartbeats


@dataclass(frozen=True)
class RunCondition:
    """What a run does, and why.

    Attributes:
        state: What it does.
        reason: Why, as sentences; empty if there is nothing to say.
        job: Its batch job, with what the event log says about it; None if it has none.
    """

    state: RunState
    reason: str
    job: JobView | None


def find_condition(
    run: RunDirectory,
    heartbeats: Heartbeats,
    job: JobView | None,
    journal: Sequence[JournalEntry],
) -> RunCondition:
    """Returns the condition of a run.

    Args:
        run: The run directory.
        heartbeats: The newest heartbeats.
        job: The batch job, as Slurm knows it; None if there is none.
        journal: The newest entries of the event log, oldest first.
    """
    job = with_events(job, reversed(journal))
    reported = has_reported_end(heartbeats.workers, heartbeats.supervisor)
    state = state_with_job(heartbeats.state, job, heartbeats.last_at, reported=reported)
    return RunCondition(state, state_reason(run, state, heartbeats, job, journal), job)


def find_run_alerts(
    run: RunDirectory,
    heartbeats: Heartbeats,
    condition: RunCondition,
    checkpoints: Sequence[Checkpoint],
) -> tuple[Alert, ...]:
    """Returns all alerts about a run: about its job, its end, its processes and its checkpoints.

    Args:
        run: The run directory.
        heartbeats: The newest heartbeats.
        condition: The condition of the run.
        checkpoints: All checkpoints, newest first.
    """
    state, job = condition.state, condition.job
    return (
        *find_job_alerts(run.root, state, job, heartbeats.last_at, heartbeats.now),
        *find_failure(run, state, condition.reason),
        *find_alerts(
            run.root,
            heartbeats.workers,
            checkpoints,
            heartbeats.supervisor,
            supervisor_lives=heartbeats.living_supervisor is not None,
        ),
    )
