"""What is a checkpoint follows from content and records, never from names alone."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress

import pytest
from checkpoint_directory import LONG_AGO, NOW, CheckpointDirectory, contents
from hypothesis import given
from hypothesis import strategies as st

from bundle_writing import array, write
from tfckpt_trainer.bundle.links import NotFetchedError
from tfckpt_trainer.bundle.recognition import IndexKind, recognize_index
from tfckpt_trainer.catalog.directory.checkpoints import CheckpointState
from tfckpt_trainer.catalog.directory.save_directories import delete_checkpoint_of_check
from tfckpt_trainer.catalog.directory.stored_results import ResultStore
from tfckpt_trainer.catalog.retention.deleting import delete_for_good
from tfckpt_trainer.catalog.retention.plan import plan
from tfckpt_trainer.catalog.retention.policy import Policy
from tfckpt_trainer.catalog.retention.prune import move_to_trash
from tfckpt_trainer.catalog.scan.catalog import Catalog, scan_checkpoints
from tfckpt_trainer.catalog.scan.foreign_writers import foreign_writers
from tfckpt_trainer.catalog.verification import verify_checkpoint as verify_checkpoint_module
from tfckpt_trainer.catalog.verification.verify_checkpoint import verify_checkpoint
from tfckpt_trainer.errors import RefusedError, UsageError
from weekly import tries

APPLE_DOUBLE = bytes.fromhex("0005160700020000") + b"Mac OS X        "
LEVEL_DB = b"\0\1\1ab" + b"\0" * 60 + bytes.fromhex("57fb808b247547db")
"""A table of another program, which ends with the same magic number."""

OTHERS = {
    "notes_temp/diary.txt": b"mine",
    "photos_temp/part-00000-of-00001.jpg": b"mine",
    "mixed_temp/part-00000-of-00001.index": b"",
    "mixed_temp/diary.txt": b"mine",
    "train.data-00000-of-00001": b"rows",
    "val.data-00000-of-00002": b"rows",
    "val.data-00001-of-00002": b"rows",
    "faiss.index": b"IxF2" + b"\x01" * 500,
    "documents.index": b"",
    "zeros.index": b"\0" * 4096,
    "table.index": LEVEL_DB,
    "._ckpt-2.index": APPLE_DOUBLE,
    "._ckpt-2.data-00000-of-00001": APPLE_DOUBLE,
}


def add_others(made: CheckpointDirectory, names: list[str] | None = None) -> None:
    """Adds files of other programs, which changed long ago."""
    for name in OTHERS if names is None else names:
        path = made.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(OTHERS[name])
        made.touch(path, LONG_AGO)
        if path.parent != made.root:
            made.touch(path.parent, LONG_AGO)


def others_of(made: CheckpointDirectory) -> dict[str, bytes]:
    return {name: found for name, found in contents(made.root).items() if name in OTHERS}


def deleted_by_rules(made: CheckpointDirectory) -> list[str]:
    checkpoints = tuple(made.scan().values())
    return [c.name for c in plan(checkpoints, Policy(keep_last=1)).deleted]


def damage_index(made: CheckpointDirectory, name: str, content: bytes) -> None:
    index = made.root / f"{name}.index"
    index.write_bytes(content)
    made.touch(index, LONG_AGO)


@pytest.mark.parametrize("quick", [False, True])
def test_files_of_others_are_not_listed_and_told_in_one_line(made, quick):
    made.tensorflow("ckpt-1")
    add_others(made)
    catalog = Catalog(made.run)
    found = catalog.scan(NOW, quick=quick)
    assert [checkpoint.name for checkpoint in found] == ["ckpt-1"]
    (told,) = [d for d in catalog.diagnostics(NOW) if d.kind == "stray"]
    assert "are not checkpoints" in told.message
    assert "\n" not in told.message
    names = {name.partition("/")[0] for name in OTHERS}
    assert f"and {len(names) - 3} more" in told.message


def test_the_indexes_that_verify_reads_itself_are_none_of_others(made):
    made.tensorflow("ckpt-1")
    add_others(made)
    found = Catalog(made.run).scan(NOW, opens_usual=False)
    assert [checkpoint.name for checkpoint in found] == ["ckpt-1"]


def test_no_command_moves_or_deletes_them(made):
    for step in range(1, 6):
        made.tensorflow(f"ckpt-{step}", listed=False)
    add_others(made)
    names = deleted_by_rules(made)
    assert names == ["ckpt-4", "ckpt-3", "ckpt-2", "ckpt-1"]
    move_to_trash(made.run, names[:2], by="t", now=NOW, update_state_file=False)
    delete_for_good(made.run, names[2:], now=NOW, update_state_file=False)
    assert others_of(made) == OTHERS


@pytest.mark.parametrize("name", ["notes", "train", "faiss", "documents", "._ckpt-2"])
def test_they_are_no_checkpoints_by_name_either(made, name):
    made.tensorflow("ckpt-1")
    add_others(made)
    assert scan_checkpoints(made.run, {name}, NOW) == {}


def test_what_others_write_is_no_evidence_of_a_trainer(made):
    made.tensorflow("ckpt-1")
    add_others(made, ["train.data-00000-of-00001", "faiss.index", "notes_temp/diary.txt"])
    for path in made.root.iterdir():
        if not path.name.startswith("ckpt-"):
            made.touch(path, 1)
    assert not foreign_writers(made.run, NOW).is_likely
    made.temporary("ckpt-2", age=1)
    assert foreign_writers(made.run, NOW).fresh_checkpoints == {"ckpt-2"}


def test_a_save_goes_to_a_branch_where_nothing_has_its_name(made):
    made.ours(1)
    for name in ("ckpt-b1-2.index", "train-9.index"):
        (made.root / name).write_bytes(b"of another program")
    catalog = Catalog(made.run)
    catalog.scan(NOW)
    tips = catalog.branch_tips([])
    assert (tips.next, tips.steps) == (2, {0: 1, 1: 2})


def test_a_folder_of_others_stays_when_the_checkpoint_of_its_name_goes(made):
    made.tensorflow("ckpt-1", listed=False)
    made.tensorflow("ckpt-2")
    diary = made.root / "ckpt-1_temp" / "diary.txt"
    diary.parent.mkdir()
    diary.write_bytes(b"mine")
    move_to_trash(made.run, ["ckpt-1"], by="t", now=NOW, update_state_file=False)
    assert diary.read_bytes() == b"mine"


@pytest.mark.parametrize(
    "name", ["part-00000-of-00001.data-00000-of-00001", "part-00000-of-00001.index"]
)
@pytest.mark.parametrize("forever", [False, True])
def test_names_of_parts_beside_a_checkpoint_do_not_go_with_it(made, name, forever):
    made.tensorflow("ckpt-1", listed=False)
    made.tensorflow("ckpt-2")
    notes = made.root / "ckpt-1_temp" / name
    notes.parent.mkdir()
    notes.write_bytes(b"my notes")
    made.touch(notes, LONG_AGO)
    made.touch(notes.parent, LONG_AGO)
    if forever:
        delete_for_good(made.run, ["ckpt-1"], now=NOW, update_state_file=False)
    else:
        move_to_trash(made.run, ["ckpt-1"], by="t", now=NOW, update_state_file=False)
    assert notes.read_bytes() == b"my notes"
    assert not (made.root / "ckpt-1.index").exists()


def test_parts_that_tensorflow_wrote_go_with_their_checkpoint(made):
    made.tensorflow("ckpt-1", listed=False)
    made.tensorflow("ckpt-2")
    parts = made.temporary("ckpt-1", age=LONG_AGO)
    made.index_of_part(parts, "ckpt-1", LONG_AGO)
    delete_for_good(made.run, ["ckpt-1"], now=NOW, update_state_file=False)
    assert not parts.exists()


@pytest.mark.parametrize("cut", [0, 1, 30])
def test_a_cache_of_tf_data_is_no_checkpoint(made, cut):
    made.tensorflow("ckpt-1")
    *_, index = write(made.root / "cache", {f"{n:>7}_0": array([1.0]) for n in range(12)})
    index.write_bytes(index.read_bytes()[: index.stat().st_size - cut])
    for path in made.root.glob("cache.*"):
        made.touch(path, LONG_AGO)
    for quick in (False, True):
        catalog = Catalog(made.run)
        catalog.scan(NOW, quick=quick)
        assert [found.name for found in catalog.scan(NOW)] == ["ckpt-1"]
    assert "cache" in catalog.others


def test_neither_is_one_without_elements_nor_one_that_is_being_written(made):
    made.tensorflow("ckpt-1")
    write(made.root / "empty", {})
    (made.root / "empty.data-00000-of-00001").unlink(missing_ok=True)
    for name in ("part_0.data-00000-of-00001.tempstate6", "part_0.lockfile"):
        (made.root / name).touch()
    for path in made.root.iterdir():
        if not path.name.startswith("ckpt-"):
            made.touch(path, LONG_AGO)
    catalog = Catalog(made.run)
    assert [found.name for found in catalog.scan(NOW)] == ["ckpt-1"]
    assert "part-temp" not in {found.kind for found in catalog.diagnostics(NOW)}


def test_a_cache_that_was_put_off_is_not_verified_nor_one_that_once_was(made, monkeypatch):
    made.tensorflow("ckpt-1")
    for path in write(made.root / "cache", {f"{n:>7}_0": array([1.0]) for n in range(12)}):
        made.touch(path, LONG_AGO)
    put_off = Catalog(made.run).scan(NOW, opens_usual=False)
    assert "cache" in {found.name for found in put_off}
    with pytest.raises(UsageError, match="cache is not a checkpoint: "):
        verify_checkpoint(made.run, "cache")
    # As an earlier release did.
    monkeypatch.setattr(verify_checkpoint_module, "recognize_index", lambda _: IndexKind.BUNDLE)
    verified = verify_checkpoint(made.run, "cache")
    ResultStore(made.run, None).store(verified.record)
    assert verified.record.fault is None
    assert [found.name for found in Catalog(made.run).scan(NOW)] == ["ckpt-1"]


class TestDamaged:
    """What was a checkpoint stays one, in a state that says what is wrong."""

    @pytest.mark.parametrize("cut", [0, 1, 30])
    def test_an_index_that_begins_or_ends_as_one_is_proven(self, made, cut):
        made.tensorflow("ckpt-1")
        content = (made.root / "ckpt-1.index").read_bytes()
        damage_index(made, "ckpt-1", content[: len(content) - cut])
        (made.root / "ckpt-1.data-00000-of-00001").unlink()
        found = made.scan()["ckpt-1"]
        assert found.is_proven
        assert not found.restorable

    @pytest.mark.parametrize("content", [b"", b"\0" * 4096, b"\xff" * 4096])
    def test_data_beside_an_index_that_says_nothing_is_likely_one(self, made, content):
        made.tensorflow("ckpt-1")
        made.tensorflow("ckpt-2")
        damage_index(made, "ckpt-1", content)
        found = made.scan()["ckpt-1"]
        assert not found.is_proven
        assert deleted_by_rules(made) == []
        before = contents(made.root)
        with pytest.raises(RefusedError, match=r"neither its content nor a record.*prune"):
            delete_for_good(made.run, ["ckpt-1"], now=NOW, update_state_file=False)
        assert contents(made.root) == before
        move_to_trash(made.run, ["ckpt-1"], by="t", now=NOW, update_state_file=False)
        assert "ckpt-1" not in made.scan()

    def test_a_record_proves_it(self, made):
        made.ours(1)
        made.ours(2)
        damage_index(made, "ckpt-1", b"")
        assert made.scan()["ckpt-1"].is_proven
        delete_for_good(made.run, ["ckpt-1"], now=NOW, update_state_file=False)
        assert list(made.scan()) == ["ckpt-2"]

    def test_a_sound_result_of_earlier_proves_it_and_a_bad_one_does_not(self, made):
        made.tensorflow("ckpt-1", listed=False)
        add_others(made)
        store = ResultStore(made.run, None)
        for name in ("ckpt-1", "faiss"):
            verified = verify_checkpoint(made.run, name)
            assert verified is not None
            store.store(verified.record)
        damage_index(made, "ckpt-1", b"")
        assert {name: c.is_proven for name, c in made.scan().items()} == {"ckpt-1": True}

    def test_the_state_file_tells_of_data_without_an_index(self, made):
        made.tensorflow("ckpt-1")
        made.tensorflow("ckpt-2")
        (made.root / "ckpt-1.index").unlink()
        found = made.scan()["ckpt-1"]
        assert (found.state, found.is_proven) == (CheckpointState.INCOMPLETE, False)

    def test_the_index_of_a_part_of_a_save_that_was_killed_proves_it(self, made):
        made.tensorflow("ckpt-1")
        made.index_of_part(made.temporary("ckpt-2", age=LONG_AGO), "ckpt-1", LONG_AGO)
        assert deleted_by_rules(made) == ["ckpt-2"]

    @pytest.mark.parametrize("part", ["data-00000-of-00001", "index"])
    def test_names_of_parts_prove_nothing(self, made, part):
        made.tensorflow("ckpt-1")
        thesis = made.temporary("my", age=LONG_AGO) / f"part-00001-of-00002.{part}"
        thesis.write_bytes(b"my thesis")
        made.touch(thesis, LONG_AGO)
        assert made.scan()["my"].state is CheckpointState.ORPHANED
        assert deleted_by_rules(made) == []
        with pytest.raises(RefusedError, match=r"neither its content nor a record.*prune"):
            delete_for_good(made.run, ["my"], now=NOW, update_state_file=False)
        assert thesis.read_bytes() == b"my thesis"
        move_to_trash(made.run, ["my"], by="t", now=NOW, update_state_file=False)
        assert list(made.scan()) == ["ckpt-1"]


class TestRename:
    """No rule moves what gets whole again by a rename."""

    @pytest.mark.parametrize(
        ("file", "renamed"),
        [("x.data-00000-of-00001", "x.data"), ("x.index", "x.index.old"), ("x.index", "y.index")],
    )
    def test_it_is_kept(self, made, file, renamed):
        made.tensorflow("ckpt-0", age=2 * LONG_AGO)
        made.tensorflow("ckpt-1")
        made.ours(2)
        made.tensorflow("x", listed=False)
        os.rename(made.root / file, made.root / renamed)
        assert deleted_by_rules(made) == ["ckpt-0"]
        assert "x" in made.scan() or file == "x.index"

    def test_also_if_this_library_saved_it(self, made):
        made.ours(1)
        made.ours(2)
        os.rename(made.root / "ckpt-1.index", made.root / "ckpt-1.index.old")
        assert deleted_by_rules(made) == []

    @pytest.mark.parametrize("verified", [False, True])
    def test_also_if_something_else_has_the_place_of_its_data(self, made, verified):
        made.ours(1)
        made.ours(2)
        data = made.root / "ckpt-1.data-00000-of-00001"
        os.rename(data, made.root / "aside")
        os.mkfifo(data)
        if verified:
            found = verify_checkpoint(made.run, "ckpt-1")
            assert found is not None
            ResultStore(made.run, None).store(found.record)
        found = made.scan()["ckpt-1"]
        assert found.state is CheckpointState.INCOMPLETE
        assert "is not a regular file" in found.problem
        assert deleted_by_rules(made) == []

    def test_no_older_one_is_called_the_newest(self, made):
        made.tensorflow("ckpt-1", age=2 * LONG_AGO)
        made.tensorflow("ckpt-2")
        os.rename(made.root / "ckpt-2.index", made.root / "ckpt-2.index.old")
        made.run.state_file.unlink()
        catalog = Catalog(made.run)
        catalog.scan(NOW)
        (told,) = [d for d in catalog.diagnostics(NOW) if d.kind == "state-file-missing"]
        assert "ckpt-2.data-00000-of-00001 is newer than ckpt-1, and has no index" in told.message
        assert "printf" not in told.message


def test_what_a_saver_keeps_for_good_stays_until_it_is_named(made):
    for step in range(1, 5):
        made.tensorflow(f"ckpt-{step}", age=LONG_AGO + 10 - step)
    listed = "".join(f'all_model_checkpoint_paths: "ckpt-{step}"\n' for step in (3, 4))
    made.run.state_file.write_text(f'model_checkpoint_path: "ckpt-4"\n{listed}')
    assert deleted_by_rules(made) == ["ckpt-3"]


def test_of_the_directory_of_a_check_only_its_checkpoint_is_deleted(made):
    made.tensorflow("ckpt-7")
    made.run.records_directory.mkdir(parents=True)
    (made.root / ".checkpoint.0a1b.tmp").touch()
    mine = made.root / "ckpt.txt"
    mine.write_text("mine")
    delete_checkpoint_of_check(made.root)
    assert list(made.root.iterdir()) == [mine]
    mine.unlink()
    delete_checkpoint_of_check(made.root)
    assert not made.root.exists()
    delete_checkpoint_of_check(made.root)


def test_what_arrives_is_being_written(made):
    made.tensorflow("ckpt-1", age=0, listed=False)
    (made.root / "ckpt-1.index").unlink()
    assert made.scan()["ckpt-1"].state is CheckpointState.WRITING
    assert "ckpt-1" not in made.scan(later=LONG_AGO)


def test_a_file_that_is_replaced_by_a_checkpoint_is_listed(made):
    add_others(made, ["faiss.index"])
    catalog = Catalog(made.run)
    assert catalog.scan(NOW) == ()
    assert catalog.others == {"faiss"}
    made.tensorflow("faiss", listed=False)
    assert [checkpoint.name for checkpoint in catalog.scan(NOW)] == ["faiss"]
    assert catalog.others == set()


@tries(300)
@given(
    files=st.lists(
        st.tuples(
            st.sampled_from(["a.index", "a.data-00000-of-00001", "b.index", "c_temp/x", "a.meta"]),
            st.binary(max_size=300),
        ),
        max_size=5,
    )
)
def test_no_rule_takes_any_file_that_no_checkpoint_has(tmp_path_factory, files):
    place = tmp_path_factory.mktemp("any")
    made = CheckpointDirectory(place)
    for step in (1, 2):
        made.tensorflow(f"ckpt-{step}")
    for name, content in files:
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_bytes(content)
        made.touch(place / name, LONG_AGO)
    assert deleted_by_rules(made) == ["ckpt-1"]
    shutil.rmtree(place)


@tries(400)
@given(content=st.binary(max_size=400).filter(lambda data: not data.startswith(b"\0\0")))
def test_no_other_bytes_are_an_index(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any.index"
    path.write_bytes(content)
    with suppress(NotFetchedError):
        assert recognize_index(path) is not IndexKind.BUNDLE
