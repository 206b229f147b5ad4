"""Many workers on a network disk are read from one file, and one of them once it may be lost."""

from __future__ import annotations

import time

import pytest

from faulty_file_system import FaultyMount
from many_workers import CHIEF_PID, ManyWorkers
from tfckpt_trainer.rundir.heartbeats.attention import IDLE_LOST_SECONDS, MEMBER
from tfckpt_trainer.rundir.heartbeats.gathered import (
    FEW,
    GATHERED_SECONDS,
    READ_EACH_SECOND,
    WorkerReader,
    are_gathered,
)
from tfckpt_trainer.rundir.heartbeats.health import WorkerState, worker_state
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.worker import Activity, Ending, WorkerStatus

# Each client is a process of its own.
pytestmark = pytest.mark.e2e

COUNT = 64
MOST_OF_A_LOOK = 40
"""Calls for two files with all parts of their paths, and for the clock of the disk."""


class Seen:
    """A run of many workers, and somebody who looks at it on another machine.

    Attributes:
        now: The moment, in seconds since the epoch; the test goes ahead of the clock.
        errors: What could not be read.
    """

    def __init__(self, place: RunDirectory, here: RunDirectory, there: FaultyMount) -> None:
        self.now = time.time()
        self.began = self.now
        self.errors: list[Exception] = []
        self.workers = ManyWorkers(place, here, COUNT, self.now - 100)
        self._there = there
        self._run = RunDirectory(there.root / here.root.name)
        self.look_anew()

    def look_anew(self) -> None:
        """Begins to look, as a program that is started now."""
        self._reader = WorkerReader(self._run, clock=lambda: self.now)

    def gather(self) -> None:
        """Lets the chief gather all heartbeats."""
        for _ in range(2 * COUNT // READ_EACH_SECOND + round(GATHERED_SECONDS)):
            self.workers.beat(self.now)
            self.now += 1

    def look(self) -> tuple[dict[int, WorkerStatus], int]:
        """Returns the heartbeats, and how many calls these took."""
        self._there.count_calls()
        found = self._reader.read(COUNT, self.now, self.errors.append)
        return {status.index: status for status in found}, self._there.count_calls().total()

    def lost(self) -> set[int]:
        """Returns the workers that are lost."""
        found, _ = self.look()
        assert set(found) == set(range(COUNT))
        states = {index: worker_state(status, self.now) for index, status in found.items()}
        return {index for index, state in states.items() if state is WorkerState.LOST}


@pytest.fixture
def seen(places) -> Seen:
    return Seen(*places)


def test_all_are_seen_with_the_calls_of_two_files(seen):
    seen.gather()
    for second in range(40):
        seen.workers.beat(seen.now)
        found, calls = seen.look()
        assert calls <= MOST_OF_A_LOOK < COUNT, second
        assert {status.step for status in found.values()} == {seen.workers.step}
        told = {status.measured_at or status.updated_at for status in found.values()}
        assert seen.now - min(told) <= COUNT / READ_EACH_SECOND + 2 * GATHERED_SECONDS
        seen.now += 1
    assert found[7].cpu_percent == seen.workers.status(7, seen.now).cpu_percent
    assert not seen.errors


def test_one_that_dies_is_lost_as_soon_as_its_own_file_tells_it(seen):
    seen.gather()
    seen.look()
    died_at = seen.workers.last_step_at
    while not seen.lost():
        seen.workers.beat(seen.now, without={17})
        seen.now += 1
        assert seen.now - died_at < 10
    assert seen.lost() == {17}
    assert 5 <= seen.now - died_at <= 7


def test_one_whose_own_heartbeat_is_rare_is_lost_as_late_as_one_that_nobody_looked_at(seen):
    workers, stood_at = seen.workers, seen.now
    for index in range(1, COUNT):
        workers.write(workers.status(index, seen.now, **MEMBER._asdict()))
    while seen.now < stood_at + 100:
        seen.now += 1
        workers.write(workers.status(0, seen.now, last_step_at=seen.now))
        assert not seen.lost(), "the steps of the chief tell of all"
    stood_at = seen.now
    while not seen.lost():
        seen.now += 1
        # Without a step, those that live write each second.
        told = (0,) if seen.now - stood_at <= 5 else set(range(COUNT)) - {17}
        for index in told:
            workers.write(workers.status(index, seen.now, last_step_at=stood_at))
        assert seen.now - stood_at < 20
    assert seen.lost() == {17}
    assert IDLE_LOST_SECONDS <= seen.now - stood_at <= IDLE_LOST_SECONDS + 2


def test_a_chief_that_gathers_no_more_hides_nobody(seen):
    seen.gather()
    for _ in range(100):
        seen.workers.beat(seen.now, gathers=False)
        seen.now += 1
    assert not seen.lost()
    found, _ = seen.look()
    ages = {seen.now - (status.measured_at or status.updated_at) for status in found.values()}
    assert max(ages) >= 100, "it is told how old that is"
    for _ in range(8):
        seen.workers.beat(seen.now, without={3}, gathers=False)
        seen.now += 1
    assert seen.lost() == {3}


def test_what_was_gathered_in_an_earlier_start_is_not_used(seen):
    seen.gather()
    seen.look()
    again = seen.workers.restarted(seen.now)
    again.beat(seen.now, gathers=False)
    found, _ = seen.look()
    assert {status.pid for status in found.values()} == set(
        range(again.first_pid, again.first_pid + COUNT)
    )
    seen.look_anew()
    found, _ = seen.look()
    assert min(status.pid for status in found.values()) == again.first_pid != CHIEF_PID


def test_of_two_files_that_disagree_the_later_one_counts(seen):
    seen.gather()
    seen.look()
    failed = seen.workers.status(
        9, seen.now, activity=Activity.EXITED, ending=Ending.FAILED, detail="ValueError"
    )
    for _ in range(4):
        seen.workers.beat(seen.now, without={9})
        seen.workers.write(failed)
        seen.now += 1
    found, _ = seen.look()
    assert (found[9].activity, found[9].detail) == (Activity.EXITED, "ValueError")
    assert found[8].activity is Activity.TRAINING
    # The chief has not read it yet, and says the contrary.
    seen.look_anew()
    found, _ = seen.look()
    assert found[9].ending is Ending.FAILED


@pytest.mark.parametrize("content", [None, b"{", b'{"workers": [{"index": -1}]}'])
def test_without_a_good_file_each_is_read_from_its_own(seen, content):
    seen.gather()
    path = seen.workers.server.gathered_heartbeats
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    seen.workers.beat(seen.now, gathers=False)
    found, calls = seen.look()
    assert {status.step for status in found.values()} == {seen.workers.step}
    assert set(found) == set(range(COUNT))
    assert calls > COUNT
    assert bool(seen.errors) is (content is not None)


def test_few_workers_and_those_of_a_local_disk_are_read_one_by_one(seen, tmp_path):
    assert not are_gathered(RunDirectory(tmp_path), COUNT)
    there = seen.workers.run
    assert [are_gathered(there, count) for count in (FEW, FEW + 1, None)] == [False, True, False]
