"""A trainer goes on in a run directory of version 0.1, exactly, and goes back in it."""

from __future__ import annotations

import pytest
from steered import SteeredRun
from training_cluster import Cluster

from tfckpt_trainer.rundir.documents import load
from tfckpt_trainer.rundir.journal import read_entries
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState
from version_0_1 import unpacked

pytestmark = pytest.mark.tensorflow


def test_it_goes_on_from_a_save_that_was_cut_off_and_back_to_an_older_one(tmp_path):
    root = unpacked(tmp_path, "run-cut-save")
    with Cluster(root, "steered.py", ["--width", "4"], 1, "one-device") as cluster:
        run = SteeredRun(cluster)
        run.wait_for_step(6050)
        messages = [entry.message for entry in read_entries(run.run)]
        assert "Completed the interrupted save of ckpt-b1-6046." in messages
        assert any(m.startswith("Restored ckpt-b1-6046 on 1 worker") for m in messages)

        back = run.ask(CommandKind.RESTORE, name="ckpt-2000")
        assert back.state is CommandState.DONE, back.message
        assert back.result["notes"] == []
        assert back.result["branch"] == 2
        saved = run.ask(CommandKind.SAVE)
        record = load(run.run.record(saved.result["name"]), CheckpointRecord)
        # What its script kept in `run.state` went on counting from there.
        assert record.state["count"] == record.step
        assert record.parent == "ckpt-2000"
        assert record.sequence > 7
        assert run.ask(CommandKind.STOP).state is CommandState.DONE
        assert cluster.wait() == [0], cluster.output()
