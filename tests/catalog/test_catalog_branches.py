"""Branches and ancestry: a restore of an older step gets names that were never taken."""

from __future__ import annotations

import pytest
from checkpoint_directory import NOW
from msgspec.structs import replace

from bundle_writing import write_floats
from tfckpt_trainer.catalog.directory.trash import list_trash
from tfckpt_trainer.catalog.retention.emptying import empty_trash
from tfckpt_trainer.catalog.retention.prune import move_to_trash
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.catalog.scan.lineage import (
    BranchStep,
    BranchTips,
    fork_points,
    lineage_at,
    lineage_of,
    plan_restore,
    unsaved_steps,
)
from tfckpt_trainer.errors import RefusedError
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, Derivation, SourceFacts
from tfckpt_trainer.rundir.storage.documents import load, store


def tips_of(made) -> BranchTips:
    catalog = Catalog(made.run)
    catalog.scan(NOW)
    return catalog.branch_tips(list_trash(made.run))


def after_restore(made, name: str) -> int:
    return tips_of(made).after_restore(made.scan()[name])


def prune(made, *names: str) -> None:
    move_to_trash(made.run, names, by="me", now=NOW, update_state_file=True)


def test_a_restore_of_the_tip_continues_its_branch(made):
    made.ours(100)
    made.ours(200)
    made.ours(150, 1)
    assert after_restore(made, "ckpt-200") == 0
    assert after_restore(made, "ckpt-b1-150") == 1


def test_a_restore_of_an_older_step_starts_a_branch(made):
    made.ours(100)
    made.ours(200)
    assert after_restore(made, "ckpt-100") == 1
    made.ours(300, 3)
    assert after_restore(made, "ckpt-100") == 4


def test_a_scan_tells_whether_anything_changed(made):
    made.ours(100)
    made.ours(200)
    catalog = Catalog(made.run)
    before = catalog.scan(NOW)
    assert catalog.has_changed
    catalog.scan(NOW)
    assert not catalog.has_changed
    # A record without a checkpoint changes the tips alone.
    made.record("ckpt-b3-300", 300, branch=3)
    assert catalog.scan(NOW) == before
    assert catalog.has_changed
    assert catalog.branch_tips([]).after_restore(before[-1]) == 4


def test_a_damaged_tip_still_has_its_name(made):
    made.ours(100)
    made.ours(200)
    (made.root / "ckpt-200.index").write_bytes(b"")
    assert after_restore(made, "ckpt-100") == 1


def test_a_tip_in_the_trash_still_has_its_name(made):
    for step, branch in [(100, 0), (200, 0), (150, 2), (100, 1)]:
        made.ours(step, branch)
    prune(made, "ckpt-200", "ckpt-b2-150")
    assert after_restore(made, "ckpt-100") == 3


def test_a_tip_that_was_deleted_gives_its_name_back(made):
    made.ours(100)
    made.ours(200)
    made.ours(150, 1, parent="ckpt-100")
    prune(made, "ckpt-200")
    empty_trash(made.run)
    assert after_restore(made, "ckpt-100") == 0


def test_a_branch_that_saved_nothing_counts(made):
    made.ours(100)
    made.restored("ckpt-100", 100, 4)
    assert tips_of(made).next == 5


def test_a_save_in_progress_counts(made):
    made.ours(100)
    made.run.create()
    made.tensorflow("ckpt-b6-110", into=made.run.saving_directory, listed=False)
    assert tips_of(made).next == 7


def test_a_record_without_files_counts(made):
    made.ours(100)
    made.record("ckpt-200", 200)
    assert after_restore(made, "ckpt-100") == 1


def test_foreign_names(made):
    made.tensorflow("ckpt-5")
    made.tensorflow("best")
    assert after_restore(made, "ckpt-5") == 0
    found = Catalog(made.run).scan(NOW)
    with pytest.raises(RefusedError, match="Rename its files to best-STEP, such as best-500"):
        plan_restore(found, tips_of(made), made.scan()["best"], None)
    for file in made.root.glob("best.*"):
        file.rename(file.with_name(f"best-500.{file.name.removeprefix('best.')}"))
    found = Catalog(made.run).scan(NOW)
    plan = plan_restore(found, tips_of(made), made.scan()["best-500"], None)
    assert plan.target.step == 500


def test_an_empty_directory(made):
    assert tips_of(made) == BranchTips({}, 0)
    assert tips_of(made).next == 1


@pytest.fixture
def forked(made):
    """Branch 0 of three saves, and branch 1 from the second one."""
    made.ours(100)
    made.ours(200, parent="ckpt-100")
    made.ours(300, parent="ckpt-200")
    made.ours(250, 1, parent="ckpt-200")
    made.ours(290, 1, parent="ckpt-b1-250")
    return made


