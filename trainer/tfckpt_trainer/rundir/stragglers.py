"""Which worker holds up the others, and why, as far as their heartbeats tell."""

from __future__ import annotations

from collections.abc import Sequence

import psutil

from tfckpt_trainer.rundir.health import (
    LOST_AFTER_INTERVALS,
    ProcessProbe,
    WorkerState,
    heartbeat_age,
    process_lives,
    worker_state,
)
from tfckpt_trainer.rundir.processes import is_seen_from_here, process_namespace
from tfckpt_trainer.rundir.records.worker import Activity, Phase, WorkerStatus

QUIET_PERCENT = 25.0
"""A worker that uses less of a core than this computes nothing."""

STANDS_SECONDS = 3.0
STANDS_STEPS = 5.0
"""No step for this many seconds, and for this many usual steps: something holds the run up."""

SLOW_SHARE = 0.25
"""A worker that was kept from its processor for more than this part of the time is slowed."""

_STOPPED = "is stopped by a signal; SIGCONT lets it go on"


def suspect(statuses: Sequence[WorkerStatus], now: float) -> tuple[int, str] | None:
    """Returns the worker that seems to hold up the others, and in words why.

    The surest sign comes first: one that is stopped or silent, one that waits for its input or
    is in the script between two steps while others are in theirs, one that is kept from its
    processor, and the only one that computes.
    """
    for reason in (_silence, _elsewhere, _slowness, _alone):
        found = reason(statuses, now)
        if found is not None:
            return found
    return None


def holding_up(
    statuses: Sequence[WorkerStatus], now: float, lives: ProcessProbe = process_lives
) -> tuple[int, str] | None:
    """Returns the worker that holds up or slows a run, and why; None where all goes well.

    A run is held up where all train and no worker made a step for far longer than usual. What a
    lost worker said last explains nothing: of such a worker only the loss is told.
    """
    training = [status for status in statuses if status.activity is Activity.TRAINING]
    serving = [status for status in statuses if status.activity is Activity.SERVING]
    if not training or len(training) + len(serving) < len(statuses):
        return None
    lost = _first_lost(statuses, now, lives)
    if lost is not None:
        return lost.index, _loss_in_words(lost, now, lives)
    steps = [status.last_step_at for status in training if status.last_step_at is not None]
    usual = max((status.step_seconds or 0.0 for status in training), default=0.0)
    if steps and now - max(steps) > max(STANDS_SECONDS, STANDS_STEPS * usual):
        return suspect(statuses, now)
    return _slowness(training, now)


def loss(statuses: Sequence[WorkerStatus], now: float, lives: ProcessProbe = process_lives) -> str:
    """Returns what is known of the first lost worker, as a sentence; empty if none is lost."""
    lost = _first_lost(statuses, now, lives)
    if lost is None:
        return ""
    if _is_gone(lost, lives):
        return f"The process of worker {lost.index} ({lost.pid}) is gone."
    return f"Worker {lost.index} {_loss_in_words(lost, now, lives)}."


def process_is_stopped(status: WorkerStatus) -> bool:
    """Whether the process of a worker on this machine is stopped by a signal."""
    if status.pid <= 0 or not is_seen_from_here(status):
        return False
    try:
        return bool(psutil.Process(status.pid).status() == psutil.STATUS_STOPPED)
    except psutil.Error:
        return False


def _first_lost(
    statuses: Sequence[WorkerStatus], now: float, lives: ProcessProbe
) -> WorkerStatus | None:
    lost = (one for one in statuses if worker_state(one, now, lives) is WorkerState.LOST)
    return next(lost, None)


def _loss_in_words(status: WorkerStatus, now: float, lives: ProcessProbe) -> str:
    if _is_gone(status, lives):
        return f"its process {status.pid} is gone"
    if process_is_stopped(status):
        return _STOPPED
    return f"gave no sign of life for {heartbeat_age(status.updated_at, now):.0f} s"


def _is_gone(status: WorkerStatus, lives: ProcessProbe) -> bool:
    """Whether a process is known to have ended; a host name alone proves nothing."""
    is_ours = bool(status.namespace) and status.namespace == process_namespace()
    return is_ours and not lives(status.pid, status.process_started_at)


def _silence(statuses: Sequence[WorkerStatus], now: float) -> tuple[int, str] | None:
    for status in statuses:
        if process_is_stopped(status):
            return status.index, _STOPPED
        age = heartbeat_age(status.updated_at, now)
        if age >= LOST_AFTER_INTERVALS * status.interval_seconds:
            return status.index, f"gave no sign of life for {age:.0f} s"
    return None


def _elsewhere(statuses: Sequence[WorkerStatus], now: float) -> tuple[int, str] | None:
    if not any(status.phase is Phase.STEP for status in statuses):
        return None
    words = {Phase.INPUT: "waits for its input", Phase.SCRIPT: "is in the script between two steps"}
    late = [status for status in statuses if status.phase in words and status.phase_since]
    if not late:
        return None
    status = min(late, key=lambda one: one.phase_since or now)
    seconds = max(0.0, now - (status.phase_since or now))
    assert status.phase is not None
    return status.index, f"{words[status.phase]}, for {seconds:.0f} s"


def _slowness(statuses: Sequence[WorkerStatus], now: float) -> tuple[int, str] | None:
    del now
    slowed = [status for status in statuses if (status.cpu_stall_ratio or 0.0) > SLOW_SHARE]
    if not slowed or len(slowed) == len(statuses) > 1:
        return None
    status = max(slowed, key=lambda one: one.cpu_stall_ratio or 0.0)
    share = round(100 * (status.cpu_stall_ratio or 0.0))
    return status.index, f"is kept from its processor for {share}% of the time"


def _alone(statuses: Sequence[WorkerStatus], now: float) -> tuple[int, str] | None:
    del now
    busy = [status for status in statuses if (status.cpu_percent or 0.0) > QUIET_PERCENT]
    if len(busy) == 1 < len(statuses):
        return busy[0].index, "computes, and the others wait for it"
    return None
