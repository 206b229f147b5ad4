"""Whatever happens to a save: it becomes a whole checkpoint or leaves nothing behind.

What lies on the disk is judged here without the product's code: by names and bytes.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from copy import copy
from functools import partial
from operator import eq
from pathlib import Path

import pytest
from checkpoint_directory import CheckpointDirectory, contents
from cut_off import CUT_OFF, DONE, RAISED, SURVIVED, killed_at, refused_at
from lost_changes import Tree, recorded, what_may_be_left

from bundle_writing import write_floats
from refusing_disk import RefusingDisk
from tfckpt_trainer.bundle.checksum import crc32c
from tfckpt_trainer.catalog.commit.saves import (
    begin_save,
    commit_save,
    discard_save,
    finish_interrupted_saves,
)
from tfckpt_trainer.catalog.directory.checkpoints import CheckpointState
from tfckpt_trainer.catalog.directory.history import resume_point
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, FileFacts
from tfckpt_trainer.rundir.storage.disk import using
from tfckpt_trainer.rundir.storage.documents import encode
from waiting import attempts

pytestmark = pytest.mark.faults

NAME = "ckpt-200"
SHARDS = 2
FIRST_MOVE = 3
"""The changes before it write the manifest and rename it."""


class Save:
    """A directory with one checkpoint, and a second one written aside and not yet committed."""

    def __init__(self, root: Path) -> None:
        self.made = CheckpointDirectory(root)
        self.run = self.made.run
        self.root = root
        self.run.create()
        self.made.ours(100)
        self.before = contents(root)
        begin_save(self.run, NAME)
        own = self.run.worker_state_directory(NAME)
        own.mkdir()
        self.written = [
            *write_floats(self.run.saving_directory / NAME, *[(0.0, 0.5)] * SHARDS),
            *write_floats(own / "worker-0", (0.0, 0.5)),
        ]
        self.record = CheckpointRecord(
            name=NAME,
            step=200,
            branch=0,
            sequence=7,
            saved_at=time.time(),
            trigger="command",
            files=[self._facts(path) for path in self.written],
        )
        self.data = {facts.name: self._path_of(facts).read_bytes() for facts in self.record.files}

    def _facts(self, path: Path) -> FileFacts:
        data = path.read_bytes()
        is_shared = path.parent == self.run.saving_directory
        name = path.name if is_shared else path.relative_to(self.root).as_posix()
        return FileFacts(name=name, size=len(data), crc32c=crc32c(data))

    def _path_of(self, facts: FileFacts) -> Path:
        return (self.root if "/" in facts.name else self.run.saving_directory) / facts.name

    def commit(self) -> None:
        commit_save(self.run, self.record)

    def cut_off_in_its_commit(self) -> None:
        """Kills a commit when its manifest is there and nothing is in view yet."""
        assert killed_at(FIRST_MOVE, self.commit) == CUT_OFF
        assert b'"committing"' in self.run.save_manifest(NAME).read_bytes()
        assert not list(self.root.glob(f"{NAME}*"))

    def finish(self) -> tuple[str, ...]:
        return finish_interrupted_saves(self.run).completed

    @property
    def in_view(self) -> bool:
        return (self.root / f"{NAME}.index").exists()

    def check(self) -> None:
        """What was there is untouched; the new one is whole, or no checkpoint at all."""
        now = contents(self.root)
        for file, data in self.before.items():
            assert now.get(file) == data, f"{file} of another checkpoint was touched"
        if self.in_view:
            self.check_whole()

    def check_whole(self) -> None:
        now = contents(self.root)
        for file, data in self.data.items():
            assert now.get(file) == data, f"{NAME} is there without {file}"
        record = json.loads(now[f".tfckpt/records/{NAME}.json"])
        assert (record["name"], record["sequence"]) == (NAME, 7)

    def check_gone(self) -> None:
        """Nothing of it is left, but for temporary files that a kill left."""
        now = {file: data for file, data in contents(self.root).items() if ".tmp" not in file}
        assert now == self.before


def each_call(tmp_path: Path, act: Callable[[Save, int], int]) -> list[tuple[Save, int]]:
    """Plays a save again and again, one change of files later each time, until its end."""
    played = []
    for call in attempts("a save that is not killed"):
        place = tmp_path / str(call)
        place.mkdir()
        save = Save(place / "run")
        code = act(save, call)
        if code == DONE:
            break
        played.append((save, code))
    assert len(played) >= 8
    return played


def test_a_commit_killed_anywhere_is_finished_at_the_next_start(tmp_path):
    outcomes = set()
    for save, _ in each_call(tmp_path, lambda save, call: killed_at(call, save.commit)):
        save.check()
        was_there = save.in_view
        completed = save.finish()
        save.check()
        assert save.in_view or not was_there
        assert completed == ((NAME,) if save.in_view and not was_there else ())
        if save.in_view:
            save.check_whole()
        else:
            save.check_gone()
        assert list(save.run.saving_directory.iterdir()) == []
        outcomes.add((was_there, save.in_view))
    assert outcomes == {(False, False), (False, True), (True, True)}


def test_finishing_that_is_killed_anywhere_is_finished_by_the_next(tmp_path):
    """The first kill comes when the manifest of the commit is there and nothing is in view."""

    def act(save: Save, call: int) -> int:
        save.cut_off_in_its_commit()
        return killed_at(call, save.finish)

    for save, _ in each_call(tmp_path, act):
        save.check()
        save.finish()
        save.check()
        assert save.in_view


@pytest.mark.parametrize("for_good", [False, True])
def test_a_disk_that_refuses_anywhere_leaves_a_checkpoint_or_nothing(tmp_path, for_good):
    outcomes = set()

    def act(save: Save, call: int) -> int:
        return refused_at(call, save.commit, for_good=for_good)

    for save, code in each_call(tmp_path, act):
        save.check()
        # What was told is true: it failed, or it is there.
        assert save.in_view == (code == SURVIVED)
        save.finish()
        save.check()
        if code == SURVIVED:
            save.check_whole()
        elif not save.in_view:
            save.check_gone()
        outcomes.add(code)
    assert outcomes == {RAISED, SURVIVED}


@pytest.mark.parametrize("action", ["commit", "finish"])
def test_whatever_was_not_flushed_may_be_lost(tmp_path, action):
    """A power loss at any point, with any of the changes that were not flushed by then."""
    save = Save(tmp_path / "run")
    if action == "finish":
        save.cut_off_in_its_commit()
    first = Tree.of(save.root)
    with recorded(save.root) as changes:
        (save.commit if action == "commit" else save.finish)()
    assert len([change for change in changes if change.kind == "flush"]) > 3
    outcomes = set()
    done = f"after {len(changes)} calls"
    for number, (story, tree) in enumerate(what_may_be_left(first, changes)):
        left = copy(save)
        left.root = tmp_path / str(number) / "run"
        left.run = RunDirectory(left.root)
        tree.write(left.root)
        try:
            left.check()
            left.finish()
            left.check()
            if left.in_view:
                left.check_whole()
            else:
                left.check_gone()
            # What was acknowledged is there, whatever the power loss took.
            assert left.in_view or not story.startswith(done)
        except AssertionError as error:
            raise AssertionError(f"{action}, {story}: {error}") from error
        outcomes.add(left.in_view)
    assert outcomes == ({False, True} if action == "commit" else {True})


def test_what_the_disk_does_not_flush_before_the_commit_is_no_checkpoint(tmp_path):
    """Each flush in its turn is refused; those after the commit are told as a warning."""
    told = []
    for number in attempts("a save whose flushes all succeed"):
        save = Save(tmp_path / str(number))
        with using(RefusingDisk(partial(eq, number), ["flush"])):
            try:
                warning = commit_save(save.run, save.record)
            except OSError:
                assert not save.in_view
                save.check_gone()
                continue
        assert save.in_view
        told.append(warning)
        if not warning:
            break
    assert len(told) == 3
    assert all("a power loss may undo it" in warning for warning in told[:-1])


@pytest.mark.parametrize("there", [f"{NAME}.data-00001-of-00002", f"{NAME}.index"])
def test_nothing_that_is_in_view_is_ever_replaced_or_removed(tmp_path, there):
    """Somebody else's file has the name of one of the files, and its size."""
    save = Save(tmp_path / "run")
    theirs = b"x" * len(save.data[there])
    (save.root / there).write_bytes(theirs)
    with pytest.raises(FileExistsError, match=there):
        save.commit()
    now = contents(save.root)
    assert now.pop(there) == theirs
    assert {file for file in now if "/workers/" not in file} == {
        file for file in save.before if "/workers/" not in file
    }
    save.finish()
    assert (save.root / there).read_bytes() == theirs


