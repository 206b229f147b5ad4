"""The power is cut while a trainer saves: what it told to be flushed is there afterwards, whole."""

from __future__ import annotations

import time

import pytest
from steered import SteeredRun
from training_cluster import Cluster

from real_file_systems import power_cut_disk
from tfckpt_trainer.bundle.verify import verify
from tfckpt_trainer.catalog.commit.saves import finish_interrupted_saves
from tfckpt_trainer.catalog.directory.checkpoints import CheckpointState
from tfckpt_trainer.catalog.directory.history import resume_point
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState
from tfckpt_trainer.rundir.storage.documents import load
from weekly import weekly

pytestmark = pytest.mark.tensorflow

SAVES = 8


@pytest.mark.parametrize("how", [*weekly([]), ["--background"]], ids=["foreground", "background"])
def test_what_was_acknowledged_survives_a_power_cut(tmp_path, how):
    with power_cut_disk(tmp_path / "disk") as disk:
        run_dir = disk.root / "run"
        with Cluster(run_dir, "steered.py", how, 1, "one-device") as cluster:
            run = SteeredRun(cluster)
            acknowledged = []
            for _ in range(SAVES):
                outcome = run.ask(CommandKind.SAVE)
                assert outcome.state is CommandState.DONE, outcome.message
                assert "flushed to disk" in outcome.message
                acknowledged.append(outcome.result["name"])
                # The steps whose slowness is measured are over, and more.
                run.wait_for_step(outcome.result["step"] + 15)
            disk.cut_power()
            for process in cluster.processes:
                process.kill()
                process.wait()
        disk.restore_power()
        check(RunDirectory(run_dir), acknowledged)


def check(run: RunDirectory, acknowledged: list[str]) -> None:
    finish_interrupted_saves(run)
    states = {c.name: c.state for c in Catalog(run).scan(time.time())}
    for name in acknowledged:
        assert verify(run.root / name).ok, name
        record = load(run.record(name), CheckpointRecord)
        for facts in record.files:
            assert (run.root / facts.name).stat().st_size == facts.size
        assert states[name] is CheckpointState.VERIFIED
    resumed = resume_point(run)
    assert resumed is not None
    assert resumed.checkpoint == acknowledged[-1]
