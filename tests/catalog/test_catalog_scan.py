"""The catalog's order, where a start goes on, and that a second look reads only what changed."""

from __future__ import annotations

import os
import shutil

import pytest
from checkpoint_directory import (
    NOW,
    CheckpointDirectory,
    latest_name,
    listed_names,
    listed_stamps,
)

from tfckpt_trainer.catalog.commit.saves import point_state_file_at
from tfckpt_trainer.catalog.directory.checkpoints import CheckpointState
from tfckpt_trainer.catalog.directory.history import resume_point
from tfckpt_trainer.catalog.directory.pins import pin, pinned_names, unpin
from tfckpt_trainer.catalog.scan import catalog as scan_module
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.catalog.scan.lineage import lineage_at


def heads(made: CheckpointDirectory) -> list[str]:
    return [checkpoint.name for checkpoint in made.scan().values() if checkpoint.is_head]


class TestOrder:
    def test_by_the_order_of_saves_and_not_by_step_or_time(self, made):
        made.ours(500, age=100)
        made.ours(300, 1, age=300)  # the clock was set back
        made.ours(400, 1, age=200)
        assert list(made.scan()) == ["ckpt-b1-400", "ckpt-b1-300", "ckpt-500"]

    def test_by_the_order_of_saves_where_times_are_equal_and_nothing_lists_them(self, made):
        made.ours(500)
        made.ours(300, 1)
        made.ours(400, 1)
        made.run.state_file.unlink()
        assert list(made.scan()) == ["ckpt-b1-400", "ckpt-b1-300", "ckpt-500"]

    def test_by_the_state_file_where_there_are_no_records(self, made):
        for name, age in [("ckpt-5", 30), ("ckpt-6", 20), ("ckpt-1", 100)]:
            made.tensorflow(name, age=age)
        assert list(made.scan()) == ["ckpt-1", "ckpt-6", "ckpt-5"]

    def test_by_step_where_nothing_lists_them(self, made):
        """A plain `cp` scrambles times, and an archive rounds them."""
        for name, age in [("ckpt-100", 300), ("ckpt-75", 100), ("ckpt-25", 200), ("ckpt-500", 300)]:
            made.tensorflow(name, age=age, listed=False)
        assert list(made.scan()) == ["ckpt-500", "ckpt-100", "ckpt-75", "ckpt-25"]
        assert heads(made) == ["ckpt-500"]

    def test_by_time_where_the_state_file_contradicts_the_steps(self, made):
        """Training began anew, and `tf.train.Checkpoint.save` lists the newest one only."""
        for name, age in [("ckpt-4", 300), ("ckpt-5", 250)]:
            made.tensorflow(name, age=age, listed=False)
        made.tensorflow("ckpt-1", age=200)
        assert list(made.scan()) == ["ckpt-1", "ckpt-5", "ckpt-4"]

    def test_by_step_where_a_restore_chose_an_earlier_one(self, made):
        for name, age in [("ckpt-1", 300), ("ckpt-2", 100), ("ckpt-5", 200)]:
            made.tensorflow(name, age=age, listed=False)
        made.run.state_file.write_text('model_checkpoint_path: "ckpt-1"\n')
        made.restored("ckpt-1", 1, 1)
        assert list(made.scan()) == ["ckpt-5", "ckpt-2", "ckpt-1"]
        assert heads(made) == ["ckpt-1"]

    def test_unlisted_ones_stand_between_listed_ones_by_step(self, made):
        made.tensorflow("ckpt-75", age=10, listed=False)
        made.tensorflow("ckpt-150", age=500, listed=False)
        made.tensorflow("ckpt-100", age=50)
        made.tensorflow("ckpt-200", age=40)
        made.tensorflow("ckpt-50", age=50, listed=False)
        assert list(made.scan()) == ["ckpt-200", "ckpt-150", "ckpt-100", "ckpt-75", "ckpt-50"]

    def test_prefixes_are_merged_by_time(self, made):
        for name, age in [("a-1", 400), ("b-9", 300), ("a-2", 200), ("b-10", 100), ("w", 50)]:
            made.tensorflow(name, age=age, listed=False)
        assert list(made.scan()) == ["w", "b-10", "a-2", "b-9", "a-1"]

    def test_an_unlisted_one_finds_its_place_by_time(self, made):
        made.tensorflow("ckpt-1", age=400)
        made.tensorflow("kept-2", age=300, listed=False)
        made.tensorflow("ckpt-3", age=200)
        made.tensorflow("ckpt-4", age=100, listed=False)
        assert list(made.scan()) == ["ckpt-4", "ckpt-3", "kept-2", "ckpt-1"]

    def test_what_is_being_written_comes_first(self, made):
        made.ours(100, age=-30)
        made.temporary("ckpt-101", age=5)
        assert list(made.scan()) == ["ckpt-101", "ckpt-100"]

    def test_one_step_on_two_branches(self, made):
        made.ours(200)
        made.ours(200, 1)
        found = made.scan()
        assert [(c.step, c.branch) for c in found.values()] == [(200, 1), (200, 0)]