def test_an_index_that_is_left_aside_never_takes_the_place_of_a_committed_one(tmp_path):
    """TensorFlow ignores that it could not delete the index of a part."""
    save = Save(tmp_path / "run")
    save.commit()
    committed = contents(save.root)
    for name in (f"{NAME}.part-00000.index", f"{NAME}.index"):
        (save.run.saving_directory / name).write_bytes(b"another index")
    assert save.finish() == ()
    assert contents(save.root) == committed


def test_a_save_that_was_only_being_written_leaves_nothing(tmp_path):
    save = Save(tmp_path / "run")
    assert save.finish() == ()
    save.check_gone()


@pytest.mark.parametrize("damage", [b"", b"{", b"null"])
def test_a_manifest_that_a_power_loss_emptied_costs_only_its_save(tmp_path, damage):
    save = Save(tmp_path / "run")
    save.run.save_manifest(NAME).write_bytes(damage)
    assert save.finish() == ()
    save.check_gone()


@pytest.mark.parametrize("lost", ["shard", "index", "index bytes", "worker state"])
def test_a_commit_that_misses_a_file_is_taken_back(tmp_path, lost):
    save = Save(tmp_path / "run")
    save.cut_off_in_its_commit()
    aside = save.run.saving_directory
    if lost == "shard":
        (aside / f"{NAME}.data-00000-of-00002").unlink(missing_ok=True)
        (save.root / f"{NAME}.data-00000-of-00002").unlink(missing_ok=True)
    elif lost == "index":
        (aside / f"{NAME}.index").unlink()
    elif lost == "index bytes":
        data = bytearray((aside / f"{NAME}.index").read_bytes())
        data[5] ^= 4
        (aside / f"{NAME}.index").write_bytes(bytes(data))
    else:
        (save.run.worker_state_directory(NAME) / "worker-0.index").unlink()
    assert save.finish() == ()
    save.check_gone()


