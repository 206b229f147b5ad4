"""What is odd in a directory: each remark where it applies, none where it does not."""

from __future__ import annotations

import os
import shutil

import pytest
from checkpoint_directory import LONG_AGO, NOW, CheckpointDirectory

from tfckpt_trainer.catalog.remarks import Remark
from tfckpt_trainer.catalog.scan import Catalog


def remarks(made: CheckpointDirectory) -> dict[str, Remark]:
    catalog = Catalog(made.run)
    catalog.scan(NOW)
    found = catalog.remarks(NOW)
    assert len({remark.kind for remark in found}) == len(found)
    return {remark.kind: remark for remark in found}


def test_nothing_is_odd_in_a_plain_directory(made):
    for step in (1, 2, 3):
        made.tensorflow(f"ckpt-{step}", shards=step, age=LONG_AGO - step)
    (made.root / "events.out.tfevents.1").write_bytes(b"x")
    (made.root / "notes.txt").write_bytes(b"x")
    (made.root / "eval").mkdir()
    assert remarks(made) == {}


def test_nothing_is_odd_in_ours_with_branches(made):
    made.ours(100)
    made.ours(200)
    made.ours(200, 1)
    assert remarks(made) == {}


def test_nothing_is_odd_where_nothing_is(made):
    assert remarks(made) == {}


class TestStateFile:
    @pytest.mark.parametrize(
        ("content", "kind", "effect"),
        [
            (b"", "state-file-empty", "ValueError"),
            (b"\n# words\n", "state-file-empty", "ValueError"),
            (b"\0\xff", "state-file-damaged", "starts anew"),
            (None, "state-file-missing", "starts anew"),
        ],
    )
    def test_it_says_nothing(self, made, content, kind, effect):
        made.tensorflow("ckpt-1")
        made.tensorflow("ckpt-2", age=1)
        made.run.state_file.unlink()
        if content is not None:
            made.run.state_file.write_bytes(content)
        found = remarks(made)
        assert list(found) == [kind]
        assert found[kind].severity == "warning"
        assert effect in found[kind].message
        assert 'model_checkpoint_path: "ckpt-2"' in found[kind].message

    def test_one_that_is_a_link_is_left_to_tensorflow(self, made, tmp_path):
        made.tensorflow("ckpt-1")
        os.rename(made.run.state_file, tmp_path / "elsewhere")
        made.run.state_file.symlink_to(tmp_path / "elsewhere")
        assert remarks(made) == {}

    def test_it_names_what_is_gone(self, made):
        made.tensorflow("ckpt-1")
        made.tensorflow("ckpt-2")
        for path in made.root.glob("ckpt-2.*"):
            path.unlink()
        found = remarks(made)
        assert list(found) == ["latest-missing"]
        assert "ckpt-2 as the newest, which is not there" in found["latest-missing"].message
        assert '"ckpt-1"' in found["latest-missing"].message

    def test_it_names_what_is_incomplete(self, made):
        made.tensorflow("ckpt-1", shards=2)
        (made.root / "ckpt-1.data-00001-of-00002").unlink()
        assert "which is incomplete" in remarks(made)["latest-missing"].message

    def test_it_lists_what_is_gone(self, made):
        for step in range(1, 7):
            made.tensorflow(f"ckpt-{step}")
        for step in range(1, 6):
            for path in made.root.glob(f"ckpt-{step}.*"):
                path.unlink()
        found = remarks(made)
        assert list(found) == ["listed-missing"]
        assert "ckpt-1, ckpt-2, ckpt-3 and 2 more" in found["listed-missing"].message
        assert found["listed-missing"].severity == "note"

    @pytest.mark.parametrize("still_there", [False, True])
    def test_it_names_the_place_that_the_directory_was_moved_from(
        self, made, tmp_path, still_there
    ):
        made.tensorflow("model-7")
        old = tmp_path / "old"
        made.run.state_file.write_text(
            f'model_checkpoint_path: "{old}/model-7"\nall_model_checkpoint_paths: "{old}/model-7"\n'
        )
        if still_there:
            shutil.copytree(made.root, old)
        found = remarks(made)
        assert list(found) == ["other-place"]
        message = found["other-place"].message
        assert str(old) in message
        assert "A model-7 is here" in message
        assert ("that one is restored" in message) is still_there

    def test_an_absolute_path_to_this_place_is_right(self, made, tmp_path):
        made.tensorflow("model-7")
        (tmp_path / "link").symlink_to(made.root)
        text = f'model_checkpoint_path: "{made.root}/model-7"\n'
        made.run.state_file.write_text(
            text + text.replace("model_", "all_model_", 1).replace("_path:", "_paths:")
        )
        assert remarks(made) == {}