class TestHead:
    def test_a_checkpoint_chosen_for_the_next_start_keeps_its_place(self, made):
        for step in (100, 200, 300, 400):
            made.tensorflow(f"ckpt-{step}")
        before, listed = listed_stamps(made.root), listed_names(made.root)
        point_state_file_at(made.run, "ckpt-200")
        assert listed_names(made.root) == listed
        made.restored("ckpt-200", 200, 1)
        found = tuple(made.scan().values())
        assert [c.name for c in found] == ["ckpt-400", "ckpt-300", "ckpt-200", "ckpt-100"]
        assert heads(made) == ["ckpt-200"]
        assert lineage_at(found, None).names == ("ckpt-200", "ckpt-100")
        assert (latest_name(made.root), listed_stamps(made.root)) == ("ckpt-200", before)

    def test_the_last_saved(self, made):
        made.ours(500)
        made.ours(300, 1)
        assert heads(made) == ["ckpt-b1-300"]
        resumed = resume_point(made.run)
        assert (resumed.checkpoint, resumed.branch, resumed.sequence) == ("ckpt-b1-300", 1, 2)

    def test_the_last_restored(self, made):
        made.ours(100)
        made.ours(200)
        made.restored("ckpt-100", 100, 1)
        assert heads(made) == ["ckpt-100"]
        resumed = resume_point(made.run)
        assert (resumed.checkpoint, resumed.branch, resumed.sequence) == ("ckpt-100", 1, 3)

    def test_saved_after_the_last_restore(self, made):
        made.ours(200)
        made.restored("ckpt-200", 200, 0)
        made.ours(201)
        assert heads(made) == ["ckpt-201"]

    def test_a_save_that_was_cut_off_is_not_gone_on_from(self, made):
        made.ours(100)
        made.ours(200)
        (made.root / "ckpt-200.index").unlink()
        assert heads(made) == ["ckpt-100"]
        resumed = resume_point(made.run)
        # Its place in the order is taken all the same.
        assert (resumed.checkpoint, resumed.sequence) == ("ckpt-100", 2)

    def test_a_damaged_one_is_passed_over(self, made):
        made.ours(100)
        made.ours(200)
        os.truncate(made.root / "ckpt-200.data-00000-of-00001", 3)
        assert heads(made) == ["ckpt-100"]

    def test_a_restored_one_that_was_damaged_since(self, made):
        made.ours(100)
        made.ours(200)
        made.restored("ckpt-100", 100, 1)
        os.truncate(made.root / "ckpt-100.data-00000-of-00001", 3)
        assert heads(made) == ["ckpt-200"]

    def test_the_state_file_decides_in_a_foreign_directory(self, made):
        made.tensorflow("ckpt-5", age=10)
        made.tensorflow("ckpt-1", age=50)
        made.tensorflow("other-9", age=1, listed=False)
        assert heads(made) == ["ckpt-1"]
        assert resume_point(made.run).checkpoint == "ckpt-1"

    @pytest.mark.parametrize(
        "text",
        ['model_checkpoint_path: "ckpt-1"  # the best', "model_checkpoint_path\n: 'ckpt' \"-1\";"],
    )
    def test_a_state_file_that_a_person_wrote(self, made, text):
        made.tensorflow("ckpt-1", age=50)
        made.tensorflow("ckpt-2", age=10)
        made.run.state_file.write_text(text)
        assert heads(made) == ["ckpt-1"]

    def test_a_state_file_that_names_nothing_there(self, made):
        made.tensorflow("ckpt-1")
        made.tensorflow("ckpt-2")
        for path in made.root.glob("ckpt-2.*"):
            path.unlink()
        assert heads(made) == ["ckpt-1"]

    def test_a_damaged_state_file_and_note(self, made):
        made.ours(100)
        made.run.state_file.write_bytes(b"\0\xff")
        made.run.head_file.write_bytes(b"{")
        assert heads(made) == ["ckpt-100"]
        assert not made.scan()["ckpt-100"].listed

    def test_nothing_at_all(self, made):
        assert made.scan() == {}
        assert resume_point(made.run) is None


