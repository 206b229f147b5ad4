"""Where a start goes on if both copies of a note are damaged; what verifying says of them."""

from __future__ import annotations

import subprocess

import pytest
from checkpoint_directory import NOW

from file_times import next_tick
from tfckpt_trainer.catalog.commit.saves import point_state_file_at
from tfckpt_trainer.catalog.directory.checkpoints import CheckpointState
from tfckpt_trainer.catalog.directory.history import resume_point
from tfckpt_trainer.catalog.directory.trash import list_trash
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.catalog.verification.damaged_documents import damage_at_start
from tfckpt_trainer.rundir.storage.documents import copy_of


def damage(path):
    """Flips a bit of a document and of its copy."""
    next_tick(path.parents[2])
    for one in (path, copy_of(path)):
        content = bytearray(one.read_bytes())
        content[len(content) // 2] ^= 1
        one.write_bytes(content)


def start(made):
    """Returns checkpoint and branch of the next start, on which the catalog has to agree."""
    resumed = resume_point(made.run)
    catalog = Catalog(made.run)
    heads = [found for found in catalog.scan(NOW) if found.is_head]
    assert [head.name for head in heads] == [resumed.checkpoint]
    tips = catalog.branch_tips(list_trash(made.run))
    return resumed.checkpoint, tips.at_start(heads[0], resumed)


@pytest.fixture
def gone_back(made):
    """A run of three saves whose user went back to the first."""
    for step in (100, 200, 300):
        made.ours(step)
    made.restored("ckpt-100", 100, 1)
    point_state_file_at(made.run, "ckpt-100")
    return made


def test_a_damaged_head_leaves_training_where_the_user_went_back_to(gone_back):
    assert start(gone_back) == ("ckpt-100", 1)
    damage(gone_back.run.head_file)
    assert start(gone_back) == ("ckpt-100", 1)


def test_a_damaged_head_does_not_hide_a_later_save(gone_back):
    gone_back.ours(150, 1)
    point_state_file_at(gone_back.run, "ckpt-b1-150")
    damage(gone_back.run.head_file)
    assert start(gone_back) == ("ckpt-b1-150", 1)


def test_a_damaged_head_and_a_state_file_that_names_nothing_there(gone_back):
    damage(gone_back.run.head_file)
    for path in gone_back.root.glob("ckpt-100.*"):
        path.unlink()
    assert start(gone_back) == ("ckpt-300", 0)


def test_the_newest_checkpoint_is_gone_on_from_without_its_record(made):
    for step in (100, 200, 300):
        made.ours(step)
    damage(made.run.record("ckpt-300"))
    assert start(made) == ("ckpt-300", 0)


def test_a_damaged_record_of_another_checkpoint_changes_nothing(gone_back):
    damage(gone_back.run.record("ckpt-200"))
    assert start(gone_back) == ("ckpt-100", 1)


def test_a_restore_of_a_checkpoint_without_its_record_keeps_its_branch(gone_back):
    damage(gone_back.run.record("ckpt-100"))
    assert start(gone_back) == ("ckpt-100", 1)


def test_without_any_record_names_tell_the_branch(gone_back):
    for step in (100, 200, 300):
        damage(gone_back.run.record(f"ckpt-{step}"))
    damage(gone_back.run.head_file)
    assert start(gone_back) == ("ckpt-100", 1)


def test_a_catalog_that_looks_again_sees_the_damage_and_its_repair(gone_back):
    catalog, path = Catalog(gone_back.run), gone_back.run.record("ckpt-300")

    def head():
        return next(found.name for found in catalog.scan(NOW) if found.is_head)

    gone_back.ours(400)
    assert head() == "ckpt-400"
    point_state_file_at(gone_back.run, "ckpt-300")
    assert head() == "ckpt-400"
    damage(path)
    assert head() == "ckpt-300"
    path.unlink()
    assert head() == "ckpt-400"


def test_a_checkpoint_that_lost_its_record_is_inexact_until_the_record_is_back(made):
    made.ours(100)
    made.ours(200)
    catalog = Catalog(made.run)
    path = made.run.record("ckpt-200")
    sound = path.read_bytes()
    assert {c.state for c in catalog.scan(NOW)} == {CheckpointState.VERIFIED}
    damage(path)
    found = {c.name: c for c in catalog.scan(NOW)}
    assert found["ckpt-100"].state is CheckpointState.VERIFIED
    assert found["ckpt-200"].state is CheckpointState.INEXACT
    assert found["ckpt-200"].restorable
    assert "not the input position" in found["ckpt-200"].problem
    # The record alone is enough.
    next_tick(made.root)
    path.write_bytes(sound)
    assert {c.state for c in catalog.scan(NOW)} == {CheckpointState.VERIFIED}


def test_a_start_names_a_checkpoint_whose_record_was_removed_and_the_command_that_mends_it(made):
    made.ours(100)
    made.ours(200)
    record = made.run.record("ckpt-200")
    record.unlink()
    assert start(made)[0] == "ckpt-100"
    (sentence,) = damage_at_start(made.run)
    assert sentence.startswith("ckpt-200 was passed over: its record was removed.")
    subprocess.run(sentence.partition(", run: ")[2], shell=True, check=True)
    assert start(made)[0] == "ckpt-200"
    assert damage_at_start(made.run) == ()


def test_a_removed_record_without_an_intact_copy_has_no_command(made):
    made.ours(100)
    made.ours(200)
    damage(made.run.record("ckpt-200"))
    made.run.record("ckpt-200").unlink()
    (sentence,) = damage_at_start(made.run)
    assert sentence.endswith("its record was removed.")
