"""Derives the states of workers and of the run from their heartbeats."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from enum import StrEnum

import msgspec

from tfckpt_trainer.rundir.heartbeats.process_ids import is_pid_valid_here
from tfckpt_trainer.rundir.heartbeats.process_table import process_lives
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.process import ProcessIdentity
from tfckpt_trainer.rundir.records.run import SupervisorState, SupervisorStatus, WorkerProcess
from tfckpt_trainer.rundir.records.worker import (
    BEFORE_RUN,
    Activity,
    Ending,
    Phase,
    WorkerStatus,
)

LOST_AFTER_INTERVALS = 5.0
"""A worker is lost if its heartbeat is this many intervals old, unless that says otherwise."""

LATE_SECONDS = 2.0
"""So much later than it is due a heartbeat is late."""

STALLED_AFTER_CALLS = 20.0
"""A worker is stalled if it completes no step for as long as this many calls take."""

STALLED_AFTER_SECONDS = 10.0
"""Shortest time without a step after which a worker is stalled."""


STANDS_AFTER_SECONDS = 5.0
STANDS_AFTER_CALLS = 5.0
"""Time without a step, or so many usual calls, after which it is worth a closer look."""

SAME_START_SECONDS = 0.2
"""By how much two processes may differ on when a third one was started. A worker lives longer."""

SUPERVISOR_LOST_SECONDS = 300.0
"""Longest time in which workers notice that their supervisor is gone, save and end."""

_RESTORE_SECONDS = 10.0
"""After a restore, a trainer writes a heartbeat sooner than this."""


class WorkerState(StrEnum):
    """State of a worker, as seen from outside."""

    STARTING = "starting"
    TRAINING = "training"
    SAVING = "saving"
    RESTORING = "restoring"
    PAUSED = "paused"
    WAITING = "waiting"
    SERVING = "serving"
    STALLED = "stalled"
    LOST = "lost"
    EXITED = "exited"


MAKES_NO_STEPS = frozenset({WorkerState.PAUSED, WorkerState.STALLED})
"""States of a worker whose run goes on, in which what was measured in steps is of the past."""


class RunState(StrEnum):
    """State of a run, as seen from outside.

    `queued` is known from its scheduler alone. `refused` is a run whose newest batch job the
    scheduler did not accept; of an `unanswered` one, it did not say whether it did. `unknown` is a
    run whose directory does not answer.
    """

    QUEUED = "queued"
    STARTING = "starting"
    TRAINING = "training"
    PAUSED = "paused"
    DEGRADED = "degraded"
    RESTARTING = "restarting"
    STOPPED = "stopped"
    FINISHED = "finished"
    FAILED = "failed"
    REFUSED = "refused"
    UNANSWERED = "unanswered"
    UNATTENDED = "unattended"
    UNKNOWN = "unknown"


HAS_ENDED = frozenset(
    {
        RunState.UNATTENDED,
        RunState.QUEUED,
        RunState.FINISHED,
        RunState.STOPPED,
        RunState.FAILED,
        RunState.REFUSED,
        RunState.UNANSWERED,
    }
)
"""States of a run without running processes."""

ProcessProbe = Callable[[ProcessIdentity], bool]
"""Returns whether a process runs on this machine."""


def heartbeat_age(updated_at: float, now: float) -> float:
    """Returns the seconds since a heartbeat; 0 if the clocks of two machines disagree."""
    return max(0.0, now - updated_at)


def lost_after(status: WorkerStatus | SupervisorStatus) -> float:
    """Returns the age in seconds at which a heartbeat is too old."""
    limit = status.lost_after_seconds
    return LOST_AFTER_INTERVALS * status.interval_seconds if limit is None else limit


def is_late(status: WorkerStatus | SupervisorStatus, now: float) -> bool:
    """Whether a heartbeat should have been followed by another one at time `now`."""
    is_due_again = not status.has_ended
    return is_due_again and now - status.updated_at > status.interval_seconds + LATE_SECONDS


def stands(
    activity: Activity, last_step_at: float | None, call_seconds: float | None, now: float
) -> bool:
    """Whether a worker that trains has made no step for longer than usual, at time `now`.

    Its heartbeats are frequent then, on every disk.

    Args:
        activity: What it does.
        last_step_at: When it made its last step, in seconds since the epoch.
        call_seconds: The usual seconds between two moments at which its step changes.
        now: Seconds since the epoch.
    """
    if activity is not Activity.TRAINING or last_step_at is None:
        return False
    return now - last_step_at > max(STANDS_AFTER_SECONDS, STANDS_AFTER_CALLS * (call_seconds or 0))


def told_until(status: WorkerStatus, now: float) -> float:
    """Returns until when a heartbeat tells what a worker did not do.

    If heartbeats are rare because nobody looks, it may have made a step since the last one.
    """
    return now if status.lost_after_seconds is None else min(now, status.updated_at)


def is_live(
    status: WorkerStatus | SupervisorStatus, now: float, lives: ProcessProbe = process_lives
) -> bool:
    """Whether the process of a heartbeat runs; judged by heartbeat age if its ID is not visible."""
    if is_pid_valid_here(status):
        return lives(status.process)
    return heartbeat_age(status.updated_at, now) < lost_after(status)


def living(
    supervisor: SupervisorStatus | None, now: float, lives: ProcessProbe = process_lives
) -> SupervisorStatus | None:
    """Returns the heartbeat of a supervisor if its process runs."""
    return supervisor if supervisor is not None and is_live(supervisor, now, lives) else None


def last_sign_at(
    workers: Sequence[tuple[WorkerStatus, WorkerState]], supervisor: SupervisorStatus | None
) -> float:
    """Returns the time of the newest heartbeat, in seconds since the epoch; 0 without one."""
    signs = [status.updated_at for status, _ in workers]
    signs += [supervisor.updated_at] if supervisor is not None else []
    return max(signs, default=0.0)


def worker_state(
    status: WorkerStatus, now: float, lives: ProcessProbe = process_lives
) -> WorkerState:
    """Returns the state of a worker at time `now` (seconds since the epoch)."""
    if status.activity is Activity.EXITED:
        return WorkerState.EXITED
    if not is_live(status, now, lives):
        return WorkerState.LOST
    if status.is_starting and status.phase in BEFORE_RUN:
        # It writes one heartbeat for each phase.
        return WorkerState.STARTING
    if heartbeat_age(status.updated_at, now) >= lost_after(status):
        return WorkerState.LOST
    if status.activity is Activity.TRAINING and _stalls(status, now):
        return WorkerState.STALLED
    return WorkerState(status.activity.value)


def _stalls(status: WorkerStatus, now: float) -> bool:
    if status.last_step_at is None or status.call_seconds is None:
        return False
    limit = max(STALLED_AFTER_SECONDS, STALLED_AFTER_CALLS * status.call_seconds)
    return told_until(status, now) - status.last_step_at > limit


_AFTER_SUPERVISION = {
    SupervisorState.STOPPED: RunState.STOPPED,
    SupervisorState.FINISHED: RunState.FINISHED,
    SupervisorState.FAILED: RunState.FAILED,
}

_AFTER_ENDING = {
    Ending.FINISHED: RunState.FINISHED,
    Ending.STOPPED: RunState.STOPPED,
    Ending.PREEMPTED: RunState.STOPPED,
    Ending.PEER_LOST: RunState.FAILED,
    Ending.FAILED: RunState.FAILED,
}


def run_state(
    workers: Sequence[tuple[WorkerStatus, WorkerState]],
    supervisor: SupervisorStatus | None,
    now: float,
    lives: ProcessProbe = process_lives,
) -> RunState:
    """Returns the state of a run, given its workers and its supervisor."""
    if supervisor is not None and supervisor.state in _AFTER_SUPERVISION:
        # Its process may live on for a moment, to send alerts or to requeue a job.
        return _AFTER_SUPERVISION[supervisor.state]
    supervised = supervisor is not None and is_live(supervisor, now, lives)
    if supervisor is not None and supervised:
        if supervisor.state is SupervisorState.RESTARTING:
            return RunState.RESTARTING
        if supervisor.state is SupervisorState.STARTING or not workers:
            return _starting(supervisor)
    leading = _leading(workers)
    states = {state for _, state in leading}
    if not workers:
        return RunState.UNATTENDED
    if lost_supervisor(workers, supervisor, now, lives):
        return RunState.FAILED
    if states <= {WorkerState.EXITED}:
        return _ended([entry for entry in workers if entry[1] is WorkerState.EXITED])
    if states <= {WorkerState.EXITED, WorkerState.LOST}:
        return RunState.DEGRADED if supervised else RunState.FAILED
    if states & {WorkerState.LOST, WorkerState.STALLED, WorkerState.EXITED}:
        return RunState.DEGRADED
    if any(state is WorkerState.STARTING or status.is_starting for status, state in leading):
        return _starting(supervisor if supervised else None)
    if states == {WorkerState.PAUSED}:
        return RunState.PAUSED
    return RunState.TRAINING


def _leading(
    workers: Sequence[tuple[WorkerStatus, WorkerState]],
) -> list[tuple[WorkerStatus, WorkerState]]:
    """Returns the workers that tell whether a run makes progress.

    Workers and parameter servers that serve a chief, or that start again beside it, do not.
    """
    has_chief = any(status.job == "chief" for status, _ in workers)
    others = {WorkerState.SERVING, WorkerState.STARTING} if has_chief else {WorkerState.SERVING}
    return [entry for entry in workers if entry[0].job == "chief" or entry[1] not in others]


def _starting(supervisor: SupervisorStatus | None) -> RunState:
    """Returns the state of a run whose workers start, perhaps again."""
    is_again = supervisor is not None and supervisor.attempt > 0
    return RunState.RESTARTING if is_again else RunState.STARTING


def lost_supervisor(
    workers: Sequence[tuple[WorkerStatus, WorkerState]],
    supervisor: SupervisorStatus | None,
    now: float,
    lives: ProcessProbe = process_lives,
) -> bool:
    """Whether all workers saved and ended soon after their supervisor had died without a report.

    Nobody starts them again. Workers that train on without a supervisor until a user stops them
    do not count.
    """
    if supervisor is None or supervisor.state in _AFTER_SUPERVISION:
        return False
    if not workers or is_live(supervisor, now, lives):
        return False
    return all(
        state is WorkerState.EXITED
        and status.ending is Ending.PREEMPTED
        and status.updated_at - supervisor.updated_at < SUPERVISOR_LOST_SECONDS
        for status, state in workers
    )


def has_reported_end(
    workers: Sequence[tuple[WorkerStatus, WorkerState]], supervisor: SupervisorStatus | None
) -> bool:
    """Whether the supervisor, or else every worker, wrote that it ended and how."""
    if supervisor is not None and supervisor.state in _AFTER_SUPERVISION:
        return True
    # Workers that leave because their supervisor is gone do not know what follows.
    leaves = supervisor is not None
    return all(
        state is WorkerState.EXITED and not (leaves and status.ending is Ending.PREEMPTED)
        for status, state in workers
    )


def _ended(workers: Sequence[tuple[WorkerStatus, WorkerState]]) -> RunState:
    outcomes = {_AFTER_ENDING.get(status.ending or Ending.FAILED) for status, _ in workers}
    for outcome in (RunState.FAILED, RunState.STOPPED):
        if outcome in outcomes:
            return outcome
    return RunState.FINISHED


def with_started(
    statuses: Sequence[WorkerStatus], supervisor: SupervisorStatus | None
) -> list[WorkerStatus]:
    """Adds what a living supervisor knows about workers that have written no heartbeat yet.

    They import TensorFlow, or run a script that does not use this library. Until the run exists
    in a worker, it writes one heartbeat for each phase, and the supervisor sees its process live.

    Args:
        statuses: The heartbeats of the workers, by index.
        supervisor: The heartbeat of the supervisor; None if it does not run.
    """
    if supervisor is None:
        return list(statuses)
    by_index = {status.index: status for status in statuses}
    for process in supervisor.workers:
        status = by_index.get(process.index)
        if process.exit_code is not None:
            continue
        host, namespace = process.host or supervisor.host, supervisor.namespace_of(process)
        if status is None or status.updated_at < start_as_told(process.process, namespace, status):
            by_index[process.index] = _importing(process, supervisor)
        elif status.phase in BEFORE_RUN and is_of_start(status, process, host, namespace):
            heard_at = max(status.updated_at, supervisor.updated_at)
            by_index[process.index] = msgspec.structs.replace(status, updated_at=heard_at)
    return [by_index[index] for index in sorted(by_index)]


def start_as_told(
    process: ProcessIdentity, namespace: str, status: WorkerStatus | SupervisorStatus
) -> float:
    """Returns when a process was started, by the clock that told the times of a heartbeat.

    The clock may have been set between the heartbeat and the record of the process. If the two
    are of different machines, or of an earlier release, returns the recorded start.

    Args:
        process: The process.
        namespace: Its boot and PID namespace; empty if unknown.
        status: The heartbeat.

    Returns:
        Seconds since the epoch.
    """
    is_comparable = bool(namespace) and namespace == status.namespace
    if not is_comparable or status.process_after_boot is None or process.process_after_boot is None:
        return process.process_started_at
    return status.process_started_at - status.process_after_boot + process.process_after_boot


def is_of_start(status: WorkerStatus, process: WorkerProcess, host: str, namespace: str) -> bool:
    """Whether a heartbeat comes from this start of a worker.

    If its command is a shell script, the training process is one that the shell started.

    Args:
        status: The heartbeat.
        process: The process that was started.
        host: Its host.
        namespace: Its boot and PID namespace; empty if unknown.
    """
    if not process.pid:
        # Whatever heartbeat is there: its process is not known yet.
        return False
    began = start_as_told(process.process, namespace, status) - SAME_START_SECONDS
    is_later = status.host == host and status.process_started_at >= began
    return status.pid == process.pid or is_later


def _importing(process: WorkerProcess, supervisor: SupervisorStatus) -> WorkerStatus:
    return WorkerStatus(
        index=process.index,
        host=process.host or supervisor.host,
        pid=process.pid,
        process_started_at=process.process_started_at,
        process_after_boot=process.process_after_boot,
        namespace=supervisor.namespace_of(process),
        updated_at=supervisor.updated_at,
        interval_seconds=supervisor.interval_seconds,
        lost_after_seconds=supervisor.lost_after_seconds,
        activity=Activity.STARTING,
        step=0,
        phase=Phase.IMPORT,
        phase_since=process.process_started_at,
    )


def serves_commands(status: WorkerStatus, state: WorkerState) -> bool:
    """Whether a worker is a chief that takes commands, now or once it has started."""
    is_heard = status.phase is not Phase.IMPORT
    return status.index == 0 and is_heard and state not in {WorkerState.EXITED, WorkerState.LOST}


def start_was_chosen(run: RunDirectory, chief: WorkerStatus, now: float) -> bool:
    """Whether a checkpoint for the next start was chosen after the run had ended.

    The last restore is then newer than the last heartbeat of the chief.

    Args:
        run: The run directory.
        chief: The heartbeat of the chief.
        now: Seconds since the epoch.
    """
    is_silent = heartbeat_age(chief.updated_at, now) > _RESTORE_SECONDS
    if chief.activity is not Activity.EXITED and not is_silent:
        return False
    try:
        heard_at = os.stat(run.worker_status(chief.index)).st_mtime_ns
        return os.stat(run.head_file).st_mtime_ns > heard_at
    except OSError:
        return False


def knows_step(chief: WorkerStatus, *, has_checkpoint: bool, start_is_chosen: bool = False) -> bool:
    """Whether the step of the chief is that of the run.

    After a restart it is 0 until the chief has restored a checkpoint.

    Args:
        chief: The heartbeat of the chief.
        has_checkpoint: Whether the run has a checkpoint to restore.
        start_is_chosen: See `start_was_chosen`.
    """
    if start_is_chosen and has_checkpoint:
        return False
    return chief.has_position or not has_checkpoint
