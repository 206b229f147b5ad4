"""The newest heartbeats of a run, judged at one moment."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property

import msgspec

from tfckpt_trainer.rundir.heartbeats.health import (
    ProcessProbe,
    RunState,
    WorkerState,
    last_sign_at,
    living,
    run_state,
    with_started,
    worker_state,
)
from tfckpt_trainer.rundir.heartbeats.process_table import process_lives
from tfckpt_trainer.rundir.records.run import SupervisorStatus
from tfckpt_trainer.rundir.records.worker import WorkerStatus


class Heartbeats(msgspec.Struct, frozen=True, dict=True):
    """What the processes of a run last said of themselves.

    Attributes:
        workers: The heartbeat of each worker, with its state.
        supervisor: The heartbeat of the supervisor; None without one.
        now: The moment, in seconds since the epoch.
        lives: Checks whether a process runs on this machine.
    """

    workers: Sequence[tuple[WorkerStatus, WorkerState]]
    supervisor: SupervisorStatus | None
    now: float
    lives: ProcessProbe = process_lives

    @classmethod
    def judge(
        cls,
        statuses: Sequence[WorkerStatus],
        supervisor: SupervisorStatus | None,
        now: float,
        lives: ProcessProbe = process_lives,
    ) -> Heartbeats:
        """Judges heartbeats as they were read; adds workers that have not written one yet.

        Args:
            statuses: The heartbeats of the workers, by index.
            supervisor: The heartbeat of the supervisor; None without one.
            now: Seconds since the epoch.
            lives: Checks whether a process runs on this machine.
        """
        # One moment has one answer, and each takes the time of two files.
        lives = cache(lives)
        whole = with_started(statuses, living(supervisor, now, lives))
        states = [(status, worker_state(status, now, lives)) for status in whole]
        return cls(states, supervisor, now, lives)

    @cached_property
    def statuses(self) -> list[WorkerStatus]:
        """The heartbeats of the workers."""
        return [status for status, _ in self.workers]

    @cached_property
    def chief(self) -> WorkerStatus | None:
        """The heartbeat of worker 0."""
        return next((status for status in self.statuses if status.index == 0), None)

    @cached_property
    def state(self) -> RunState:
        """What the run does, by its heartbeats alone."""
        return run_state(self.workers, self.supervisor, self.now, self.lives)

    @cached_property
    def last_at(self) -> float:
        """Time of the newest heartbeat, in seconds since the epoch; 0 without one."""
        return last_sign_at(self.workers, self.supervisor)

    @cached_property
    def living_supervisor(self) -> SupervisorStatus | None:
        """The heartbeat of the supervisor if its process runs."""
        return living(self.supervisor, self.now, self.lives)
