"""Stays with a launched run until its end, as schedulers want it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from types import FrameType

from tfckpt_trainer.errors import ExitCode
from tfckpt_trainer.launch.orphans import living_supervisor, read_supervisor
from tfckpt_trainer.rundir.health import read_workers
from tfckpt_trainer.rundir.journal import Tail
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import JournalEntry
from tfckpt_trainer.rundir.records.run import SupervisorState, SupervisorStatus
from tfckpt_trainer.rundir.records.worker import Ending

LOOK_SECONDS = 0.2


def stay(run: RunDirectory, supervisor: SupervisorStatus, tell: Callable[[str], None]) -> ExitCode:
    """Tells what the journal tells, until the run ends; SIGTERM and SIGINT end it with a save.

    Returns:
        DONE if training finished or was stopped, PREEMPTED after a preemption, else PROBLEM.
    """
    asked: list[int] = []

    def pass_on(number: int, _frame: FrameType | None) -> None:
        asked.append(number)
        os.kill(supervisor.pid, signal.SIGTERM)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    journal = Tail(run.journal, JournalEntry)
    while living_supervisor(run, time.time()) is not None:
        _tell(journal, tell)
        time.sleep(LOOK_SECONDS)
    _tell(journal, tell)
    ended = read_supervisor(run)
    if ended is None or ended.state is SupervisorState.FAILED:
        return ExitCode.PROBLEM
    if ended.state is SupervisorState.FINISHED:
        return ExitCode.DONE
    preempted = any(worker.ending is Ending.PREEMPTED for worker in read_workers(run))
    return ExitCode.PREEMPTED if asked or preempted else ExitCode.DONE


def _tell(journal: Tail[JournalEntry], tell: Callable[[str], None]) -> None:
    for entry in journal.read_new():
        tell(f"{time.strftime('%H:%M:%S', time.localtime(entry.at))} {entry.message}")
