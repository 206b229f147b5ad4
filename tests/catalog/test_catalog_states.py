"""The state of a checkpoint follows the rules of `states.py`, one test a rule and more."""

from __future__ import annotations

import os
import shutil

import pytest
from checkpoint_directory import LONG_AGO, NOW, CheckpointDirectory

from beating import beating, end
from tfckpt_trainer.catalog.directory.checkpoints import CheckpointState
from tfckpt_trainer.catalog.retention.plan import plan
from tfckpt_trainer.catalog.retention.policy import Policy
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.rundir.records.trash import TrashedCheckpoint, TrashManifest
from tfckpt_trainer.rundir.storage.documents import store


def flip_bit(path, position):
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_what_tensorflow_wrote_is_complete(made: CheckpointDirectory):
    made.tensorflow("ckpt-1", shards=3)
    found = made.scan()["ckpt-1"]
    assert found.state is CheckpointState.COMPLETE
    assert (found.step, found.branch, found.shards, found.problem) == (1, 0, 3, "")
    assert found.size == sum(p.stat().st_size for p in made.root.glob("ckpt-1.*"))


def test_a_fresh_one_is_complete_at_once(made):
    made.tensorflow("ckpt-1", age=0)
    assert made.scan()["ckpt-1"].state is CheckpointState.COMPLETE


def test_it_is_complete_while_tensorflow_clears_its_parts_away(made):
    made.tensorflow("ckpt-1", age=5)
    made.temporary("ckpt-1", age=1, part_age=6)  # an index of a part; removing others shows
    assert made.scan()["ckpt-1"].state is CheckpointState.COMPLETE


def test_a_copy_in_any_order_beside_a_left_temporary_directory_is_complete(made):
    made.tensorflow("ckpt-1", age=LONG_AGO)
    made.touch(made.root / "ckpt-1.data-00000-of-00001", LONG_AGO - 1)
    made.temporary("ckpt-1", age=LONG_AGO - 1, part_age=LONG_AGO + 1)
    assert made.scan()["ckpt-1"].state is CheckpointState.COMPLETE


def test_what_our_library_recorded_is_verified(made):
    made.ours(100, workers=2, metrics={"loss": 0.5})
    found = made.scan()["ckpt-100"]
    assert found.state is CheckpointState.VERIFIED
    assert found.restorable
    assert (found.sequence, found.trigger, found.metrics) == (1, "every 100 steps", {"loss": 0.5})


def test_a_file_changed_after_the_record_is_not_verified(made):
    made.ours(100)
    made.touch(made.root / "ckpt-100.data-00000-of-00001", age=0)
    assert made.scan()["ckpt-100"].state is CheckpointState.COMPLETE


def test_a_changed_state_of_one_worker_is_not_verified(made):
    made.ours(1, workers=2)
    own = made.run.worker_state_directory("ckpt-1") / "worker-1.index"
    flip_bit(own, 3)
    made.touch(own, LONG_AGO - 60)
    assert made.scan()["ckpt-1"].state is CheckpointState.COMPLETE


def test_a_file_longer_than_recorded_is_not_verified(made):
    made.ours(100)
    shard = made.root / "ckpt-100.data-00000-of-00001"
    shard.write_bytes(shard.read_bytes() + b"more")
    made.touch(shard, LONG_AGO)
    assert made.scan()["ckpt-100"].state is CheckpointState.COMPLETE


def test_a_lost_state_of_one_worker_makes_it_incomplete(made):
    made.ours(100, workers=2)
    (made.run.worker_state_directory("ckpt-100") / "worker-1.index").unlink()
    found = made.scan()["ckpt-100"]
    assert found.state is CheckpointState.INCOMPLETE
    assert "worker-1.index is missing" in found.problem


def test_a_cut_state_of_one_worker_makes_it_incomplete(made):
    made.ours(100, workers=2)
    own = made.run.worker_state_directory("ckpt-100") / "worker-0.data-00000-of-00001"
    os.truncate(own, 3)
    found = made.scan()["ckpt-100"]
    assert found.state is CheckpointState.INCOMPLETE
    assert "worker-0.data-00000-of-00001 has 3 bytes of 8." in found.problem


