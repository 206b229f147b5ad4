"""A worker that is killed in the middle of a quick check."""

from __future__ import annotations

import json
import os
import signal
import sys

import pytest
from supervised import Run
from training_cluster import SCRIPTS

from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.heartbeats.health import read_workers
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState
from tfckpt_trainer.rundir.records.event import EventKind
from waiting import wait_until
from weekly import weekly

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize("killed", [*weekly(0), 1])
def test_training_goes_on_from_the_newest_checkpoint(run: Run, killed: int) -> None:
    script = [sys.executable, str(SCRIPTS / "steered.py"), "--strategy", "multi-worker"]
    run.supervise(run.options(command=(*script, "--save-every", "20")))
    place, queue = run.directory, CommandQueue(run.directory)

    def step() -> int:
        return min((one.step for one in read_workers(place)), default=0)

    wait_until(lambda: step() >= 25, 120, "steps")
    command = queue.submit(CommandKind.CHECK, {"steps": 100}, requested_by="test", lifetime=60)
    wait_until(lambda: list(place.check_directory.glob("*.index")), 60, "the checkpoint of a check")
    pids = {one.index: one.pid for one in read_workers(place)}
    os.kill(pids[killed], signal.SIGKILL)
    assert queue.look_up(command.id).state is not CommandState.DONE

    def goes_on() -> bool:
        workers = read_workers(place)
        is_new = all(one.pid != pids[one.index] for one in workers)
        return is_new and len(workers) == 2 and min(one.step for one in workers) > 150

    wait_until(goes_on, 180, "training goes on")
    assert not place.check_directory.exists()
    starts = run.event_log(EventKind.START)
    assert starts[-1].checkpoint is not None
    assert {one.branch for one in read_workers(place)} == {0}
    lines = [json.loads(line) for line in place.series.read_text().splitlines()]
    assert {line.get("branch", 0) for line in lines} == {0}
    # Steps that were lost with the process are trained again from the checkpoint, and only these.
    steps = [line["step"] for line in lines]
    again = [place for place in range(1, len(steps)) if steps[place] <= steps[place - 1]]
    assert len(again) <= 1
    assert all(steps[place] > starts[-1].step for place in again)
