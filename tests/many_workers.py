"""A run of many workers on a network disk, simulated: their heartbeats, without their processes.

    workers = ManyWorkers(run_on_server, run_of_chief, 1024)
    workers.beat(now)                  # all of them, and what the chief gathers
    workers.beat(now, without={7})     # as if worker 7 were dead: no step ends

Heartbeats are written where the server has its files. The chief gathers through its own mount.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any

import msgspec

from tfckpt_trainer.rundir.heartbeats.gathered import HeartbeatGatherer
from tfckpt_trainer.rundir.heartbeats.process_ids import host_name
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventEntry, EventKind, SeriesPoint
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.records.worker import Activity, WorkerStatus
from tfckpt_trainer.rundir.storage.documents import append, encode, store

CHIEF_PID = 4000
PER_HOST = 8
SIZE = 2048


class ManyWorkers:
    """Writes the heartbeats of one run."""

    def __init__(
        self,
        server: RunDirectory,
        run: RunDirectory,
        count: int,
        now: float,
        first_pid: int = CHIEF_PID,
    ) -> None:
        """Creates the run directory.

        Args:
            server: The run directory where the server has its files.
            run: The same where the chief sees it.
            count: How many workers there are.
            now: When they were started, in seconds since the epoch.
            first_pid: The process of the chief.
        """
        self.first_pid = first_pid
        self.server, self.run, self.count, self.started_at = server, run, count, now
        self.step, self.last_step_at = 0, now
        self._gatherer = HeartbeatGatherer(run, count, clock=lambda: self._now)
        self._now = now
        server.create()
        info = RunInfo(
            id="many",
            created_at=now,
            strategy="MultiWorkerMirroredStrategy",
            worker_count=count,
            replica_count=count,
            total_steps=100_000,
            host=host_name(),
        )
        store(server.run_file, info)
        started = EventEntry(at=now, kind=EventKind.START, message=f"Started {count} workers.")
        append(server.event_log, started, durable=False)

    def restarted(self, now: float) -> ManyWorkers:
        """Returns the workers of another start of the same run."""
        return ManyWorkers(self.server, self.run, self.count, now, self.first_pid + self.count)

    def status(self, index: int, now: float, **changes: Any) -> WorkerStatus:
        """Returns a heartbeat."""
        status = WorkerStatus(
            index=index,
            host=f"node-{index // PER_HOST}",
            pid=self.first_pid + index,
            process_started_at=self.started_at,
            updated_at=now,
            interval_seconds=1.0,
            activity=Activity.TRAINING,
            step=self.step,
            step_seconds=0.1,
            step_seconds_p95=0.12,
            input_wait_seconds=0.01,
            cpu_percent=100.0 + index % 50,
            memory_bytes=2_000_000_000 + index * 1_000_000,
            metrics={"loss": 0.5},
            last_step_at=self.last_step_at,
        )
        return msgspec.structs.replace(status, **changes)

    def write(self, status: WorkerStatus) -> None:
        """Writes one heartbeat, in place as on a network disk."""
        path = self.server.worker_status(status.index)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        os.pwrite(descriptor, encode(status).ljust(SIZE), 0)
        # Tests go ahead of the clock.
        os.utime(descriptor, (status.updated_at, status.updated_at))
        os.close(descriptor)

    def beat(self, now: float, *, without: Collection[int] = (), gathers: bool = True) -> None:
        """Writes the heartbeats of all, and has the chief gather as it does each second.

        Args:
            now: Seconds since the epoch.
            without: Workers that are dead; no step ends without them.
            gathers: Whether somebody looks, so that the chief gathers.
        """
        self._now = now
        if not without:
            self.step, self.last_step_at = self.step + 10, now
        for index in range(self.count):
            if index not in without:
                self.write(self.status(index, now))
        point = SeriesPoint(at=now, step=self.step, branch=0, metrics={"loss": 0.5})
        append(self.server.series, point, durable=False)
        if gathers:
            self._gatherer.gather(self.first_pid, self.started_at)
