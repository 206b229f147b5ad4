"""A worker that is killed in the middle of a quick check."""

from __future__ import annotations

import json
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from steered import SteeredRun
from training_cluster import Cluster

from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.heartbeats.reading import read_workers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState
from tfckpt_trainer.rundir.records.event import EventKind
from waiting import wait_until
from weekly import weekly

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize("killed", [*weekly(0), 1])
def test_training_goes_on_from_the_newest_checkpoint(tmp_path: Path, killed: int) -> None:
    place = RunDirectory(tmp_path / "run")
    queue = CommandQueue(place)
    with Cluster(place.root, "steered.py", ["--save-every", "20"]) as cluster:
        SteeredRun(cluster).wait_for_step(25)
        command = queue.submit(CommandKind.CHECK, {"steps": 100}, requested_by="test", lifetime=60)
        wait_until(
            lambda: list(place.check_directory.glob("*.index")), 60, "the checkpoint of a check"
        )
        cluster.processes[killed].kill()
        assert queue.look_up(command.id).state is not CommandState.DONE
        # As a supervisor does, which gives it time to save.
        cluster.processes[1 - killed].terminate()
        with suppress(subprocess.TimeoutExpired):
            cluster.processes[1 - killed].wait(5)

    with Cluster(place.root, "steered.py", ["--save-every", "20"]) as cluster:
        SteeredRun(cluster).wait_for_step(60)
    assert not place.check_directory.exists()
    starts = [entry for entry in read_entries(place) if entry.kind is EventKind.START]
    assert starts[-1].checkpoint is not None
    assert {one.branch for one in read_workers(place)} == {0}
    lines = [json.loads(line) for line in place.series.read_text().splitlines()]
    assert {line.get("branch", 0) for line in lines} == {0}
    # Steps that were lost with the process are trained again from the checkpoint, and only these.
    steps = [line["step"] for line in lines]
    again = [place for place in range(1, len(steps)) if steps[place] <= steps[place - 1]]
    assert len(again) <= 1
    assert all(steps[place] > starts[-1].step for place in again)
