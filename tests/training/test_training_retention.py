"""The library's own retention: what no rule keeps goes to the trash while training goes on."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from steered import SteeredRun
from this_process import run_here
from training_cluster import Cluster

from real_file_systems import small_tmpfs
from tfckpt_trainer.bundle.verify import verify
from tfckpt_trainer.catalog.directory.trash import list_trash
from tfckpt_trainer.catalog.retention.policy import Policy, RetentionSettings
from tfckpt_trainer.catalog.retention.prune import undo
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.storage.documents import load
from waiting import wait_until

pytestmark = pytest.mark.tensorflow

STEPS = ["--steps", "40", "--save-every", "5"]


def trained(run_dir: Path, *options: str) -> SteeredRun:
    """A run of this process that went to step 40 with a save every 5 steps."""
    words = ["--strategy", "one-device", "--threads", "0", *STEPS, *options]
    assert run_here("steered.py", *words, TFCKPT_RUN_DIR=str(run_dir), TFCKPT_WORKER_INDEX="0") == 0
    return SteeredRun(Cluster(run_dir, "steered.py", words, 1, "one-device"))


def told(run: SteeredRun, kind: str) -> list[str]:
    return [entry.message for entry in read_entries(run.run) if entry.kind.value == kind]


def test_the_last_ones_stay_and_the_rest_can_be_brought_back(tmp_path):
    with Cluster(tmp_path / "run", "steered.py", [*STEPS, "--keep-last", "2"]) as cluster:
        assert cluster.wait() == [0, 0], cluster.output()
    run = SteeredRun(cluster)
    assert run.names() == {"ckpt-35", "ckpt-40"}
    assert all(verify(run.run.root / name).ok for name in run.names())
    listed = re.findall(r'all_model_checkpoint_paths: "(.+)"', run.run.state_file.read_text())
    assert listed == ["ckpt-35", "ckpt-40"]
    assert {entry.by for entry in read_entries(run.run) if entry.kind.value == "prune"} == {
        "retention"
    }
    assert (
        load(run.run.run_file, RunInfo).retention
        == RetentionSettings(Policy(keep_last=2)).to_json()
    )
    undo(run.run, None, update_state_file=True)
    assert run.names() == {"ckpt-30", "ckpt-35", "ckpt-40"}


def test_the_best_stays_and_old_trash_is_deleted_for_good(tmp_path):
    options = ("--keep-last", "1", "--keep-best", "loss:max:1", "--trash-hours", "0")
    run = trained(tmp_path / "run", *options)
    (best,) = run.names() - {"ckpt-40"}
    loss = {
        name: load(run.run.record(name), CheckpointRecord).metrics["loss"]
        for name in (best, "ckpt-40")
    }
    assert loss[best] > loss["ckpt-40"]
    # What the last save pruned is there still; a later one would empty it.
    assert sum(len(manifest.checkpoints) for manifest in list_trash(run.run)) <= 1
    assert told(run, "empty trash")


def test_what_training_went_back_to_stays_until_there_is_a_newer_one(tmp_path):
    arguments = ["--save-every", "5", "--keep-last", "2"]
    with Cluster(tmp_path / "run", "steered.py", arguments, 1, "one-device") as cluster:
        run = SteeredRun(cluster)
        run.wait_for_step(20)
        # While it is paused nothing is saved, and nothing pruned.
        run.ask(CommandKind.PAUSE)
        newest, oldest = (c.name for c in Catalog(run.run).scan(time.time()))
        outcome = run.ask(CommandKind.RESTORE, name=oldest)
        assert outcome.state is CommandState.DONE, outcome.message
        assert run.names() == {newest, oldest}
        run.ask(CommandKind.RESUME)
        run.progress()
        run.ask(CommandKind.STOP)
        assert cluster.wait() == [0]
    kept = Catalog(run.run).scan(time.time())
    assert [c.branch for c in kept] == [1, 1]
    assert all(verify(run.run.root / c.name).ok for c in kept)
    assert not told(run, "refused")
    assert not told(run, "failed")


@pytest.fixture
def disk_of_26_megabytes(tmp_path):
    with small_tmpfs(tmp_path / "disk", megabytes=26) as root:
        yield root


FULL = ["--keep-last", "1", "--width", "20000"]


def test_a_save_empties_the_trash_if_it_may(disk_of_26_megabytes):
    run = trained(disk_of_26_megabytes / "run", *FULL, "--make-room")
    assert "ckpt-40" in run.names()
    assert all("to make room" in message for message in told(run, "empty trash"))
    assert told(run, "empty trash")
    assert not told(run, "refused")


def test_a_save_waits_for_room_if_it_may_not_empty_the_trash(disk_of_26_megabytes):
    run_dir = disk_of_26_megabytes / "run"
    with Cluster(run_dir, "steered.py", [*STEPS, *FULL], 1, "one-device") as cluster:
        run = SteeredRun(cluster)
        # The last save waits, until someone ends the run.
        wait_until(lambda: told(run, "pause"), 60, "a wait for room")
        cluster.processes[0].terminate()
        assert cluster.wait() == [143], cluster.output()
    assert "are free in" in told(run, "refused")[0]
    assert not told(run, "empty trash")
    assert len(list_trash(run.run)) >= 1
