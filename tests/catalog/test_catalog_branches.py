"""What follows a return to an older step gets names that were never taken."""

from __future__ import annotations

from checkpoint_directory import NOW

from tfckpt_trainer.catalog.lineage import Branches, branch_after_restore, lineage
from tfckpt_trainer.catalog.retention.prune import move_to_trash
from tfckpt_trainer.catalog.scan.catalog import Catalog


def test_from_the_tip_of_a_branch_training_goes_on_on_it(made):
    made.ours(100)
    made.ours(200)
    made.ours(150, 1)
    assert branch_after_restore(made.run, "ckpt-200") == 0
    assert branch_after_restore(made.run, "ckpt-b1-150") == 1


def test_from_an_older_step_a_new_one_begins(made):
    made.ours(100)
    made.ours(200)
    assert branch_after_restore(made.run, "ckpt-100") == 1
    made.ours(300, 3)
    assert branch_after_restore(made.run, "ckpt-100") == 4


def test_a_damaged_tip_still_has_its_name(made):
    made.ours(100)
    made.ours(200)
    (made.root / "ckpt-200.index").write_bytes(b"")
    assert branch_after_restore(made.run, "ckpt-100") == 1


def test_a_pruned_tip_still_has_its_name(made):
    for step, branch in [(100, 0), (200, 0), (150, 2), (100, 1)]:
        made.ours(step, branch)
    move_to_trash(made.run, ["ckpt-200", "ckpt-b2-150"], by="me", now=NOW, update_state_file=True)
    assert branch_after_restore(made.run, "ckpt-100") == 3
    assert Branches(made.run).next() == 3


def test_a_branch_that_began_and_saved_nothing_counts(made):
    made.ours(100)
    made.restored("ckpt-100", 100, 4)
    assert Branches(made.run).next() == 5


def test_a_save_in_progress_counts(made):
    made.ours(100)
    made.run.create()
    made.tensorflow("ckpt-b6-110", into=made.run.saving_directory, listed=False)
    assert Branches(made.run).next() == 7


def test_foreign_names(made):
    made.tensorflow("ckpt-5")
    made.tensorflow("best")
    branches = Branches(made.run)
    assert branches.after_restore("ckpt-5") == 0
    assert branches.after_restore("best") == 1


def test_an_empty_directory(made):
    assert Branches(made.run).next() == 1


def test_lineage(made):
    made.ours(100)
    made.ours(200, parent="ckpt-100")
    made.ours(300, parent="ckpt-200")
    made.ours(250, 1, parent="ckpt-200")
    found = Catalog(made.run).scan(NOW)
    assert lineage(found, "ckpt-b1-250") == ("ckpt-b1-250", "ckpt-200", "ckpt-100")


def test_lineage_of_records_that_name_each_other(made):
    made.ours(100, parent="ckpt-200")
    made.ours(200, parent="ckpt-100")
    assert lineage(Catalog(made.run).scan(NOW), "ckpt-200") == ("ckpt-200", "ckpt-100")
