"""Finds the straggler of a run, the worker that the others wait for, from the heartbeats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tfckpt_trainer.rundir.heartbeats.clock import OF_A_COPY
from tfckpt_trainer.rundir.heartbeats.health import (
    ProcessProbe,
    WorkerState,
    heartbeat_age,
    lost_after,
    told_until,
    worker_state,
)
from tfckpt_trainer.rundir.heartbeats.process_ids import is_pid_valid_here, process_namespace
from tfckpt_trainer.rundir.heartbeats.process_table import find_process, process_lives
from tfckpt_trainer.rundir.records.worker import (
    BEFORE_RUN,
    Activity,
    Phase,
    TaskShare,
    WorkerStatus,
)
from tfckpt_trainer.words.times import local_time

QUIET_PERCENT = 25.0
"""CPU use below which a worker is idle, in percent of one core."""

HELD_UP_SECONDS = 3.0
HELD_UP_CALLS = 5.0
"""A run is held up if no worker completes a step for as long as this many calls take."""

CPU_STALL_RATIO = 0.25
"""CPU stall above which a worker counts as slowed."""


SLOW_SHARE = 0.5
"""Steps that a slow worker computes, for each of the median of the others."""


def shares_by_index(statuses: Sequence[WorkerStatus]) -> dict[int, TaskShare]:
    """Returns what each process does for the chief that coordinates it, by the process's index."""
    shares = {(one.job, one.task): one for status in statuses for one in status.shares}
    found: dict[int, TaskShare] = {}
    tasks: Counter[str] = Counter()
    for status in sorted(statuses, key=lambda status: status.index):
        share = shares.get((status.job, tasks[status.job]))
        tasks[status.job] += 1
        if share is not None:
            found[status.index] = share
    return found


def likely_straggler(statuses: Sequence[WorkerStatus], now: float) -> tuple[int, str] | None:
    """Returns the most likely straggler and the reason; None if there is no sign of one.

    The signs, most reliable first:

    1. The worker is stopped or sends no heartbeat.
    2. It waits for input or is between two steps, while others are in a step.
    3. It has a CPU stall.
    4. It is the only one that computes.
    """
    for reason in (silent_worker, _between_steps, _cpu_stall, _computes_alone):
        straggler = reason(statuses, now)
        if straggler is not None:
            return straggler
    return None


def find_straggler(
    statuses: Sequence[WorkerStatus], now: float, lives: ProcessProbe = process_lives
) -> tuple[int, str] | None:
    """Returns the straggler that holds up or slows the run, and the reason; None if there is none.

    A lost worker comes first. Otherwise a run is held up if all workers train, but none has
    completed a step for much longer than usual.
    """
    training = [status for status in statuses if status.activity is Activity.TRAINING]
    serving = [status for status in statuses if status.activity is Activity.SERVING]
    if not training or len(training) + len(serving) < len(statuses):
        return None
    lost = _first_lost(statuses, now, lives)
    if lost is not None:
        return lost.index, why_silent(lost, now, lives)
    steps = [status.last_step_at for status in training if status.last_step_at is not None]
    until = min(told_until(status, now) for status in training)
    usual = max((status.call_seconds or 0.0 for status in training), default=0.0)
    if steps and until - max(steps) > max(HELD_UP_SECONDS, HELD_UP_CALLS * usual):
        return likely_straggler(statuses, now)
    return _cpu_stall(training, now) or _computes_slowly(statuses)


def describe_lost_worker(
    statuses: Sequence[WorkerStatus],
    now: float,
    lives: ProcessProbe = process_lives,
    *,
    has_ended: bool = False,
) -> str:
    """Returns a sentence about the first lost worker; empty if none is lost.

    Args:
        statuses: The heartbeats of the workers.
        now: Seconds since the epoch.
        lives: Checks whether a process runs on this machine.
        has_ended: Whether the run has ended, so that the time of the last heartbeat says more than
            its age.
    """
    lost = _first_lost(statuses, now, lives)
    if lost is None:
        return ""
    if has_ended and not is_process_gone(lost, lives) and not is_process_stopped(lost):
        since = local_time(lost.updated_at, impossible="an unknown time")
        return f"Worker {lost.index} has sent no heartbeat since {since}."
    return f"Worker {lost.index} {why_silent(lost, now, lives)}."