class TestPins:
    def test_a_pin_stays_until_it_is_taken_away(self, made):
        made.ours(100)
        pin(made.run, "ckpt-100")
        pin(made.run, "ckpt-100")
        assert made.scan()["ckpt-100"].pinned
        unpin(made.run, "ckpt-100")
        unpin(made.run, "ckpt-100")
        assert not made.scan()["ckpt-100"].pinned

    def test_nothing_is_pinned_in_a_foreign_directory(self, made):
        assert pinned_names(made.run) == frozenset()


class TestSecondLook:
    def test_what_did_not_change_is_not_read_again(self, made):
        made.tensorflow("ckpt-1")
        catalog = Catalog(made.run)
        assert catalog.scan(NOW)[0].state is CheckpointState.COMPLETE
        index = made.root / "ckpt-1.index"
        before = index.stat()
        with index.open("r+b") as file:
            file.write(b"\xff" * 20)
        os.utime(index, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert catalog.scan(NOW)[0].state is CheckpointState.COMPLETE
        os.utime(index, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
        assert catalog.scan(NOW)[0].state is CheckpointState.CORRUPT

    def test_it_sees_everything_that_changed(self, made):
        made.ours(100)
        catalog = Catalog(made.run)
        first = catalog.scan(NOW)
        assert catalog.scan(NOW) == first
        made.ours(200)
        made.temporary("ckpt-300", age=1)
        pin(made.run, "ckpt-100")
        made.run.worker_state_directory("ckpt-300").mkdir()
        found = {checkpoint.name: checkpoint for checkpoint in catalog.scan(NOW)}
        assert [(c.state.value, c.pinned, c.is_head, c.listed) for c in found.values()] == [
            ("writing", False, False, False),
            ("verified", False, True, True),
            ("verified", True, False, True),
        ]
        (made.root / "ckpt-200.data-00000-of-00001").unlink()
        made.run.record("ckpt-100").unlink()
        shutil.rmtree(made.root / "ckpt-300_temp")
        unpin(made.run, "ckpt-100")
        found = {checkpoint.name: checkpoint for checkpoint in catalog.scan(NOW)}
        assert {n: (c.state.value, c.pinned, c.is_head) for n, c in found.items()} == {
            "ckpt-200": ("incomplete", False, False),
            "ckpt-100": ("complete", False, True),
        }
        for path in made.root.glob("ckpt-*"):
            path.unlink()
        assert catalog.scan(NOW) == ()

    def test_equals_a_first_look(self, made):
        catalog = Catalog(made.run)
        for step in range(100, 1000, 100):
            made.ours(step, age=1000 - step)
            if step % 200 == 0:
                made.restored(f"ckpt-{step}", step, 0)
            if step % 300 == 0:
                (made.root / f"ckpt-{step}.index").unlink()
            assert catalog.scan(NOW) == Catalog(made.run).scan(NOW)

    def test_large_indexes_are_read_little_by_little_the_newest_first(self, made, monkeypatch):
        monkeypatch.setattr(scan_module, "INDEX_BYTES_PER_SCAN", 1)
        for step in (1, 2, 3):
            made.tensorflow(f"ckpt-{step}", age=1000 - step)
            os.truncate(made.root / f"ckpt-{step}.data-00000-of-00001", 3)
            made.touch(made.root / f"ckpt-{step}.data-00000-of-00001", 1000)
        made.tensorflow("ckpt-4", age=100)
        catalog = Catalog(made.run)
        seen = []
        for _ in range(5):
            seen.append([c.name for c in catalog.scan(NOW) if c.restorable])
        assert seen[0] == ["ckpt-4", "ckpt-3", "ckpt-2", "ckpt-1"]
        assert seen[-1] == ["ckpt-4"]


def test_where_the_newest_is_damaged_a_start_goes_on_from_what_was_restored_last(made):
    """Not from what had been given up by that restore, though it was saved later."""
    made.ours(100)
    made.ours(200)
    made.restored("ckpt-100", 100, 1)
    damaged = made.ours(150, 1)
    assert heads(made) == [damaged]
    (made.root / f"{damaged}.data-00000-of-00001").unlink()
    assert heads(made) == ["ckpt-100"]