def test_the_lineage_of_a_checkpoint(forked):
    found = Catalog(forked.run).scan(NOW)
    lineage = lineage_of(found, "ckpt-b1-250")
    assert lineage.names == ("ckpt-b1-250", "ckpt-200", "ckpt-100")
    assert lineage.last_steps == {1: 250, 0: 200}
    assert fork_points(found) == {1: "ckpt-200"}


def test_pruned_ancestors_do_not_end_a_lineage(forked):
    prune(forked, "ckpt-b1-250", "ckpt-200")
    lineage = lineage_of(Catalog(forked.run).scan(NOW), "ckpt-b1-290")
    assert lineage.names == ("ckpt-b1-290",)
    assert lineage.last_steps == {1: 290}


def test_a_pruned_fork_point_does_not_end_a_lineage(forked):
    prune(forked, "ckpt-200")
    lineage = lineage_of(Catalog(forked.run).scan(NOW), "ckpt-b1-290")
    assert lineage.names == ("ckpt-b1-290", "ckpt-b1-250", "ckpt-100")
    assert lineage.last_steps == {1: 290, 0: 200}


def test_the_lineage_of_a_branch_without_checkpoints_starts_at_the_restore(forked):
    forked.restored("ckpt-b1-250", 250, 2)
    lineage = lineage_at(Catalog(forked.run).scan(NOW), BranchStep(2, 255))
    assert lineage.names == ("ckpt-b1-250", "ckpt-200", "ckpt-100")
    assert lineage.last_steps == {2: 255, 1: 250, 0: 200}


def test_records_that_name_each_other_as_parent(made):
    made.ours(100, parent="ckpt-200")
    made.ours(200, parent="ckpt-100")
    found = Catalog(made.run).scan(NOW)
    assert lineage_of(found, "ckpt-200").names == ("ckpt-200", "ckpt-100")


def test_a_checkpoint_that_is_not_there_has_no_lineage(made):
    assert lineage_of(Catalog(made.run).scan(NOW), "ckpt-1").names == ()


def test_damaged_checkpoints_hold_no_steps(forked):
    assert unsaved_steps(Catalog(forked.run).scan(NOW), BranchStep(1, 295)) == 5
    for step in (250, 290):
        (forked.root / f"ckpt-b1-{step}.data-00000-of-00001").unlink()
    assert unsaved_steps(Catalog(forked.run).scan(NOW), BranchStep(1, 295)) == 95


def test_a_checkpoint_of_another_branch_holds_no_steps(forked):
    forked.ours(280)
    assert unsaved_steps(Catalog(forked.run).scan(NOW), BranchStep(1, 285)) == 35


def test_the_plan_of_a_restore(forked):
    found = Catalog(forked.run).scan(NOW)
    target = forked.scan()["ckpt-100"]
    plan = plan_restore(found, tips_of(forked), target, BranchStep(1, 295))
    assert (plan.branch, plan.is_new_branch) == (2, True)
    assert (plan.steps_back, plan.unsaved_steps) == (195, 5)
    assert plan.left_behind == ("ckpt-b1-290", "ckpt-b1-250", "ckpt-200")


def test_a_checkpoint_made_from_others_is_no_ancestor_unless_training_continued_from_it(made):
    for step in (100, 200):
        made.ours(step)
    made.ours(150, branch=1, parent="ckpt-100")
    made.ours(300, branch=1, parent="ckpt-b1-150")
    edited = replace(
        load(made.run.record("ckpt-b1-150"), CheckpointRecord),
        name="edited",
        parent="ckpt-b1-150",
        derived=Derivation(operation="edit", sources=[SourceFacts(name="ckpt-b1-150")]),
    )
    for path in write_floats(made.root / "edited", (0.0, 0.5)):
        made.touch(path, 3600)
    store(made.run.record("edited"), edited)
    found = Catalog(made.run).scan(NOW)
    assert "edited" in [c.name for c in found]
    assert fork_points(found) == {1: "ckpt-100"}
    assert lineage_of(found, "ckpt-b1-300").names == ("ckpt-b1-300", "ckpt-b1-150", "ckpt-100")
    assert lineage_of(found, "edited").names == ("edited", "ckpt-b1-150", "ckpt-100")
    assert lineage_at(found, BranchStep(1, 200)).names == ("ckpt-b1-150", "ckpt-100")
    prune(made, "ckpt-b1-150")
    found = Catalog(made.run).scan(NOW)
    assert lineage_of(found, "ckpt-b1-300").names == ("ckpt-b1-300",)
    made.ours(400, branch=1, parent="edited")
    found = Catalog(made.run).scan(NOW)
    assert lineage_of(found, "ckpt-b1-400").names == ("ckpt-b1-400", "edited")