class TestWriting:
    def test_tensorflow_collects_parts(self, made):
        made.temporary("ckpt-1", age=5)
        found = made.scan()["ckpt-1"]
        assert found.state is CheckpointState.WRITING
        assert not found.restorable

    def test_a_part_that_grows_counts_though_the_directory_is_old(self, made):
        made.temporary("ckpt-1", age=LONG_AGO, part_age=1)
        assert made.scan()["ckpt-1"].state is CheckpointState.WRITING

    def test_data_is_in_place_and_the_index_is_not(self, made):
        made.tensorflow("ckpt-1", age=1)
        (made.root / "ckpt-1.index").unlink()
        made.temporary("ckpt-1", age=1)
        assert made.scan()["ckpt-1"].state is CheckpointState.WRITING

    def test_data_arrives_alone(self, made):
        made.tensorflow("ckpt-1", age=1, listed=False)
        (made.root / "ckpt-1.index").unlink()
        assert made.scan()["ckpt-1"].state is CheckpointState.WRITING

    def test_the_index_is_half_written(self, made):
        made.tensorflow("ckpt-1", age=1)
        index = made.root / "ckpt-1.index"
        index.write_bytes(index.read_bytes()[:40])
        made.touch(index, 1)
        made.temporary("ckpt-1", age=2)
        assert made.scan()["ckpt-1"].state is CheckpointState.WRITING

    def test_the_same_name_is_saved_again(self, made):
        made.tensorflow("ckpt-1", age=30)
        made.temporary("ckpt-1", age=2)
        assert made.scan()["ckpt-1"].state is CheckpointState.WRITING

    def test_our_library_writes_aside(self, made):
        made.run.create()
        made.tensorflow("ckpt-100", age=1, into=made.run.saving_directory, listed=False)
        found = made.scan()["ckpt-100"]
        assert found.state is CheckpointState.WRITING
        assert (found.shards, found.size > 0) == (1, True)

    def test_our_library_moves_into_view(self, made):
        made.ours(100, age=1)
        made.run.create()
        os.rename(made.root / "ckpt-100.index", made.run.saving_directory / "ckpt-100.index")
        assert made.scan()["ckpt-100"].state is CheckpointState.WRITING

    @pytest.mark.parametrize(
        ("listed", "state"),
        [(False, CheckpointState.WRITING), (True, CheckpointState.INCOMPLETE)],
    )
    def test_fresh_data_alone_is_lost_where_the_save_was_over(self, made, listed, state):
        made.tensorflow("ckpt-1", age=3, listed=listed)
        made.tensorflow("ckpt-2", age=1)
        (made.root / "ckpt-1.index").unlink()
        assert made.scan()["ckpt-1"].state is state
        newest = next(iter(made.scan()))
        assert newest == ("ckpt-2" if listed else "ckpt-1")

    def test_a_clock_that_was_set_back_does_not_write_for_ever(self, made):
        made.temporary("ckpt-1", age=-10 * LONG_AGO)
        assert made.scan()["ckpt-1"].state is CheckpointState.ORPHANED

    def test_another_workers_directory_is_no_checkpoint(self, made):
        made.run.create()
        (made.run.saving_directory / "worker-1").mkdir()
        assert made.scan() == {}


