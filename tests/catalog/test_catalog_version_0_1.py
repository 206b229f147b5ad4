"""A run directory of version 0.1 opens, is completed, prunes and comes back."""

from __future__ import annotations

import time

from tfckpt_trainer.catalog.commit import finish_interrupted_saves
from tfckpt_trainer.catalog.retention.prune import finish_interrupted_prunes, move_to_trash, undo
from tfckpt_trainer.catalog.retention.trash import list_trash
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.catalog.scan.checkpoints import CheckpointState
from tfckpt_trainer.catalog.scan.history import resume_point
from tfckpt_trainer.catalog.verification.verify_checkpoint import verify_checkpoint
from tfckpt_trainer.rundir.paths import RunDirectory
from version_0_1 import unpacked

NAMES = {"ckpt-2000", "ckpt-b1-4000", "ckpt-b1-6000", "ckpt-b1-6046"}


def scan(run):
    return {c.name: c for c in Catalog(run).scan(time.time())}


def test_it_opens_with_all_that_its_records_say(tmp_path):
    run = RunDirectory(unpacked(tmp_path))
    found = scan(run)
    assert set(found) == NAMES
    assert {c.state for c in found.values()} == {CheckpointState.VERIFIED}
    assert [c.name for c in found.values() if c.pinned] == ["ckpt-2000"]
    assert [c.name for c in found.values() if c.is_head] == ["ckpt-b1-6046"]
    newest = found["ckpt-b1-6046"]
    assert (newest.step, newest.branch, newest.sequence, newest.parent) == (
        6046,
        1,
        6,
        "ckpt-b1-6000",
    )
    # That version added the after-effect of a save to the record itself.
    assert found["ckpt-2000"].record.cost.slowing_steps == 10
    for name in NAMES:
        assert verify_checkpoint(run, name).record.findings == []


def test_what_it_pruned_comes_back_and_more_can_go(tmp_path):
    run = RunDirectory(unpacked(tmp_path))
    undo(run, None, update_state_file=True)
    assert set(scan(run)) == {*NAMES, "ckpt-4000"}
    assert list_trash(run) == []
    move_to_trash(
        run, ["ckpt-4000", "ckpt-b1-4000"], by="me", now=time.time(), update_state_file=True
    )
    assert set(scan(run)) == NAMES - {"ckpt-b1-4000"}
    undo(run, None, update_state_file=True)
    assert {c.state for c in scan(run).values()} == {CheckpointState.VERIFIED}


def test_a_save_that_was_all_but_committed_is_completed(tmp_path):
    run = RunDirectory(unpacked(tmp_path, "run-cut-save"))
    assert finish_interrupted_saves(run).completed == ("ckpt-b1-6046",)
    assert scan(run)["ckpt-b1-6046"].state is CheckpointState.VERIFIED
    resumed = resume_point(run)
    assert resumed is not None
    assert resumed.checkpoint == "ckpt-b1-6046"


def test_a_save_of_which_data_is_missing_is_not_completed(tmp_path):
    run = RunDirectory(unpacked(tmp_path, "run-cut-save"))
    (run.root / "ckpt-b1-6046.data-00000-of-00001").write_bytes(b"cut")
    assert finish_interrupted_saves(run).completed == ()
    assert not (run.root / "ckpt-b1-6046.index").exists()
    resumed = resume_point(run)
    assert resumed is not None
    assert resumed.checkpoint == "ckpt-b1-6000"


def test_a_prune_that_was_cut_off_is_finished_in_a_copy(tmp_path):
    """Unpacked, every file has another inode than its manifest says."""
    run = RunDirectory(unpacked(tmp_path, "run-cut-prune"))
    finish_interrupted_prunes(run)
    assert set(scan(run)) == NAMES - {"ckpt-b1-4000"}
    assert not list(run.root.glob("ckpt-b1-4000*"))
    undo(run, None, update_state_file=True)
    assert scan(run)["ckpt-b1-4000"].state is CheckpointState.VERIFIED
