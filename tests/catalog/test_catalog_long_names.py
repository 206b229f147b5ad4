"""Checkpoints with the longest names that a file system has room for."""

from __future__ import annotations

import pytest
from checkpoint_directory import LONG_AGO, NOW

from tfckpt_trainer.catalog.directory.pins import pin
from tfckpt_trainer.catalog.directory.stored_results import store_result
from tfckpt_trainer.catalog.scan.states import CheckpointState
from tfckpt_trainer.catalog.verification.verify_checkpoint import verify_checkpoint
from tfckpt_trainer.errors import UsageError

LONGEST = 255 - len(".data-00000-of-00001")


@pytest.mark.parametrize(
    "name", ["n" * 201, "n" * LONGEST, "ü" * (LONGEST // 2)], ids=["201", "longest", "two-bytes"]
)
def test_a_long_name_is_verified_and_the_result_is_kept(made, name):
    made.tensorflow(name)
    made.touch(made.root, LONG_AGO)
    found = verify_checkpoint(made.run, name)
    assert found is not None
    assert found.ok
    store_result(made.run, found.record)
    assert made.scan(NOW)[name].state is CheckpointState.VERIFIED


def test_a_name_that_leaves_no_room_for_a_data_file_is_refused(made):
    with pytest.raises(UsageError, match="of at most 235 bytes"):
        made.run.record("n" * (LONGEST + 1))


def test_a_long_name_is_pinned(made):
    made.tensorflow("n" * LONGEST)
    pin(made.run, "n" * LONGEST)
    assert made.scan(NOW)["n" * LONGEST].pinned
