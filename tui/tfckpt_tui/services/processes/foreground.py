"""Follows a launched run in the foreground until its end, for schedulers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

from tfckpt_trainer.errors import ExitCode
from tfckpt_trainer.launch.processes.named_processes import require_named_by_its_user
from tfckpt_trainer.rundir.heartbeats.process_ids import process_of
from tfckpt_trainer.rundir.heartbeats.process_table import runs_since, seconds_after_boot
from tfckpt_trainer.rundir.heartbeats.reading import read_supervisor, read_workers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventEntry
from tfckpt_trainer.rundir.records.run import SupervisorState, SupervisorStatus
from tfckpt_trainer.rundir.records.worker import Ending
from tfckpt_trainer.rundir.storage.filesystems import is_network_file_system
from tfckpt_trainer.rundir.storage.tail import Tail
from tfckpt_trainer.scripts.exit_statuses import ExitStatuses, choose_statuses
from tfckpt_trainer.words.times import CLOCK, local_time

LOOK_SECONDS = 0.2

NETWORK_READ_SECONDS = 10.0
"""Seconds between two reads of what the supervisor reports on a network disk."""


def follow_run(
    run: RunDirectory,
    supervisor: SupervisorStatus,
    event_log: Tail[EventEntry],
    on_event: Callable[[str], None],
) -> int:
    """Reports new events until the run ends; SIGTERM and SIGINT save and end it.

    The run ends with the process of its supervisor, whatever lies in the directory meanwhile.

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
        with suppress(ProcessLookupError):
            os.kill(supervisor.pid, number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    told: set[str] = set()

    def report() -> bool:
        entries = event_log.read_new()
        for entry in entries:
            told.add(entry.message)
            on_event(f"{local_time(entry.at, CLOCK)} {entry.message}")
        return bool(entries)

    pause = NETWORK_READ_SECONDS if is_network_file_system(run.root) else 0.0
    last, read_at = supervisor, time.monotonic()
    # Its heartbeats tell another start as soon as somebody sets the clock.
    after_boot = seconds_after_boot(supervisor.pid)
    while runs_since(supervisor.pid, after_boot):
        if time.monotonic() - read_at >= pause:
            read_at = time.monotonic()
            # What it reports of its end is an event too.
            last = _newest_of(run, last) if report() else last
        time.sleep(LOOK_SECONDS)
    last = _newest_of(run, last)
    report()
    if not last.has_ended:
        on_event(_ended_without_report(run))
    elif last.reason not in told:
        on_event(last.reason)
    return _exit_code(run, last, asked, statuses)


def _newest_of(run: RunDirectory, last: SupervisorStatus) -> SupervisorStatus:
    """Returns the newest heartbeat of a supervisor; the last one if another lies in its place."""
    found = read_supervisor(run)
    is_same = found is not None and process_of(found) == process_of(last)
    return found if found is not None and is_same else last


def _ended_without_report(run: RunDirectory) -> str:
    return (
        f"The supervisor has ended, and {run.supervisor_status} does not say how. It was killed, "
        "or the file was replaced. Workers may still run: look with "
        f"`tfckpt-tui status {run.shell_word}`, and read the end of "
        f"`tfckpt-tui logs {run.shell_word} --supervisor`."
    )


def _exit_code(
    run: RunDirectory, last: SupervisorStatus, asked: list[int], statuses: ExitStatuses
) -> int:
    if last.state is SupervisorState.FAILED:
        return ExitCode.PROBLEM
    if last.state is SupervisorState.FINISHED:
        return ExitCode.DONE
    if asked and asked[0] == signal.SIGINT:
        return ExitCode.INTERRUPTED
    if asked:
        return statuses.preempted
    if not last.has_ended:
        return ExitCode.PROBLEM
    preempted = any(worker.ending is Ending.PREEMPTED for worker in read_workers(run))
    return statuses.preempted if preempted else ExitCode.DONE
