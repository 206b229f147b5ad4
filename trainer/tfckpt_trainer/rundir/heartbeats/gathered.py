"""Heartbeats of many workers on a network disk, gathered by their chief into one file.

Whoever shows a run of a thousand workers would open a thousand files each second. While the steps
of the chief show that all workers live, the file that it gathers has the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from tfckpt_trainer.rundir.heartbeats.clock import load_gathered
from tfckpt_trainer.rundir.heartbeats.health import is_late
from tfckpt_trainer.rundir.heartbeats.reading import read_worker, read_workers
from tfckpt_trainer.rundir.heartbeats.shared_steps import is_shared, with_shared_steps
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.worker import GatheredHeartbeats, WorkerStatus
from tfckpt_trainer.rundir.storage.documents import OnError, ignore, store, try_read
from tfckpt_trainer.rundir.storage.filesystems import is_network_file_system

FEW = 16
"""The heartbeats of so many workers are read one by one."""

GATHERED_SECONDS = 10.0
"""Interval at which the chief writes what it gathered, and others read it."""

READ_EACH_SECOND = 16
"""So many heartbeats the chief reads each second: those of 1,024 workers in about a minute."""


def are_gathered(run: RunDirectory, count: int | None) -> bool:
    """Whether the chief gathers the heartbeats of so many workers; not if that is unknown."""
    return count is not None and count > FEW and is_network_file_system(run.root)


class HeartbeatGatherer:
    """Gathers the heartbeats of the others, in the process of the chief."""

    def __init__(
        self, run: RunDirectory, count: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begins with none.

        Args:
            run: The run directory.
            count: How many workers make steps together, with the chief.
            clock: Returns seconds; never goes back.
        """
        self._run = run
        self._count = count
        self._clock = clock
        self._gathered: dict[int, WorkerStatus] = {}
        self._next = 1
        self._written_at = float("-inf")

    def gather(self, pid: int, process_started_at: float) -> None:
        """Reads the next heartbeats; writes them all if that is due. Call it each second.

        Args:
            pid: The process of the chief.
            process_started_at: When that was started.

        Raises:
            OSError: The file cannot be written.
        """
        for _ in range(min(READ_EACH_SECOND, self._count - 1)):
            status = read_worker(self._run, self._next)
            if status is not None:
                self._gathered[self._next] = status
            self._next = self._next % (self._count - 1) + 1
        has_all = len(self._gathered) == self._count - 1
        if not has_all or self._clock() - self._written_at < GATHERED_SECONDS:
            return
        gathered = GatheredHeartbeats(
            pid=pid,
            process_started_at=process_started_at,
            updated_at=time.time(),
            workers=[self._gathered[index] for index in sorted(self._gathered)],
        )
        store(self._run.gathered_heartbeats, gathered, durable=False)
        self._written_at = self._clock()


class WorkerReader:
    """Reads the heartbeats of all workers again and again.

    Those of many workers on a network disk are taken from the file that the chief gathers. One is
    read from its own file once no step of the chief shows that its worker lives.
    """

    def __init__(self, run: RunDirectory, clock: Callable[[], float] = time.monotonic) -> None:
        """Begins without any.

        Args:
            run: The run directory.
            clock: Returns seconds; never goes back.
        """
        self._run = run
        self._clock = clock
        self._start: tuple[int, float] | None = None
        self._known: dict[int, WorkerStatus] = {}
        self._looked_at = float("-inf")

    def read(self, count: int | None, now: float, on_error: OnError = ignore) -> list[WorkerStatus]:
        """Returns the heartbeats by index, with the signs of life of shared steps.

        Args:
            count: Number of workers of the run; None if that is unknown.
            now: Seconds since the epoch.
            on_error: Called for each file that cannot be read.
        """
        if count is None or not is_network_file_system(self._run.root):
            return read_workers(self._run, count, on_error)
        if count <= FEW:
            # Without a list of the directory, which takes as many calls as a heartbeat.
            found = (read_worker(self._run, index, on_error) for index in range(count))
            return [status for status in found if status is not None]
        chief = read_worker(self._run, 0, on_error)
        if chief is None or not is_shared(chief):
            return read_workers(self._run, count, on_error)
        self._take_gathered(chief, count, on_error)
        told = {status.index: status for status in self._with(chief)}
        for index in range(1, count):
            if index not in told or is_late(told[index], now):
                self._read(index, on_error)
        return self._with(chief)

    def _with(self, chief: WorkerStatus) -> list[WorkerStatus]:
        others = [self._known[index] for index in sorted(self._known)]
        return with_shared_steps([chief, *others])

    def _take_gathered(self, chief: WorkerStatus, count: int, on_error: OnError) -> None:
        """Reads what the chief gathered since the last time, if it is of this start."""
        start = chief.pid, chief.process_started_at
        if start != self._start:
            self._start, self._known = start, {}
            self._looked_at = float("-inf")
        if self._clock() - self._looked_at < GATHERED_SECONDS:
            return
        self._looked_at = self._clock()
        gathered = try_read(partial(load_gathered, self._run), on_error)
        if gathered is None:
            return
        if (gathered.pid, gathered.process_started_at) != start:
            return
        for status in gathered.workers:
            known = self._known.get(status.index)
            is_newer = known is None or status.updated_at > known.updated_at
            if 0 < status.index < count and is_newer:
                self._known[status.index] = status

    def _read(self, index: int, on_error: OnError) -> None:
        status = read_worker(self._run, index, on_error)
        if status is None:
            self._known.pop(index, None)
        else:
            self._known[index] = status