def why_silent(status: WorkerStatus, now: float, lives: ProcessProbe = process_lives) -> str:
    """Returns why a worker does not react, as what it does; empty if it does, or has exited.

    A process that is stopped by a signal reacts no more, before its heartbeat is old.

    Args:
        status: Its heartbeat.
        now: Seconds since the epoch.
        lives: Checks whether a process runs on this machine.
    """
    if not status.has_ended and is_process_stopped(status):
        return f"is stopped by a signal; resume it with `kill -CONT {status.pid}`"
    if worker_state(status, now, lives) is not WorkerState.LOST:
        return ""
    if status.pid == OF_A_COPY:
        return "trained in the directory of which this one is a copy"
    if is_process_gone(status, lives):
        return f"is gone (process {status.pid})"
    return f"has sent no heartbeat for {heartbeat_age(status.updated_at, now):.0f} s"


def is_process_stopped(status: WorkerStatus) -> bool:
    """Whether the process of a worker on this machine was stopped by a signal."""
    if not is_pid_valid_here(status):
        return False
    try:
        process = find_process(status.pid)
    except PermissionError:
        return False
    return process is not None and process.is_stopped


def _first_lost(
    statuses: Sequence[WorkerStatus], now: float, lives: ProcessProbe
) -> WorkerStatus | None:
    lost = (status for status in statuses if worker_state(status, now, lives) is WorkerState.LOST)
    return next(lost, None)


def is_process_gone(status: WorkerStatus, lives: ProcessProbe) -> bool:
    """Whether a process has certainly exited. An equal host name alone does not prove it."""
    is_ours = bool(status.namespace) and status.namespace == process_namespace()
    return is_ours and not lives(status.process)


def silent_worker(statuses: Sequence[WorkerStatus], now: float) -> tuple[int, str] | None:
    """Returns the first worker that is stopped or sends no heartbeat, and the reason."""
    for status in statuses:
        # Before its run begins, a worker writes one heartbeat for each phase.
        is_late = status.phase not in BEFORE_RUN and heartbeat_age(
            status.updated_at, now
        ) >= lost_after(status)
        if not status.has_ended and (is_late or is_process_stopped(status)):
            return status.index, why_silent(status, now)
    return None


def _between_steps(statuses: Sequence[WorkerStatus], now: float) -> tuple[int, str] | None:
    if not any(status.phase is Phase.STEP for status in statuses):
        return None
    words = {Phase.INPUT: "has waited for input", Phase.SCRIPT: "has run code between two steps"}
    late = [status for status in statuses if status.phase in words and status.phase_since]
    if not late:
        return None
    status = min(late, key=lambda status: status.phase_since or now)
    seconds = max(0.0, now - (status.phase_since or now))
    assert status.phase is not None
    return status.index, f"{words[status.phase]} for {seconds:.0f} s"


def _cpu_stall(statuses: Sequence[WorkerStatus], now: float) -> tuple[int, str] | None:
    del now
    slowed = [status for status in statuses if (status.cpu_stall_ratio or 0.0) > CPU_STALL_RATIO]
    if not slowed or len(slowed) == len(statuses) > 1:
        return None
    status = max(slowed, key=lambda status: status.cpu_stall_ratio or 0.0)
    share = round(100 * (status.cpu_stall_ratio or 0.0))
    return status.index, f"waits for a free core {share}% of the time (CPU stall)"


def _computes_slowly(statuses: Sequence[WorkerStatus]) -> tuple[int, str] | None:
    rates = {
        index: share.steps_per_second
        for index, share in shares_by_index(statuses).items()
        if share.steps_per_second is not None
    }
    if len(rates) < 2 or max(rates.values()) == 0:
        return None
    slowest = min(rates, key=lambda index: rates[index])
    others = sorted(rate for index, rate in rates.items() if index != slowest)
    usual = others[len(others) // 2]
    if rates[slowest] >= SLOW_SHARE * usual:
        return None
    return slowest, f"computes {rates[slowest]:.3g} steps/s, and others {usual:.3g}"


def _computes_alone(statuses: Sequence[WorkerStatus], now: float) -> tuple[int, str] | None:
    del now
    busy = [status for status in statuses if (status.cpu_percent or 0.0) > QUIET_PERCENT]
    if len(busy) == 1 < len(statuses):
        return busy[0].index, "is the only worker that computes; the others wait"
    return None