class TestOrphaned:
    def test_parts_that_nobody_writes_any_more(self, made):
        made.temporary("ckpt-1", age=LONG_AGO)
        found = made.scan()["ckpt-1"]
        assert found.state is CheckpointState.ORPHANED
        assert found.problem.endswith("look at them before you prune it.")
        assert found.size == len("half")
        made.tensorflow("ckpt-2")
        made.index_of_part(made.root / "ckpt-1_temp", "ckpt-2", LONG_AGO)
        assert made.scan()["ckpt-1"].problem == "Its save was cut off. Prune it to free its space."

    def test_killed_before_the_index(self, made):
        made.tensorflow("ckpt-1")
        (made.root / "ckpt-1.index").unlink()
        made.temporary("ckpt-1", age=LONG_AGO)
        assert made.scan()["ckpt-1"].state is CheckpointState.ORPHANED

    def test_ours_killed_before_its_commit(self, made):
        made.ours(100)
        made.run.create()
        os.rename(made.root / "ckpt-100.index", made.run.saving_directory / "ckpt-100.index")
        found = made.scan()["ckpt-100"]
        assert found.state is CheckpointState.ORPHANED
        assert found.problem == "Its save was cut off. The next start completes it or removes it."

    def test_ours_whose_index_was_lost_is_incomplete(self, made):
        made.ours(100, age=5)
        (made.root / "ckpt-100.index").unlink()
        found = made.scan()["ckpt-100"]
        assert found.state is CheckpointState.INCOMPLETE
        assert found.problem == "ckpt-100.index is missing."

    def test_ours_is_orphaned_as_soon_as_its_trainer_was_killed(self, made):
        catalog = Catalog(made.run)
        with beating(made.run) as trainer:
            made.tensorflow("ckpt-100", age=1, into=made.run.saving_directory, listed=False)
            made.temporary("ckpt-200", age=1)
            assert {c.state for c in catalog.scan(NOW)} == {CheckpointState.WRITING}
            end(trainer)
            found = {c.name: c.state for c in catalog.scan(NOW)}
        # Another trainer may write what is not aside.
        assert found["ckpt-200"] is CheckpointState.WRITING
        assert found["ckpt-100"] is CheckpointState.ORPHANED

    @pytest.mark.e2e
    def test_of_several_trainers_all_have_to_be_gone(self, made):
        made.run.create()
        made.tensorflow("ckpt-100", age=1, into=made.run.saving_directory, listed=False)
        with beating(made.run, 0) as first, beating(made.run, 1):
            end(first)
            assert made.scan()["ckpt-100"].state is CheckpointState.WRITING

    def test_a_trainer_that_cannot_be_seen_may_be_writing(self, made):
        made.run.create()
        made.tensorflow("ckpt-100", age=1, into=made.run.saving_directory, listed=False)
        with beating(made.run, hidden=True) as trainer:
            end(trainer)
            assert made.scan()["ckpt-100"].state is CheckpointState.WRITING

    def test_it_was_writing_until_it_went_quiet(self, made):
        made.temporary("ckpt-1", age=0)
        catalog = Catalog(made.run)
        assert catalog.scan(NOW + 59)[0].state is CheckpointState.WRITING
        assert catalog.scan(NOW + 61)[0].state is CheckpointState.ORPHANED


class TestIncomplete:
    def test_no_index(self, made):
        made.tensorflow("ckpt-1")
        (made.root / "ckpt-1.index").unlink()
        found = made.scan()["ckpt-1"]
        assert found.state is CheckpointState.INCOMPLETE
        assert found.problem == "ckpt-1.index is missing."

    def test_an_empty_index(self, made):
        made.tensorflow("ckpt-1")
        (made.root / "ckpt-1.index").write_bytes(b"")
        assert made.scan()["ckpt-1"].state is CheckpointState.INCOMPLETE

    def test_a_data_file_is_missing(self, made):
        made.tensorflow("ckpt-1", shards=3)
        (made.root / "ckpt-1.data-00001-of-00003").unlink()
        found = made.scan()["ckpt-1"]
        assert found.state is CheckpointState.INCOMPLETE
        assert found.problem == "ckpt-1.data-00001-of-00003 is missing."

    def test_data_files_of_another_count(self, made):
        made.tensorflow("ckpt-1", shards=2)
        os.rename(
            made.root / "ckpt-1.data-00001-of-00002", made.root / "ckpt-1.data-00001-of-00003"
        )
        assert made.scan()["ckpt-1"].state is CheckpointState.INCOMPLETE

    def test_a_data_file_is_too_short(self, made):
        made.tensorflow("ckpt-1", shards=2)
        os.truncate(made.root / "ckpt-1.data-00001-of-00002", 7)
        found = made.scan()["ckpt-1"]
        assert found.state is CheckpointState.INCOMPLETE
        assert found.problem == "ckpt-1.data-00001-of-00002 has 7 bytes of 8."

    def test_one_of_ours_is_too_short(self, made):
        made.ours(100)
        os.truncate(made.root / "ckpt-100.data-00000-of-00001", 7)
        assert made.scan()["ckpt-100"].state is CheckpointState.INCOMPLETE


