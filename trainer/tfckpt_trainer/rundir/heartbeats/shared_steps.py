"""Signs of life that workers give by the steps which they make together.

Each step of a synchronous strategy reduces the gradients of all workers. So a step that the chief
has completed shows that all others lived then, whatever their own heartbeats say.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tfckpt_trainer.rundir.heartbeats.clock import TOLERANCE_SECONDS
from tfckpt_trainer.rundir.records.worker import Activity, WorkerStatus

_TOGETHER = "worker"
"""The job of the workers that make each step together, and of their chief."""


def with_shared_steps(statuses: Sequence[WorkerStatus]) -> list[WorkerStatus]:
    """Adds to heartbeats what the last step of the chief shows.

    A chief that coordinates others makes no step with them, so nothing is added.

    Args:
        statuses: The heartbeats of one run.
    """
    chief = next((status for status in statuses if status.index == 0), None)
    step_at = chief.last_step_at if chief is not None and is_shared(chief) else None
    if chief is None or step_at is None:
        return list(statuses)
    return [
        _heard(status, chief, step_at) if _made_it(status, step_at) else status
        for status in statuses
    ]


def measured_at(status: WorkerStatus) -> float:
    """Returns when a worker measured what it tells of itself, in seconds since the epoch."""
    return status.updated_at if status.measured_at is None else status.measured_at


def is_shared(chief: WorkerStatus) -> bool:
    """Whether the other workers make each step together with a chief."""
    return chief.job == _TOGETHER


def _made_it(status: WorkerStatus, step_at: float) -> bool:
    is_other = status.index != 0 and status.job == _TOGETHER
    is_older = status.updated_at + TOLERANCE_SECONDS < step_at
    return is_other and is_older and not status.has_ended


def _heard(status: WorkerStatus, chief: WorkerStatus, step_at: float) -> WorkerStatus:
    if status.activity is not Activity.TRAINING:
        # It has gone on since.
        status = msgspec.structs.replace(
            status, activity=Activity.TRAINING, detail="", phase=None, phase_since=None
        )
    limit = chief.lost_after_seconds
    return msgspec.structs.replace(
        status,
        updated_at=step_at,
        measured_at=measured_at(status),
        interval_seconds=chief.interval_seconds,
        # A rare heartbeat of the chief may be written just before its next step.
        lost_after_seconds=None if limit is None else limit + (chief.call_seconds or 0.0),
        step=chief.step,
        branch=chief.branch,
        last_step_at=step_at,
    )