def test_two_prefixes_share_one_state_file(made):
    made.tensorflow("ckpt-1")
    made.tensorflow("best-2")
    made.tensorflow("final")
    found = remarks(made)
    assert list(found) == ["two-prefixes"]
    assert "2 prefixes" in found["two-prefixes"].message


def test_two_of_one_step(made):
    for step in (1, 2):
        made.tensorflow(f"ckpt-{step}")
        made.tensorflow(f"best-{step}")
    found = remarks(made)
    assert set(found) == {"two-prefixes", "same-step"}
    assert "1 more step" in found["same-step"].message


def test_data_newer_than_its_index(made):
    made.tensorflow("ckpt-1", shards=2)
    made.touch(made.root / "ckpt-1.data-00001-of-00002", LONG_AGO - 10)
    found = remarks(made)
    assert list(found) == ["data-newer"]
    assert found["data-newer"].name == "ckpt-1"


def test_unlisted_ones(made):
    made.tensorflow("ckpt-1", listed=False)
    made.tensorflow("ckpt-2")
    found = remarks(made)
    assert list(found) == ["unlisted"]
    size = sum(path.stat().st_size for path in made.root.glob("ckpt-1.*"))
    assert (found["unlisted"].name, found["unlisted"].bytes) == ("ckpt-1", size)


class TestLeftovers:
    def test_data_of_another_count(self, made):
        made.tensorflow("ckpt-1")
        extra = made.root / "ckpt-1.data-00001-of-00002"
        extra.write_bytes(b"12345")
        made.touch(extra, LONG_AGO)
        found = remarks(made)
        assert list(found) == ["extra-data"]
        assert (found["extra-data"].name, found["extra-data"].bytes) == (extra.name, 5)

    def test_the_temporary_directory_beside_a_complete_one(self, made):
        made.tensorflow("ckpt-1", age=LONG_AGO)
        made.temporary("ckpt-1", age=LONG_AGO)
        found = remarks(made)
        assert list(found) == ["leftover-temp"]
        assert (found["leftover-temp"].name, found["leftover-temp"].bytes) == ("ckpt-1_temp", 4)

    def test_not_while_its_save_may_go_on(self, made):
        made.tensorflow("ckpt-1", age=1)
        made.temporary("ckpt-1", age=1)
        made.touch(made.root / "ckpt-1.index", 0)
        assert remarks(made) == {}

    def test_state_files_that_were_not_finished(self, made):
        made.tensorflow("ckpt-1")
        for name, age in [("checkpoint.tmp0123abcd", LONG_AGO), ("checkpoint.tmpff", 5)]:
            (made.root / name).write_bytes(b"x" * 7)
            made.touch(made.root / name, age)
        found = remarks(made)
        assert list(found) == ["state-file-temp"]
        assert found["state-file-temp"].name == "checkpoint.tmp0123abcd"
        assert found["state-file-temp"].bytes == 7

    def test_what_is_named_like_a_part_and_is_of_none(self, made):
        made.tensorflow("ckpt-1")
        for name in ("lone-3.meta", ".index", "x.data-1-of-2", "part.tempstate123"):
            (made.root / name).write_bytes(b"x" * 3)
            made.touch(made.root / name, LONG_AGO)
        found = remarks(made)
        assert list(found) == ["stray"]
        assert found["stray"].bytes == 12
        assert "and 1 more" in found["stray"].message


def test_warnings_come_first(made):
    made.tensorflow("ckpt-1", listed=False)
    made.tensorflow("ckpt-2")
    for path in made.root.glob("ckpt-2.*"):
        path.unlink()
    assert list(remarks(made)) == ["latest-missing", "unlisted"]
