"""A script in Ray's TensorflowTrainer, whose loop is not in the main thread of its process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from training_cluster import SCRIPTS

from requirements import require
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.heartbeats.reading import read_workers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.worker import Activity, Ending
from tfckpt_trainer.rundir.storage.documents import load
from waiting import MOST_SECONDS, wait_until

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.e2e,
    # Ray starts a dozen processes, several times.
    pytest.mark.timeout(900),
]

START_SECONDS = 300


class RayRun:
    """A driver that trains with two workers of a local Ray."""

    def __init__(self, place: Path) -> None:
        self.run = RunDirectory(place / "run")
        self.log = place / "ray.log"
        self.stop_file, self.drain_file = place / "stop", place / "drain"
        with open(self.log, "wb") as output:
            self.driver = subprocess.Popen(
                [
                    sys.executable,
                    SCRIPTS / "ray_trained.py",
                    self.run.root,
                    place / "storage",
                    self.stop_file,
                    self.drain_file,
                ],
                stdout=output,
                stderr=subprocess.STDOUT,
                # Ray's socket has a path of at most 107 bytes.
                env={**os.environ, "RAY_TMPDIR": "/tmp", "RAY_USAGE_STATS_ENABLED": "0"},
            )
        self.pids: set[int] = set()

    def wait_for_training(self) -> list[int]:
        """Waits until two workers train that are not known yet; returns their process IDs."""

        def training():
            assert self.driver.poll() is None, self.output()
            workers = [worker for worker in read_workers(self.run) if worker.pid not in self.pids]
            return len(workers) == 2 and all(
                worker.activity is Activity.TRAINING and worker.step for worker in workers
            )

        wait_until(training, START_SECONDS, "two workers of Ray that train")
        pids = [worker.pid for worker in read_workers(self.run)]
        self.pids.update(pids)
        return pids

    def ask(self, kind, **arguments):
        queue = CommandQueue(self.run)
        command = queue.submit(kind, arguments, requested_by="test", lifetime=60)
        outcome = queue.wait(command, timeout=60)
        assert outcome.state is CommandState.DONE, f"{outcome}\n{self.output()}"
        return outcome

    def restored(self) -> list[str]:
        """The checkpoints that were restored, at a start too, oldest first."""
        kinds = {EventKind.START, EventKind.RESTORE}
        entries = [entry for entry in read_entries(self.run) if entry.kind in kinds]
        return [entry.checkpoint for entry in entries if entry.checkpoint is not None]

    def triggers(self) -> set[str]:
        """What the saves were made for."""
        paths = self.run.records_directory.glob("*.json")
        return {load(path, CheckpointRecord).trigger for path in paths}

    def output(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]


@pytest.fixture
def ray_run(tmp_path):
    require("ray")
    run = RayRun(tmp_path)
    yield run
    run.driver.terminate()
    run.driver.wait(MOST_SECONDS)


def test_ray_train_runs_a_script_unmodified_and_restarts_it_from_the_newest_checkpoint(ray_run):
    first = ray_run.wait_for_training()
    saved = ray_run.ask(CommandKind.SAVE).result["name"]
    ray_run.ask(CommandKind.RESTORE, name=saved)
    assert ray_run.restored() == [saved]

    os.kill(first[1], signal.SIGTERM)

    def preempted():
        return [w.ending for w in read_workers(ray_run.run)] == [Ending.PREEMPTED] * 2

    wait_until(preempted, 60, "both workers preempted")
    second = ray_run.wait_for_training()
    name = ray_run.restored()[-1]
    assert load(ray_run.run.record(name), CheckpointRecord).trigger == "preemption"
    (stopped,) = [e.message for e in read_entries(ray_run.run) if e.kind is EventKind.STOP]
    assert stopped.endswith("(preempted: SIGTERM reached /job:worker/task:1).")

    saved = ray_run.ask(CommandKind.SAVE).result["name"]
    os.kill(second[1], signal.SIGKILL)
    ray_run.wait_for_training()
    assert ray_run.restored()[-1] == saved

    ray_run.drain_file.touch()
    wait_until(lambda: "Ray drains a node" in ray_run.triggers(), 60, "a save before the drain")

    # A thread of worker 1 calls request_stop.
    ray_run.stop_file.touch()
    assert ray_run.driver.wait(MOST_SECONDS) == 0, ray_run.output()
    assert [w.ending for w in read_workers(ray_run.run)] == [Ending.STOPPED] * 2
    last = read_entries(ray_run.run)[-1]
    assert last.message.endswith("(stopped: the file exists).")
