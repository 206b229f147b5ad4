"""TensorFlow's own manager goes on as if nothing had happened, after a prune and after an undo."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tensorflow_processes import run_with_tensorflow
from tfckpt_trainer.catalog.commit.saves import point_state_file_at
from tfckpt_trainer.catalog.directory.checkpoints import CheckpointState
from tfckpt_trainer.catalog.retention.plan import plan
from tfckpt_trainer.catalog.retention.policy import Policy
from tfckpt_trainer.catalog.retention.prune import move_to_trash, undo
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.rundir.paths import RunDirectory

SCRIPT = Path(__file__).parent / "scripts" / "manager.py"


def manage(directory: Path, *, saves: int, kept: int, hours: float | None = None) -> dict:
    run = run_with_tensorflow(SCRIPT, directory, saves, kept, *([hours] if hours else []))
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.tensorflow
def test_a_manager_goes_on_after_a_prune_and_an_undo(tmp_path):
    run = RunDirectory(tmp_path / "run")
    assert manage(run.root, saves=4, kept=10)["known"] == [f"ckpt-{n}" for n in (1, 2, 3, 4)]
    found = Catalog(run).scan(time.time())
    assert [c.name for c in found] == ["ckpt-4", "ckpt-3", "ckpt-2", "ckpt-1"]
    assert {c.state for c in found} == {CheckpointState.COMPLETE}
    assert [c.name for c in found if c.is_head] == ["ckpt-4"]
    before = run.state_file.read_bytes()

    move_to_trash(run, ["ckpt-2", "ckpt-3"], by="me", now=time.time(), update_state_file=True)
    after = manage(run.root, saves=0, kept=10)
    assert (after["restored"][-6:], after["step"]) == ("ckpt-4", 4)
    assert after["known"] == ["ckpt-1", "ckpt-4"]

    undo(run, None, update_state_file=True)
    assert run.state_file.read_bytes() == before
    last = manage(run.root, saves=1, kept=3)
    assert last["known"] == ["ckpt-3", "ckpt-4", "ckpt-5"]
    assert [c.name for c in Catalog(run).scan(time.time())] == ["ckpt-5", "ckpt-4", "ckpt-3"]


@pytest.mark.tensorflow
def test_a_manager_continues_from_a_chosen_checkpoint_and_its_list_keeps_its_order(tmp_path):
    run = RunDirectory(tmp_path / "run")
    manage(run.root, saves=4, kept=10)
    point_state_file_at(run, "ckpt-2")
    assert [c.name for c in Catalog(run).scan(time.time())] == [f"ckpt-{n}" for n in (4, 3, 2, 1)]
    after = manage(run.root, saves=0, kept=10)
    assert (after["restored"][-6:], after["step"]) == ("ckpt-2", 2)
    assert after["known"] == [f"ckpt-{n}" for n in (1, 2, 3, 4)]
    again = manage(run.root, saves=1, kept=3)
    assert again["known"] == ["ckpt-2", "ckpt-4", "ckpt-3"]


@pytest.mark.tensorflow
def test_what_a_manager_keeps_for_good_no_rule_deletes(tmp_path):
    run = RunDirectory(tmp_path / "run")
    assert manage(run.root, saves=5, kept=2, hours=1e-9)["known"] == ["ckpt-4", "ckpt-5"]
    for _ in range(2):
        # It stays so when the list is down to one.
        found = Catalog(run).scan(time.time())
        going = [c.name for c in plan(found, Policy(keep_last=1)).deleted]
        if going:
            move_to_trash(run, going, by="me", now=time.time(), update_state_file=True)
            assert going == ["ckpt-4"]
    assert [c.name for c in found] == ["ckpt-5", "ckpt-3", "ckpt-2", "ckpt-1"]
    assert [c.name for c in found if c.dropped_by_manager] == ["ckpt-3", "ckpt-2", "ckpt-1"]