class TestCorrupt:
    @pytest.mark.parametrize("position", [3, -1])
    def test_a_flipped_bit_in_the_index(self, made, position):
        made.tensorflow("ckpt-1")
        flip_bit(made.root / "ckpt-1.index", position)
        found = made.scan()["ckpt-1"]
        assert found.state is CheckpointState.CORRUPT
        assert "ckpt-1.index" in found.problem

    def test_a_flipped_bit_that_tensorflow_never_reads(self, made):
        made.tensorflow("ckpt-1")
        flip_bit(made.root / "ckpt-1.index", -30)  # padding of the footer
        assert made.scan()["ckpt-1"].state is CheckpointState.COMPLETE

    def test_a_flipped_bit_in_the_index_of_ours(self, made):
        made.ours(100)
        index = made.root / "ckpt-100.index"
        flip_bit(index, 3)
        made.touch(index, LONG_AGO)
        assert made.scan()["ckpt-100"].state is CheckpointState.CORRUPT

    def test_an_index_cut_off(self, made):
        made.tensorflow("ckpt-1")
        os.truncate(made.root / "ckpt-1.index", 60)
        assert made.scan()["ckpt-1"].state is CheckpointState.CORRUPT

    def test_garbage(self, made):
        made.tensorflow("ckpt-1")
        (made.root / "ckpt-1.index").write_bytes(b"\xff" * 4096)
        assert made.scan()["ckpt-1"].state is CheckpointState.CORRUPT

    def test_a_save_over_it_was_killed_between_data_and_index(self, made):
        made.tensorflow("ckpt-1", age=2 * LONG_AGO)
        made.touch(made.root / "ckpt-1.data-00000-of-00001", LONG_AGO)
        made.temporary("ckpt-1", age=LONG_AGO)
        found = made.scan()["ckpt-1"]
        assert found.state is CheckpointState.CORRUPT
        assert "index and data do not match" in found.problem

    def test_a_save_over_it_was_killed_before_its_data(self, made):
        made.tensorflow("ckpt-1", age=2 * LONG_AGO)
        made.temporary("ckpt-1", age=LONG_AGO)
        assert made.scan()["ckpt-1"].state is CheckpointState.COMPLETE


class TestTrashed:
    def cut_off(self, made, name: str) -> None:
        made.run.create()
        manifest = TrashManifest(
            id="20260101T000000-abcdef",
            at=NOW,
            by="somebody",
            checkpoints=[
                TrashedCheckpoint(
                    name=name,
                    step=1,
                    size=1,
                    files=[f"{name}.index"],
                    identities=[(1, 1, 1)],
                    checksums=[None],
                )
            ],
            sequence=1,
        )
        (made.run.trash / manifest.id).mkdir()
        store(made.run.trash / manifest.id / "manifest.json", manifest)

    def test_a_prune_was_cut_off(self, made):
        made.tensorflow("ckpt-1")
        self.cut_off(made, "ckpt-1")
        (made.root / "ckpt-1.index").unlink()
        found = made.scan()["ckpt-1"]
        assert found.state is CheckpointState.TRASHED
        assert not found.restorable

    def test_a_prune_was_cut_off_before_it_moved_anything(self, made):
        made.tensorflow("ckpt-1")
        self.cut_off(made, "ckpt-1")
        assert made.scan()["ckpt-1"].state is CheckpointState.COMPLETE


