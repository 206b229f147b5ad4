"""Signs of life that workers give by the steps which they make together.

Each step of a synchronous strategy reduces the gradients of all workers. So a step that the chief
has completed shows that all others lived then, whatever their own heartbeats say.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tfckpt_trainer.rundir.heartbeats.attention import IDLE_LOST_SECONDS, MEMBER_LOST_SECONDS
from tfckpt_trainer.rundir.heartbeats.clock import TOLERANCE_SECONDS
from tfckpt_trainer.rundir.records.worker import Activity, WorkerStatus

_TOGETHER = "worker"
"""The job of the workers that make each step together, and of their chief."""


def with_shared_steps(
    statuses: Sequence[WorkerStatus], *, only_rare: bool = False
) -> list[WorkerStatus]:
    """Adds to heartbeats what the last step of the chief shows.

    A chief that coordinates others makes no step with them, so nothing is added. A worker whose own
    heartbeats are rarer than those of the chief is lost as soon after the last step as the chief.

    Args:
        statuses: The heartbeats of one run.
        only_rare: Whether to add it only to such heartbeats.
    """
    chief = next((status for status in statuses if status.index == 0), None)
    step_at = chief.last_step_at if chief is not None and is_shared(chief) else None
    if chief is None or step_at is None:
        return list(statuses)
    return [
        _heard(status, chief, step_at) if is_rare(status) or not only_rare else status
        for status in statuses
    ]


def is_rare(status: WorkerStatus) -> bool:
    """Whether a worker leaves it to the steps of its chief to tell that it lives."""
    limit = status.lost_after_seconds
    return limit is not None and limit >= MEMBER_LOST_SECONDS


def measured_at(status: WorkerStatus) -> float:
    """Returns when a worker measured what it tells of itself, in seconds since the epoch."""
    return status.updated_at if status.measured_at is None else status.measured_at


def measured_step(status: WorkerStatus) -> int:
    """Returns the step of a worker at which it measured what it tells of itself."""
    return status.step if status.measured_step is None else status.measured_step


def is_shared(chief: WorkerStatus) -> bool:
    """Whether the other workers make each step together with a chief."""
    return chief.job == _TOGETHER


def _heard(status: WorkerStatus, chief: WorkerStatus, step_at: float) -> WorkerStatus:
    if status.index == 0 or status.job != _TOGETHER or status.has_ended:
        return status
    limit = IDLE_LOST_SECONDS if is_rare(status) else chief.lost_after_seconds
    # A rare heartbeat of the chief may be written just before its next step.
    limit = None if limit is None else limit + (chief.call_seconds or 0.0)
    if status.updated_at + TOLERANCE_SECONDS >= step_at:
        if not is_rare(status):
            return status
        # As often as that of the chief its own one is looked at, and lost as soon.
        return msgspec.structs.replace(
            status, interval_seconds=chief.interval_seconds, lost_after_seconds=limit
        )
    if status.activity is not Activity.TRAINING:
        # It has gone on since.
        status = msgspec.structs.replace(
            status, activity=Activity.TRAINING, detail="", phase=None, phase_since=None
        )
    return msgspec.structs.replace(
        status,
        updated_at=step_at,
        measured_at=measured_at(status),
        measured_step=measured_step(status),
        interval_seconds=chief.interval_seconds,
        lost_after_seconds=limit,
        step=chief.step,
        branch=chief.branch,
        last_step_at=step_at,
    )
