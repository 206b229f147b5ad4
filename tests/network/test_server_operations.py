"""What a real run of two workers asks of the server of a network disk, by who asks."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter

import msgspec
import pytest
from network_disks import short_directory

from served_run import ServedRun, served_run
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.heartbeats import gathered
from tfckpt_trainer.rundir.heartbeats.attention import (
    IDLE_SECONDS,
    MEMBER_LOST_SECONDS,
    look_at,
)
from tfckpt_trainer.rundir.heartbeats.gathered import WorkerReader
from tfckpt_trainer.rundir.heartbeats.health import WorkerState, worker_state
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState
from tfckpt_trainer.rundir.records.worker import WorkerStatus
from tfckpt_trainer.rundir.storage.documents import load
from waiting import MOST_SECONDS, wait_until

pytestmark = [pytest.mark.tensorflow, pytest.mark.e2e]

MOST_OF_A_WORKER = 0.5
"""Operations a second of a worker that trains while nobody looks."""

MOST_OF_A_MEMBER = 6
"""Operations of one of many workers in that time, of which the steps of its chief tell."""

CHECKED = 12
"""Operations of what happens every some minutes, such as a look whether its file is still there."""

IDLE_BEATS = 3


@pytest.fixture(scope="module")
def served():
    with short_directory() as place, served_run(place, "--few", "1") as run:
        yield run


def is_rare(served: ServedRun) -> bool:
    return all(worker.lost_after_seconds is not None for worker in served.workers())


def newest(served: ServedRun) -> float:
    return min(worker.updated_at for worker in served.workers())


def test_a_run_that_nobody_looks_at_asks_little(served):
    wait_until(lambda: is_rare(served), MOST_SECONDS, "rare heartbeats")
    served.asked()
    first = newest(served)

    def beaten() -> float:
        seconds = newest(served) - first
        return seconds if seconds > (IDLE_BEATS - 0.5) * IDLE_SECONDS else 0

    seconds = wait_until(beaten, MOST_SECONDS, "heartbeats")
    asked = served.asked()
    calls = asked["chief"]
    assert calls.total() <= MOST_OF_A_WORKER * seconds + CHECKED, (calls, seconds)
    # Its steps are those of the chief, which tells of them.
    calls = asked.get("worker 1", Counter())
    assert calls.total() <= MOST_OF_A_MEMBER, (calls, seconds)


def test_a_worker_that_stops_while_nobody_looks_is_seen_by_its_chief(served):
    wait_until(lambda: is_rare(served), MOST_SECONDS, "rare heartbeats")
    own = load(served.on_server.worker_status(1), WorkerStatus)
    assert own.lost_after_seconds == MEMBER_LOST_SECONDS

    def states() -> list[WorkerState]:
        # Not by their processes, which another machine does not see.
        found = [msgspec.structs.replace(one, host="elsewhere") for one in served.workers()]
        return [worker_state(one, time.time()) for one in found]

    os.kill(own.pid, signal.SIGSTOP)
    try:
        wait_until(lambda: states()[1] is WorkerState.LOST, MOST_SECONDS, "it is lost")
        assert states()[0] is not WorkerState.LOST
        age = time.time() - load(served.on_server.worker_status(1), WorkerStatus).updated_at
        assert age < MEMBER_LOST_SECONDS, "its own heartbeat does not tell it"
    finally:
        os.kill(own.pid, signal.SIGCONT)
    wait_until(lambda: states()[1] is WorkerState.TRAINING, MOST_SECONDS, "it trains again")


def test_who_looks_sees_a_heartbeat_each_second_and_who_asks_is_answered(served):
    wait_until(lambda: is_rare(served), MOST_SECONDS, "rare heartbeats")

    look_at(served.elsewhere)

    def is_frequent() -> bool:
        return served.workers()[0].lost_after_seconds is None

    wait_until(is_frequent, MOST_SECONDS, "frequent heartbeats of the chief")
    queue = CommandQueue(served.elsewhere)
    command = queue.submit(CommandKind.SAVE, requested_by="test")
    assert queue.wait(command, timeout=60).state is CommandState.DONE


def test_a_worker_that_stops_is_seen_beside_what_its_chief_gathered(served, monkeypatch):
    monkeypatch.setattr(gathered, "FEW", 1)
    look_at(served.elsewhere)
    wait_until(served.on_server.gathered_heartbeats.exists, MOST_SECONDS, "they are gathered")
    reader = WorkerReader(served.elsewhere)

    def other() -> WorkerState:
        look_at(served.elsewhere)
        now = time.time()
        _, status = reader.read(2, now)
        # Not by its process, which another machine does not see.
        return worker_state(msgspec.structs.replace(status, host="elsewhere"), now)

    assert other() is WorkerState.TRAINING
    (stopped,) = (worker for worker in served.workers() if worker.index)
    os.kill(stopped.pid, signal.SIGSTOP)
    try:
        wait_until(lambda: other() is WorkerState.LOST, MOST_SECONDS, "it is lost")
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
    wait_until(lambda: other() is WorkerState.TRAINING, MOST_SECONDS, "it trains again")
