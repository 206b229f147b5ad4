"""What a real run of two workers asks of the server of a network disk, by who asks."""

from __future__ import annotations

import pytest
from network_disks import short_directory

from served_run import ServedRun, served_run
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.heartbeats.attention import IDLE_SECONDS, look_at
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState
from waiting import MOST_SECONDS, wait_until

pytestmark = [pytest.mark.tensorflow, pytest.mark.e2e]

MOST_OF_A_WORKER = 0.5
"""Operations a second of a worker that trains while nobody looks."""

CHECKED = 12
"""Operations of what happens every some minutes, such as a look whether its file is still there."""

IDLE_BEATS = 3


@pytest.fixture(scope="module")
def served():
    with short_directory() as place, served_run(place) as run:
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
    for who in ("chief", "worker 1"):
        calls = asked[who]
        assert calls.total() <= MOST_OF_A_WORKER * seconds + CHECKED, (who, calls, seconds)


def test_who_looks_sees_a_heartbeat_each_second_and_who_asks_is_answered(served):
    wait_until(lambda: is_rare(served), MOST_SECONDS, "rare heartbeats")
    look_at(served.elsewhere)
    wait_until(
        lambda: all(worker.lost_after_seconds is None for worker in served.workers()),
        MOST_SECONDS,
        "frequent heartbeats of both",
    )
    queue = CommandQueue(served.elsewhere)
    command = queue.submit(CommandKind.SAVE, requested_by="test")
    assert queue.wait(command, timeout=60).state is CommandState.DONE
