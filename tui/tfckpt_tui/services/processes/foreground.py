"""Follows a launched run in the foreground until its end, for schedulers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from types import FrameType

from tfckpt_trainer.errors import ExitCode
from tfckpt_trainer.launch.processes.named_processes import require_named_by_its_user
from tfckpt_trainer.launch.processes.orphans import living_supervisor
from tfckpt_trainer.rundir.event_log import Tail
from tfckpt_trainer.rundir.heartbeats.health import read_supervisor, read_workers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventEntry
from tfckpt_trainer.rundir.records.run import SupervisorState, SupervisorStatus
from tfckpt_trainer.rundir.records.worker import Ending
from tfckpt_trainer.scripts.exit_statuses import choose_statuses
from tfckpt_trainer.words.times import CLOCK, local_time

LOOK_SECONDS = 0.2


def follow_run(
    run: RunDirectory,
    supervisor: SupervisorStatus,
    event_log: Tail[EventEntry],
    on_event: Callable[[str], None],
) -> int:
    """Reports new events until the run ends; SIGTERM and SIGINT save and end it.

    Args:
        run: The run.
        supervisor: Its supervisor, which was just started.
        event_log: Its event log from the moment before that.
        on_event: Called with each event.

    Returns:
        DONE if training finished or was stopped, INTERRUPTED after ctrl+c, the status for a
        preemption after one, else PROBLEM.

    Raises:
        UsageError: The environment has an invalid status.
        LaunchError: Another user could have named the process of the supervisor.
    """
    statuses = choose_statuses()
    require_named_by_its_user(run, supervisor.pid, run.supervisor_status, SupervisorStatus)
    asked: list[int] = []

    def pass_on(number: int, _frame: FrameType | None) -> None:
        asked.append(number)
        os.kill(supervisor.pid, number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    while living_supervisor(run, time.time()) is not None:
        _report(event_log, on_event)
        time.sleep(LOOK_SECONDS)
    _report(event_log, on_event)
    ended = read_supervisor(run)
    if ended is None or ended.state is SupervisorState.FAILED:
        return ExitCode.PROBLEM
    if ended.state is SupervisorState.FINISHED:
        return ExitCode.DONE
    if asked and asked[0] == signal.SIGINT:
        return ExitCode.INTERRUPTED
    preempted = any(worker.ending is Ending.PREEMPTED for worker in read_workers(run))
    return statuses.preempted if asked or preempted else ExitCode.DONE


def _report(event_log: Tail[EventEntry], on_event: Callable[[str], None]) -> None:
    for entry in event_log.read_new():
        on_event(f"{local_time(entry.at, CLOCK)} {entry.message}")