class TestStrangers:
    def test_no_link_makes_a_save(self, made, tmp_path):
        other = CheckpointDirectory(tmp_path / "other")
        other.temporary("ckpt-2", age=0)
        (made.root / "ckpt-2_temp").symlink_to(other.root / "ckpt-2_temp")
        assert made.scan() == {}

    def test_files_of_none(self, made):
        for name in (".index", "_temp", "notes.meta", "ckpt-1.data-1-of-2", "checkpoint.tmp0a"):
            (made.root / name).write_bytes(b"x")
        assert made.scan() == {}

    def test_a_graph_of_tensorflow_1_belongs_to_it(self, made):
        made.tensorflow("model-7")
        (made.root / "model-7.meta").write_bytes(b"\n\x05graph")
        before = sum(path.stat().st_size for path in made.root.glob("model-7.*"))
        assert made.scan()["model-7"].size == before

    @pytest.mark.parametrize("name", ["best", "a\nb-3", "..ckpt-4", "\x1b[31m-5", "x" * 230])
    def test_any_name(self, made, name):
        made.tensorflow(name, listed=False)
        assert made.scan()[name].state is CheckpointState.COMPLETE

    def test_a_damaged_record_and_one_of_another_name_say_nothing(self, made):
        made.ours(100)
        made.run.record("ckpt-100").write_text('{"name": 7}')
        made.tensorflow("ckpt-200")
        made.record("ckpt-100", 100)
        shutil.copy(made.run.record("ckpt-100"), made.run.record("ckpt-200"))
        found = made.scan()
        assert found["ckpt-200"].record is None
        made.run.record("ckpt-100").write_text('{"name": 7}')
        assert made.scan()["ckpt-100"].state is CheckpointState.COMPLETE

    def test_a_directory_that_is_not_there(self, made):
        shutil.rmtree(made.root)
        with pytest.raises(FileNotFoundError):
            made.scan()


def test_an_index_of_another_save_counts_by_what_it_says(made):
    made.ours(100)
    made.tensorflow("other-1", shards=2)
    shutil.copy2(made.root / "other-1.index", made.root / "ckpt-100.index")
    found = made.scan()["ckpt-100"]
    assert (found.state, found.shards) == (CheckpointState.INCOMPLETE, 2)
    assert found.problem == "ckpt-100.data-00000-of-00002 is missing."


def test_a_damaged_index_beside_its_record_is_corrupt(made):
    made.ours(100)
    flip_bit(made.root / "ckpt-100.index", 10)
    assert made.scan()["ckpt-100"].state is CheckpointState.CORRUPT


@pytest.mark.parametrize(
    ("cut", "state"), [(0, CheckpointState.COMPLETE), (1, CheckpointState.INCOMPLETE)]
)
def test_a_recorded_one_with_new_times_is_as_long_as_its_index_says(made, cut, state):
    made.ours(100, shards=2)
    data = made.root / "ckpt-100.data-00001-of-00002"
    os.truncate(data, data.stat().st_size - cut)
    made.touch(data, age=0)
    found = made.scan()["ckpt-100"]
    assert (found.state, found.shards) == (state, 2)


def test_what_a_saver_of_one_checkpoint_left_no_rule_deletes(made: CheckpointDirectory):
    """It lists as many as `tf.train.Checkpoint.save` does, whose others are the user's."""
    for step in range(1, 5):
        made.tensorflow(f"model-{step}", age=2 * LONG_AGO - step, listed=False)
    made.run.state_file.write_text('model_checkpoint_path: "model-4"\n')
    for graphs in (False, True):
        going = [c.name for c in plan(tuple(made.scan().values()), Policy(keep_last=1)).deleted]
        assert going == ([] if graphs else ["model-3", "model-2", "model-1"])
        for step in range(1, 5):
            (made.root / f"model-{step}.meta").write_bytes(b"graph")
