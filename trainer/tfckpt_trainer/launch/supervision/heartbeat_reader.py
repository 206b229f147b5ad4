"""Reads the heartbeats of workers for their supervisor, with few calls while all goes well."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec

from tfckpt_trainer.rundir.heartbeats.attention import INTERVAL_SECONDS, look_at
from tfckpt_trainer.rundir.heartbeats.health import is_late, lost_after, stands
from tfckpt_trainer.rundir.heartbeats.reading import read_worker
from tfckpt_trainer.rundir.heartbeats.shared_steps import is_shared, with_shared_steps
from tfckpt_trainer.rundir.heartbeats.stragglers import is_process_stopped
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.worker import Activity, WorkerStatus
from tfckpt_trainer.rundir.storage.owners import is_own_there

OTHERS_SECONDS = 120.0
"""Longest time between two reads of all heartbeats while the steps of the chief go on."""

EACH_SECONDS = 20.0
"""The same for each worker, if there are many."""


def others_seconds(count: int) -> float:
    """Returns the longest time between two reads of so many heartbeats while steps go on."""
    return max(OTHERS_SECONDS, EACH_SECONDS * count)


class HeartbeatReader:
    """The newest heartbeats of all workers.

    On a network disk, heartbeats are rare while nobody looks. Workers make each step together, so
    only that of the chief is read then, when it is due. If it is late, or reports no new step, the
    supervisor looks at the run, and reads all each second.
    """

    def __init__(self, run: RunDirectory, count: int) -> None:
        """Creates a reader.

        Args:
            run: The run directory.
            count: How many workers there are.
        """
        self._run = run
        self._count = count
        self._own_ids = {os.geteuid()}
        self._statuses: dict[int, WorkerStatus] = {}
        self._all_at = float("-inf")
        self._are_calm = False

    def is_due(self, now: float) -> bool:
        """Whether a read may find something new.

        Args:
            now: Seconds since the epoch.
        """
        return not self._goes_on(now) or self._is_chief_due(now)

    def read(self, now: float, *, everything: bool) -> dict[int, WorkerStatus]:
        """Returns the heartbeats by index, without those that other users wrote.

        Args:
            now: Seconds since the epoch.
            everything: Whether to read all of them, because a worker has ended.
        """
        if self._are_calm and not everything and self._is_chief_due(now):
            self._read(0)
        if everything or not self._goes_on(now):
            self._read_all(now)
        chief = self._statuses.get(0)
        if chief is None or not self._goes_on(now):
            found = with_shared_steps([*self._statuses.values()], only_rare=True)
            return {status.index: status for status in found}
        as_chief = {
            "updated_at": chief.updated_at, "step": chief.step, "last_step_at": chief.last_step_at
        }  # fmt: skip
        return {
            index: msgspec.structs.replace(status, **as_chief)
            for index, status in self._statuses.items()
        }

    def _read_all(self, now: float) -> None:
        self._all_at = time.monotonic()
        for index in range(self._count):
            self._read(index)
        found = self._statuses.values()
        self._are_calm = len(found) == self._count and all(
            status.lost_after_seconds is not None and now - status.updated_at < lost_after(status)
            for status in found
        )
        if any(
            status.lost_after_seconds is not None and (is_late(status, now) or _stands(status))
            for status in found
        ):
            look_at(self._run)

    def _read(self, index: int) -> None:
        status = read_worker(self._run, index)
        if status is None or not self._is_own(self._run.worker_status(index)):
            self._statuses.pop(index, None)
        else:
            self._statuses[index] = status

    def _is_chief_due(self, now: float) -> bool:
        chief = self._statuses.get(0)
        if chief is None:
            return True
        # A second later than it is due: one read finds it.
        return now - chief.updated_at > chief.interval_seconds + INTERVAL_SECONDS

    def _goes_on(self, now: float) -> bool:
        """Whether all heartbeats are rare, and the chief tells of new steps in time."""
        chief = self._statuses.get(0)
        if chief is None or not self._are_calm or chief.lost_after_seconds is None:
            return False
        if time.monotonic() - self._all_at >= others_seconds(self._count):
            return False
        if chief.activity is not Activity.TRAINING or not is_shared(chief):
            return False
        if is_late(chief, now) or _stands(chief):
            return False
        # That of a process of this machine takes no call.
        return not any(map(is_process_stopped, self._statuses.values()))

    def _is_own(self, path: Path) -> bool:
        """Whether this user wrote a heartbeat: whoever may write there can copy an old one."""
        try:
            owner = os.lstat(path).st_uid
        except OSError:
            return False
        if owner not in self._own_ids and is_own_there(path.parent, owner, os.geteuid()):
            self._own_ids.add(owner)
        return owner in self._own_ids


def _stands(status: WorkerStatus) -> bool:
    return stands(status.activity, status.last_step_at, status.call_seconds, status.updated_at)