def test_what_others_put_beside_an_interrupted_save_stays(tmp_path):
    save = Save(tmp_path / "run")
    place = save.run.saving_directory
    of_others = place / "mine" / "notes.txt", place / "notes.txt", place / "x_temp" / "diary.txt"
    for path in of_others:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"mine")
    assert save.finish() == ()
    left = {path for path in place.rglob("*") if path.is_file()}
    assert left == set(of_others)


def test_a_discarded_save_can_be_tried_again(tmp_path):
    save = Save(tmp_path / "run")
    own = save.run.worker_state_directory(NAME)
    parts = own / "worker-1_temp"
    parts.mkdir()
    (parts / "part-00000-of-00001.data-00000-of-00001.tempstate1").write_bytes(b"half")
    (own / "notes.txt").write_bytes(b"of somebody else")
    discard_save(save.run, NAME)
    assert list(own.iterdir()) == [own / "notes.txt"]
    shutil.rmtree(own)
    save.check_gone()
    again = Save(tmp_path / "again")
    again.commit()
    discard_save(again.run, NAME)
    again.check_whole()


def test_a_flipped_bit_in_a_record_does_not_move_the_start(tmp_path):
    save = Save(tmp_path / "run")
    save.commit()
    path = save.run.record(NAME)
    whole = path.read_bytes()
    assert b'"sequence":7' in whole
    path.write_bytes(whole.replace(b'"sequence":7', b'"sequence":0'))
    resumed = resume_point(save.run)
    assert resumed is not None
    assert (resumed.checkpoint, resumed.sequence) == (NAME, 7)
    (found,) = [c for c in Catalog(save.run).scan(time.time()) if c.name == NAME]
    assert found.state is CheckpointState.VERIFIED


def test_the_manifest_of_a_save_names_its_files(tmp_path):
    """What the documentation says of it."""
    save = Save(tmp_path / "run")
    save.cut_off_in_its_commit()
    manifest = json.loads(save.run.save_manifest(NAME).read_bytes())
    assert {f["name"]: f["size"] for f in manifest["record"]["files"]} == {
        file: len(data) for file, data in save.data.items()
    }
    assert encode(save.record)
