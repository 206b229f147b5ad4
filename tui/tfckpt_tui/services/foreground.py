"""Stays with a launched run until its end, as schedulers want it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from types import FrameType

from tfckpt_trainer.launch.orphans import living_supervisor, read_supervisor
from tfckpt_trainer.rundir.health import read_workers
from tfckpt_trainer.rundir.journal import Tail
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import JournalEntry
from tfckpt_trainer.rundir.records.run import SupervisorState, SupervisorStatus
from tfckpt_trainer.rundir.records.worker import Ending

LOOK_SECONDS = 0.2

PREEMPTED = 143
"""Exit status after SIGTERM, as shells count it: schedulers start such a job again."""

FAILED = 1


def stay(run: RunDirectory, supervisor: SupervisorStatus, tell: Callable[[str], None]) -> int:
    """Tells what the journal tells, until the run ends; SIGTERM and SIGINT end it with a save.

    Returns:
        0 if training reached its end or somebody stopped it, 143 after a preemption, 1 after a
        failure.
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
        return FAILED
    if ended.state is SupervisorState.FINISHED:
        return 0
    preempted = any(worker.ending is Ending.PREEMPTED for worker in read_workers(run))
    return PREEMPTED if asked or preempted else 0


def _tell(journal: Tail[JournalEntry], tell: Callable[[str], None]) -> None:
    for entry in journal.read_new():
        tell(f"{time.strftime('%H:%M:%S', time.localtime(entry.at))} {entry.message}")
