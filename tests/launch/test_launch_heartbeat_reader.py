"""A supervisor reads few heartbeats while all goes well, and all at once when it does not."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tfckpt_trainer.launch.supervision import heartbeat_reader
from tfckpt_trainer.launch.supervision.heartbeat_reader import OTHERS_SECONDS, HeartbeatReader
from tfckpt_trainer.rundir.heartbeats.attention import IDLE_LOST_SECONDS, IDLE_SECONDS, MEMBER
from tfckpt_trainer.rundir.heartbeats.process_ids import host_name, process_namespace
from tfckpt_trainer.rundir.heartbeats.stragglers import silent_worker
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.worker import Activity, WorkerStatus
from tfckpt_trainer.rundir.storage.documents import store
from waiting import wait_until

WORKERS = 4
LOOKED_AT = {"interval_seconds": 1.0, "lost_after_seconds": None}


class Followed:
    """A run, and which heartbeats a reader of it reads."""

    def __init__(self, run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
        self.run = run
        self.now = time.time()
        self.taken: list[int] = []
        self.looks = 0
        read = heartbeat_reader.read_worker
        clock = time.monotonic() - self.now

        def noted(run: RunDirectory, index: int) -> WorkerStatus | None:
            self.taken.append(index)
            return read(run, index)

        def looked(_: RunDirectory) -> None:
            self.looks += 1

        monkeypatch.setattr(heartbeat_reader, "read_worker", noted)
        monkeypatch.setattr(heartbeat_reader, "look_at", looked)
        monkeypatch.setattr(heartbeat_reader.time, "monotonic", lambda: clock + self.now)
        self.reader = HeartbeatReader(run, WORKERS)

    def beat(self, index: int, at: float, **fields: object) -> None:
        known = {"index": index, "host": "elsewhere", "pid": 1, "process_started_at": 0.0}
        known |= {"interval_seconds": IDLE_SECONDS, "lost_after_seconds": IDLE_LOST_SECONDS}
        known |= {"activity": Activity.TRAINING, "step": round(at - self.now) + 100}
        known |= {"step_seconds": 0.1, "last_step_at": at}
        status = WorkerStatus(updated_at=at, **{**known, **fields})  # type: ignore[arg-type]
        store(self.run.worker_status(index), status, durable=False)

    def beat_all(self, at: float, **fields: object) -> None:
        for index in range(WORKERS):
            self.beat(index, at, **fields)

    def read_at(self, now: float, *, everything: bool = False) -> dict[int, WorkerStatus]:
        """Looks as the supervisor does, each second."""
        self.now, self.taken = now, []
        if everything or self.reader.is_due(now):
            return self.reader.read(now, everything=everything)
        return {}


@pytest.fixture
def followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Followed:
    run = RunDirectory(tmp_path / "run")
    run.create()
    made = Followed(run, monkeypatch)
    made.beat_all(made.now)
    assert len(made.read_at(made.now)) == WORKERS == len(made.taken)
    return made


def test_while_the_chief_makes_steps_only_its_heartbeat_is_read_when_it_is_due(followed):
    began = followed.now
    for second in range(1, 41):
        if second % IDLE_SECONDS == 0:
            followed.beat_all(began + second)
        statuses = followed.read_at(began + second)
        assert followed.taken in ([], [0]), second
        if statuses:
            assert {status.step for status in statuses.values()} == {statuses[0].step}
            ages = {began + second - status.updated_at for status in statuses.values()}
            assert max(ages) <= IDLE_SECONDS + 1
    assert not followed.looks


def test_all_are_read_each_second_while_the_chief_makes_no_step(followed):
    began = followed.now
    # The last worker has died, so the step of the chief ends with nobody.
    for index in range(WORKERS - 1):
        followed.beat(index, began + IDLE_SECONDS, last_step_at=began)
    for second in (12, 13, 14, 15, 16):
        statuses = followed.read_at(began + second)
        assert set(followed.taken) == set(range(WORKERS)), second
    assert followed.looks
    assert followed.now - statuses[WORKERS - 1].updated_at >= IDLE_LOST_SECONDS


def test_a_worker_with_rare_heartbeats_is_silent_as_soon_as_others(followed):
    began = followed.now
    followed.beat_all(began, **MEMBER._asdict())
    followed.beat(0, began + 100)
    followed.read_at(began + 100, everything=True)
    for second in range(100, 106):
        followed.read_at(began + second + 1)
    # Without a step, those that live write each second.
    for second in range(106, 120):
        for index in range(WORKERS - 1):
            followed.beat(index, began + second, last_step_at=began + 100, **LOOKED_AT)
        statuses = followed.read_at(began + second)
        silent = silent_worker([*statuses.values()], began + second)
        assert (silent is not None) is (second > 100 + IDLE_LOST_SECONDS), second
    assert silent is not None
    assert silent[0] == WORKERS - 1


def test_a_late_chief_is_looked_at(followed):
    followed.read_at(followed.now + IDLE_SECONDS + 1.5)
    assert (followed.taken, followed.looks) == ([0], 0)
    followed.read_at(followed.now + 1)
    assert set(followed.taken) == set(range(WORKERS))
    assert followed.looks == 1


def test_all_are_read_from_time_to_time_and_when_a_worker_has_ended(followed):
    began = followed.now
    followed.beat_all(began + 9)
    followed.read_at(began + 10, everything=True)
    assert set(followed.taken) == set(range(WORKERS))
    followed.beat(0, began + OTHERS_SECONDS + 9)
    statuses = followed.read_at(began + OTHERS_SECONDS + 11)
    assert set(followed.taken) == set(range(WORKERS))
    # Its thread has stopped: it is seen as it is, until its heartbeats go on.
    followed.beat(0, began + OTHERS_SECONDS + 12)
    statuses = followed.read_at(began + OTHERS_SECONDS + 12)
    assert statuses[1].updated_at == began + 9


def test_nobody_looks_while_heartbeats_become_rare_one_after_the_other(followed):
    began = followed.now + 13
    followed.beat_all(began - 1, **LOOKED_AT)
    followed.read_at(began - 1)
    for index in range(WORKERS):
        followed.beat_all(began + index, **LOOKED_AT)
        for rare in range(index + 1):
            followed.beat(rare, began + index)
        followed.read_at(began + index)
        assert set(followed.taken) == set(range(WORKERS))
    followed.read_at(began + WORKERS)
    assert (followed.taken, followed.looks) == ([], 0)


def test_frequent_heartbeats_are_read_each_second(followed):
    began = followed.now + 12
    followed.beat_all(began, **LOOKED_AT)
    for second in range(3):
        followed.read_at(began + second)
        assert set(followed.taken) == set(range(WORKERS))
    assert not followed.looks


def test_a_stopped_process_of_this_machine_is_seen_without_a_call(followed):
    process = subprocess.Popen(["sleep", "600"])
    try:
        own = psutil.Process(process.pid)
        here = {"host": host_name(), "namespace": process_namespace(), "pid": own.pid}
        here["process_started_at"] = own.create_time()
        followed.beat(1, followed.now, **here)
        followed.read_at(followed.now, everything=True)
        followed.read_at(followed.now + 1)
        assert followed.taken == []
        own.suspend()
        wait_until(lambda: own.status() == psutil.STATUS_STOPPED, 60, "it stops")
        followed.read_at(followed.now + 1)
        assert set(followed.taken) == set(range(WORKERS))
    finally:
        process.kill()
        process.wait()
