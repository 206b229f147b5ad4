"""Prune moves whole checkpoints to the trash, undo brings them back, and neither touches more."""

from __future__ import annotations

import errno
import itertools
import math
import os
import shutil
import tempfile
from pathlib import Path

import msgspec
import pytest
from checkpoint_directory import (
    LONG_AGO,
    NOW,
    CheckpointDirectory,
    contents,
    latest_name,
    listed_names,
    listed_stamps,
)
from cut_off import DONE, killed_at
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from killed_writers import mark_of_a_killed_process
from tfckpt_trainer.bundle.state_file import StateFile
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint, CheckpointState
from tfckpt_trainer.catalog.directory.pins import pin, set_pins, unpin
from tfckpt_trainer.catalog.directory.trash import RETENTION, list_trash, locked_trash
from tfckpt_trainer.catalog.retention import deleting, emptying, moving, state_list
from tfckpt_trainer.catalog.retention.deleting import delete_for_good
from tfckpt_trainer.catalog.retention.emptying import empty_trash
from tfckpt_trainer.catalog.retention.matching import checksum_of_names
from tfckpt_trainer.catalog.retention.plan import plan
from tfckpt_trainer.catalog.retention.policy import Policy
from tfckpt_trainer.catalog.retention.prune import move_to_trash, settle_interrupted_prunes, undo
from tfckpt_trainer.catalog.retention.rules import BestBy
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.errors import DamagedFileError, RefusedError, TfckptError, UsageError
from tfckpt_trainer.rundir.paths import WRITER
from tfckpt_trainer.rundir.records.trash import TrashedCheckpoint, TrashManifest, TrashPhase
from tfckpt_trainer.rundir.storage.documents import load, store
from tfckpt_trainer.rundir.storage.files import move
from tfckpt_trainer.rundir.storage.identity import identity_of
from waiting import attempts
from weekly import tries


def prune(made: CheckpointDirectory, *names: str, at: float = NOW, state_file: bool = True, **more):
    return move_to_trash(
        made.run, names, by="ada@host", now=at, update_state_file=state_file, **more
    )


@pytest.fixture
def history(made: CheckpointDirectory) -> CheckpointDirectory:
    """Three of ours and one of TensorFlow's, all on its list."""
    made.tensorflow("ckpt-50", shards=2)
    (made.root / "ckpt-50.meta").write_bytes(b"graph")
    made.ours(100, workers=2)
    made.ours(200, workers=2, shards=2)
    made.ours(300)
    return made


class TestPrune:
    @pytest.mark.parametrize("ending", [".meta", ".data-00001-of-00003", ".data-00002-of-00002"])
    def test_what_only_has_its_name_counts_in_no_size(self, history, ending):
        before = {name: checkpoint.size for name, checkpoint in history.scan().items()}
        for name in ("ckpt-100", "ckpt-200"):
            (history.root / f"{name}{ending}").write_bytes(bytes(50_000))
        assert {name: found.size for name, found in history.scan().items()} == before
        (trashed,) = prune(history, "ckpt-200", state_file=False).checkpoints
        assert trashed.size == before["ckpt-200"]
        assert (history.root / f"ckpt-200{ending}").exists()

    def test_all_of_a_checkpoint_goes_and_nothing_else(self, history):
        before = contents(history.root)
        manifest = prune(history, "ckpt-200")
        after = contents(history.root)
        gone = set(before) - set(after)
        assert gone == {name for name in before if "ckpt-200" in name}
        assert len(gone) == 3 + 2 + 4
        assert all(after[name] == before[name] for name in after if name != "checkpoint")
        assert [t.name for t in manifest.checkpoints] == ["ckpt-200"]
        assert manifest.phase is TrashPhase.TRASHED

    @pytest.mark.parametrize("is_deleted", [False, True])
    def test_files_that_only_have_its_name_stay(self, made, is_deleted):
        """Those of another number of data files, and a graph file that is none."""
        for name, shards in (("ckpt-50", 1), ("ckpt-60", 2), ("ckpt-70", 1)):
            made.tensorflow(name, shards=shards)
        (made.root / "ckpt-60.meta").write_bytes(b"\x0a\x04meta")
        of_others = {
            "ckpt-50.data-00001-of-00002": b"mine",
            "ckpt-50.meta": b"my notes",
            "ckpt-60.data-00000-of-00001": b"mine",
        }
        for name, content in of_others.items():
            (made.root / name).write_bytes(content)
        if is_deleted:
            names = ["ckpt-50", "ckpt-60"]
            delete_for_good(made.run, names, now=NOW, update_state_file=True)
        else:
            prune(made, "ckpt-50", "ckpt-60")
        left = {name: data for name, data in contents(made.root).items() if "0." in name}
        own = {name: data for name, data in left.items() if name.startswith("ckpt-70")}
        assert {name: data for name, data in left.items() if name not in own} == of_others

    @pytest.mark.parametrize("is_recorded", [False, True])
    def test_a_damaged_index_takes_no_files_that_may_be_of_others(self, made, is_recorded):
        """A record says which are its own; without one, nothing tells two numbers apart."""
        made.ours(5) if is_recorded else made.tensorflow("ckpt-5")
        made.tensorflow("ckpt-70")
        index, data = made.root / "ckpt-5.index", made.root / "ckpt-5.data-00000-of-00001"
        index.write_bytes(index.read_bytes()[:-1])
        mine = made.root / "ckpt-5.data-00001-of-00002"
        mine.write_bytes(b"mine")
        delete_for_good(made.run, ["ckpt-5"], now=NOW, update_state_file=True)
        assert mine.read_bytes() == b"mine"
        assert (index.exists(), data.exists()) == (False, not is_recorded)

    @pytest.mark.parametrize(
        ("fails", "outcome"),
        [(False, "Nothing was moved."), (True, "Now in the trash: ckpt-50.")],
    )
    def test_a_refusal_says_what_a_disk_that_fails_left(self, history, monkeypatch, fails, outcome):
        pinned = moving.is_pinned

        def pinned_meanwhile(run, name):
            return name == "ckpt-100" or pinned(run, name)

        def failing(*_, **__):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(moving, "is_pinned", pinned_meanwhile)
        if fails:
            monkeypatch.setattr(f"{move_to_trash.__module__}.bring_back", failing)
        before = contents(history.root)
        with pytest.raises(RefusedError) as refused:
            prune(history, "ckpt-50", "ckpt-100")
        told = f"ckpt-100 cannot be pruned: it was just pinned. {outcome} Prune again"
        assert str(refused.value).startswith(told)
        assert fails is not (contents(history.root) == before)

    @pytest.mark.parametrize("changed", ["time", "size"])
    def test_a_file_that_was_replaced_after_the_plan_stays(self, history, monkeypatch, changed):
        pinned, data = moving.is_pinned, history.root / "ckpt-100.data-00000-of-00001"
        before = data.stat()

        def replaced_meanwhile(run, name):
            data.write_bytes(b"x" * (before.st_size + (changed == "size")))
            if changed == "size":
                os.utime(data, ns=(before.st_atime_ns, before.st_mtime_ns))
            return pinned(run, name)

        monkeypatch.setattr(moving, "is_pinned", replaced_meanwhile)
        with pytest.raises(RefusedError, match="changed while ckpt-100 was being pruned"):
            prune(history, "ckpt-100")
        assert data.read_bytes().startswith(b"x")
        assert (history.root / "ckpt-100.index").exists()
        assert list_trash(history.run) == []

    def test_tensorflows_list_follows(self, history):
        prune(history, "ckpt-50", "ckpt-200")
        assert listed_names(history.root) == ["ckpt-100", "ckpt-300"]
        assert latest_name(history.root) == "ckpt-300"

    def test_tensorflows_list_is_left_alone_if_told(self, history):
        before = history.run.state_file.read_bytes()
        prune(history, "ckpt-200", state_file=False)
        undo(history.run, None, update_state_file=False)
        assert history.run.state_file.read_bytes() == before

    def test_the_newest_on_the_list_is_followed_by_what_training_goes_on_from(self, history):
        history.tensorflow("ckpt-250", age=2 * LONG_AGO)
        assert latest_name(history.root) == "ckpt-250"
        prune(history, "ckpt-250")
        assert latest_name(history.root) == "ckpt-300"
        assert listed_names(history.root) == ["ckpt-50", "ckpt-100", "ckpt-200", "ckpt-300"]

    def test_it_works_without_and_with_a_damaged_list(self, history):
        history.run.state_file.write_bytes(b"\xff")
        prune(history, "ckpt-200")
        history.run.state_file.unlink()
        prune(history, "ckpt-100")
        assert list(history.scan()) == ["ckpt-300", "ckpt-50"]

    def test_what_a_killed_save_left_goes_whole(self, history):
        history.temporary("ckpt-400", age=LONG_AGO)
        history.run.saving_directory.mkdir()
        history.tensorflow(
            "ckpt-500", age=LONG_AGO, into=history.run.saving_directory, listed=False
        )
        before = contents(history.root)
        prune(history, "ckpt-400", "ckpt-500")
        assert set(history.scan()) == {"ckpt-50", "ckpt-100", "ckpt-200", "ckpt-300"}
        undo(history.run, None, update_state_file=True)
        assert contents(history.root) == before

    def test_a_name_that_is_not_there(self, history):
        with pytest.raises(UsageError, match="no checkpoint ckpt-7; the newest are ckpt-300"):
            prune(history, "ckpt-100", "ckpt-7")
        with pytest.raises(UsageError):
            prune(history)
        with pytest.raises(UsageError):
            prune(history, "../ckpt-100")
        assert list_trash(history.run) == []

    @pytest.mark.parametrize(
        ("name", "why"),
        [
            ("ckpt-300", "training continues from it"),
            ("ckpt-200", "pinned"),
            ("ckpt-100", "in use"),
            ("ckpt-301", "being written"),
        ],
    )
    def test_what_is_protected_stays_and_all_else_with_it(self, history, name, why):
        pin(history.run, "ckpt-200")
        history.temporary("ckpt-301", age=1)
        before = contents(history.root)
        with pytest.raises(RefusedError, match=why):
            prune(history, "ckpt-50", name, in_use={"ckpt-100": "in use"})
        assert contents(history.root) == before
        assert list_trash(history.run) == []

    def test_the_newest_the_head_and_the_last_verified(self, made):
        made.ours(100)
        made.ours(200)
        made.touch(made.root / "ckpt-200.index", age=0)
        made.ours(300)
        made.touch(made.root / "ckpt-300.index", age=0)
        made.restored("ckpt-200", 200, 1)
        for name, why in [
            ("ckpt-300", "newest"),
            ("ckpt-200", "continues from it"),
            ("ckpt-100", "last verified"),
        ]:
            with pytest.raises(RefusedError, match=why):
                prune(made, name)

    def test_a_name_that_no_manifest_can_hold(self, history):
        name = os.fsdecode(b"ckpt-\xff")
        history.tensorflow(name, listed=False, age=2 * LONG_AGO)
        with pytest.raises(RefusedError, match="UTF-8"):
            prune(history, name)
        assert history.scan()[name].restorable
        # A policy keeps it, and prunes the others.
        decisions = plan(list(history.scan().values()), Policy(keep_last=1)).decisions
        (odd,) = [one for one in decisions if one.checkpoint.name == name]
        assert odd.keep and "UTF-8" in odd.reason
        prune(history, *(one.checkpoint.name for one in decisions if not one.keep))
        assert name in history.scan() and "ckpt-100" not in history.scan()

    def test_two_prunes_at_one_moment(self, history):
        first, second = prune(history, "ckpt-100"), prune(history, "ckpt-200")
        assert first.id != second.id
        assert len(list_trash(history.run)) == 2


class TestUndo:
    def test_everything_is_as_before(self, history):
        pin(history.run, "ckpt-300")
        (history.root / "ckpt-50.index").chmod(0o640)
        modes = {path: path.stat().st_mode for path in history.root.glob("ckpt-*")}
        before, seen = contents(history.root), history.scan()
        prune(history, "ckpt-50", "ckpt-200")
        assert contents(history.root) != before
        manifest = undo(history.run, None, update_state_file=True)
        assert {t.name for t in manifest.checkpoints} == {"ckpt-50", "ckpt-200"}
        assert contents(history.root) == before
        assert {path: path.stat().st_mode for path in modes} == modes
        assert history.scan() == seen
        assert list_trash(history.run) == []
        assert list(history.run.trash.iterdir()) == []

    def test_the_newest_or_the_one_named(self, history):
        first = prune(history, "ckpt-100", at=NOW)
        second = prune(history, "ckpt-200", at=NOW + 10)
        assert [m.id for m in list_trash(history.run)] == [second.id, first.id]
        undo(history.run, first.id, update_state_file=True)
        assert "ckpt-200" not in history.scan()
        undo(history.run, None, update_state_file=True)
        assert listed_names(history.root) == ["ckpt-50", "ckpt-100", "ckpt-200", "ckpt-300"]

    def test_what_a_person_pruned_comes_before_what_a_trainer_pruned_since(self, history):
        mine = prune(history, "ckpt-100", at=NOW)
        theirs = move_to_trash(
            history.run, ["ckpt-200"], by=RETENTION, now=NOW + 10, update_state_file=True
        )
        assert undo(history.run, None, update_state_file=True).id == mine.id
        assert undo(history.run, None, update_state_file=True).id == theirs.id

    def test_after_more_was_saved(self, history):
        prune(history, "ckpt-100")
        history.ours(400)
        undo(history.run, None, update_state_file=True)
        assert latest_name(history.root) == "ckpt-400"
        assert listed_names(history.root)[-1] == "ckpt-400"
        assert list(history.scan()) == ["ckpt-400", "ckpt-300", "ckpt-200", "ckpt-100", "ckpt-50"]

    def test_absolute_paths_on_the_list_come_back_as_they_were(self, made):
        for name in ("model-1", "model-2"):
            made.tensorflow(name)
        text = "".join(
            f'{field}: "{made.root}/{name}"\n'
            for field, name in [
                ("model_checkpoint_path", "model-2"),
                ("all_model_checkpoint_paths", "model-1"),
                ("all_model_checkpoint_paths", "model-2"),
            ]
        )
        made.run.state_file.write_text(text)
        prune(made, "model-1")
        assert "model-1" not in made.run.state_file.read_text()
        undo(made.run, None, update_state_file=True)
        assert made.run.state_file.read_text() == text

    def test_the_list_is_read_once_for_all_checkpoints(self, made, monkeypatch):
        for step in range(1, 31):
            made.ours(step)
        before = listed_stamps(made.root)
        prune(made, *(f"ckpt-{step}" for step in range(1, 30)))
        reads = []
        names = StateFile.names.fget

        def counted(state):
            reads.append(state)
            return names(state)

        monkeypatch.setattr(StateFile, "names", property(counted))
        undo(made.run, None, update_state_file=True)
        assert len(reads) < 10
        assert listed_stamps(made.root) == before

    def test_nothing_to_bring_back(self, history):
        with pytest.raises(UsageError, match="is empty"):
            undo(history.run, None, update_state_file=True)
        prune(history, "ckpt-100")
        with pytest.raises(UsageError, match="no prune 2020 in the trash"):
            undo(history.run, "2020", update_state_file=True)

    def test_nothing_is_overwritten(self, history):
        prune(history, "ckpt-100", "ckpt-200")
        history.tensorflow("ckpt-100", age=0)
        before = contents(history.root)
        with pytest.raises(RefusedError, match="exists again"):
            undo(history.run, None, update_state_file=True)
        assert contents(history.root) == before
        assert len(list_trash(history.run)) == 1

    def test_what_is_not_whole_does_not_come_back(self, history):
        manifest = prune(history, "ckpt-200")
        (history.run.trash / manifest.id / "ckpt-200.data-00001-of-00002").unlink()
        before = contents(history.root)
        with pytest.raises(RefusedError, match="data-00001-of-00002 is missing"):
            undo(history.run, None, update_state_file=True)
        assert contents(history.root) == before


class TestTrash:
    def test_emptied_it_frees_the_bytes(self, history):
        first = prune(history, "ckpt-100", at=NOW - 100)
        prune(history, "ckpt-200", at=NOW)
        before = contents(history.root)
        size = sum(t.size for t in first.checkpoints)
        assert empty_trash(history.run, before=NOW - 50).freed >= size
        assert [t.name for m in list_trash(history.run) for t in m.checkpoints] == ["ckpt-200"]
        assert empty_trash(history.run).freed > 0
        assert list(history.run.trash.iterdir()) == []
        assert contents(history.root) == before
        assert empty_trash(history.run).freed == 0

    def test_what_was_begun_is_deleted_with_the_rest_and_progress_is_told(self, history):
        cut = prune(history, "ckpt-100")
        os.rename(history.run.trash / cut.id, history.run.trash / f"{cut.id}.emptied")
        prune(history, "ckpt-200")
        assert [one.names for one in list_trash(history.run)] == [["ckpt-200"]]
        told = []
        emptied = empty_trash(history.run, on_progress=told.append)
        assert emptied.names == ("ckpt-100", "ckpt-200")
        assert told == sorted(told)
        assert told[-1] == emptied.freed
        assert list(history.run.trash.iterdir()) == []

    def test_what_is_not_in_the_trash_is_not_called_deleted(self, history):
        told = prune(history, "ckpt-100", "ckpt-200")
        for path in [history.run.trash / told.id / name for name in told.checkpoints[1].files]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        assert empty_trash(history.run).names == ("ckpt-100",)

    def test_what_came_after_the_question_stays(self, history):
        told, newer = prune(history, "ckpt-100"), prune(history, "ckpt-200")
        assert empty_trash(history.run, only=[told.id]).names == ("ckpt-100",)
        assert [one.id for one in list_trash(history.run)] == [newer.id]

    def test_without_a_trash(self, made):
        assert empty_trash(made.run).freed == 0
        assert settle_interrupted_prunes(made.run) == []
        assert not made.run.control.exists()

    def test_what_is_under_way_is_not_emptied(self, history):
        manifest = prune(history, "ckpt-100")
        path = history.run.trash / manifest.id / "manifest.json"
        undoing = TrashManifest(
            id=manifest.id,
            at=NOW,
            by="",
            checkpoints=manifest.checkpoints,
            sequence=manifest.sequence,
            phase=TrashPhase.UNDOING,
        )
        store(path, undoing)
        empty_trash(history.run)
        assert load(path, TrashManifest) == undoing
        settle_interrupted_prunes(history.run)
        assert history.scan()["ckpt-100"].state is CheckpointState.VERIFIED

    def test_links_in_the_trash_are_not_followed(self, history, tmp_path):
        precious = tmp_path / "precious"
        precious.mkdir()
        (precious / "file").write_bytes(b"1")
        manifest = prune(history, "ckpt-100")
        (history.run.trash / manifest.id / "link").symlink_to(precious)
        (history.run.trash / "other").symlink_to(precious)
        empty_trash(history.run)
        assert (precious / "file").read_bytes() == b"1"

    def test_one_at_a_time(self, history, monkeypatch):
        monkeypatch.setattr("tfckpt_trainer.catalog.directory.trash.LOCK_SECONDS", 0.1)
        prune(history, "ckpt-100")
        with locked_trash(history.run):
            for act in (
                lambda: prune(history, "ckpt-200"),
                lambda: undo(history.run, None, update_state_file=True),
                lambda: empty_trash(history.run),
            ):
                with pytest.raises(RefusedError, match="has been running"):
                    act()


NUMBERS = st.sampled_from([math.nan, None, 0.1, 0.1, 0.5, 3.0])
SAVES = st.lists(st.tuples(st.integers(1, 3), NUMBERS, st.sampled_from("ssssrptwd")), max_size=9)
POLICIES = st.builds(
    Policy,
    keep_last=st.none() | st.integers(1, 3),
    keep_every_steps=st.none() | st.integers(1, 20),
    keep_every_hours=st.none() | st.sampled_from([0.5, 2.0]),
    keep_best=st.lists(
        st.builds(BestBy, st.just("loss"), st.sampled_from(["min", "max"]), st.integers(1, 2)),
        max_size=1,
    ).map(tuple),
)


class TestPlansOfRealDirectories:
    @tries(40)
    @given(SAVES, POLICIES)
    def test_a_plan_carried_out_is_stable_and_can_be_undone(self, saves, policy):
        with tempfile.TemporaryDirectory() as place:
            made = trained(Path(place) / "run", saves)
            before, seen = contents(made.root), made.scan()
            try:
                going = [c.name for c in plan(list(seen.values()), policy).deleted]
            except UsageError:
                assert not any(usable(c) for c in seen.values())
                return
            if not going:
                return
            prune(made, *going)
            after = made.scan()
            assert list(after) == [name for name in seen if name not in going]
            assert plan(list(after.values()), policy).deleted == ()
            assert [n for n, c in after.items() if c.is_head] == [
                n for n, c in seen.items() if c.is_head
            ]
            assert latest_name(made.root) in after
            undo(made.run, None, update_state_file=True)
            assert made.scan() == seen
            after_all = contents(made.root)
            assert {**after_all, "checkpoint": b""} == {**before, "checkpoint": b""}


def usable(checkpoint) -> bool:
    value = checkpoint.metrics.get("loss")
    return checkpoint.restorable and value is not None and math.isfinite(value)


def trained(root: Path, saves) -> CheckpointDirectory:
    """A directory in which somebody saved, went back, pinned, and something was damaged."""
    made = CheckpointDirectory(root)
    # The oldest: where a clock was set back, what others saved has no order beside our records.
    made.ours(1, age=LONG_AGO * (len(saves) + 2), metrics={"loss": 1.0})
    names, branch, step = ["ckpt-1"], 0, 1
    for place, (length, loss, act) in enumerate(saves):
        age = LONG_AGO * (len(saves) + 1 - place)
        step += length
        name = made.ours(step, branch, age=age, metrics={"loss": loss})
        if act == "r":
            branch, step = branch + 1, 1
            made.restored("ckpt-1", 1, branch)
        elif act == "p":
            pin(made.run, names[-1])
        elif act == "t":
            made.tensorflow(f"model-{place}", age=age)
        elif act == "w":
            made.temporary(f"other-{place}", age=age)
        elif act == "d":
            next(made.root.glob(f"{name}.data*")).unlink()
        names.append(name)
    return made


class TestHostile:
    @pytest.mark.parametrize("directory", ["", "trash", "records", "workers", "saving"])
    def test_nothing_moves_through_a_link(self, history, tmp_path, directory):
        history.run.create()
        elsewhere = tmp_path / "elsewhere"
        link = history.run.control / directory
        shutil.move(link, elsewhere)
        link.symlink_to(elsewhere)
        before = contents(elsewhere)
        with pytest.raises(RefusedError, match="symbolic link"):
            prune(history, "ckpt-100")
        with pytest.raises((RefusedError, UsageError)):
            undo(history.run, None, update_state_file=True)
        assert contents(elsewhere) == before
        assert history.scan()["ckpt-100"].restorable

    def test_a_link_in_the_place_of_a_workers_state_stays(self, history, tmp_path):
        elsewhere = tmp_path / "elsewhere"
        own = history.run.worker_state_directory("ckpt-100")
        shutil.move(own, elsewhere)
        own.symlink_to(elsewhere)
        prune(history, "ckpt-100")
        assert own.is_symlink()
        assert len(list(elsewhere.iterdir())) == 4

    @pytest.mark.parametrize("is_deleted", [False, True])
    def test_what_others_put_beside_a_workers_state_stays(self, history, is_deleted):
        own = history.run.worker_state_directory("ckpt-100")
        more = own / "more"
        more.mkdir()
        of_others = own / "notes.txt", own / "worker-0.index.bak", more / "worker-0.index"
        for path in of_others:
            path.write_bytes(b"mine")
        if is_deleted:
            delete_for_good(history.run, ["ckpt-100"], now=NOW, update_state_file=True)
        else:
            prune(history, "ckpt-100")
            empty_trash(history.run)
        left = [path for path in history.run.control.rglob("*") if "ckpt-100/" in str(path)]
        files = sorted(path.name for path in left if path.is_file())
        assert files == sorted(path.name for path in of_others)

    def forged(self, history, name, file, checksum, phase) -> TrashManifest:
        """A manifest that another user wrote, with the right facts of a file."""
        manifest = TrashManifest(
            id="20990101T000000-000000",
            at=NOW,
            by="mallory",
            checkpoints=[
                TrashedCheckpoint(
                    name=name,
                    step=1,
                    size=1,
                    files=[file],
                    # If its name were allowed, its facts would let it move.
                    identities=[identity_of(history.root / file) or (1, 1, 1)],
                    checksums=[checksum],
                )
            ],
            sequence=1,
            phase=phase,
        )
        place = history.run.trash / manifest.id
        place.mkdir(parents=True)
        store(place / "manifest.json", manifest)
        return manifest

    @pytest.mark.parametrize(
        "file",
        [
            "../precious",
            "/etc/passwd",
            ".tfckpt/../../precious",
            ".tfckpt/run.json",
            "checkpoint",
            "ckpt-300.index",
            "ckpt-1x.index",
            ".tfckpt/workers/..",
        ],
    )
    @pytest.mark.parametrize("phase", list(TrashPhase))
    def test_a_manifest_moves_nothing_but_its_checkpoint(self, history, tmp_path, file, phase):
        (tmp_path / "precious").write_bytes(b"1")
        manifest = self.forged(history, "ckpt-1", file, None, phase)
        before = contents(tmp_path)
        settle_interrupted_prunes(history.run)
        with pytest.raises((UsageError, DamagedFileError, RefusedError)):
            undo(history.run, manifest.id, update_state_file=True)
        assert contents(tmp_path) == before

    @pytest.mark.parametrize("file", ["exp_temp", "exp.index", "exp.data-00000-of-00001"])
    def test_a_manifest_moves_no_folder_of_others(self, history, file):
        mine = history.root / file / "thesis.txt"
        mine.parent.mkdir()
        mine.write_bytes(b"mine")
        checksum = checksum_of_names(mine.parent)
        forged = self.forged(history, "exp", file, checksum, TrashPhase.PRUNING)
        # A file of another save, so that what was pruned stays in the trash.
        (history.root / "exp.meta").write_bytes(b"another")
        (one,) = forged.checkpoints
        files = [*one.files, "exp.meta"]
        identities = [*one.identities, (1, 1, 1)]
        one = replace(one, files=files, identities=identities, checksums=[checksum, 0])
        store(history.run.trash / forged.id / "manifest.json", replace(forged, checkpoints=[one]))
        prune(history, "ckpt-100")
        empty_trash(history.run)
        assert mine.read_bytes() == b"mine"


class TestMeanwhile:
    """A prune was cut off, and the world went on before the next one."""

    def interrupted(self, history, *names: str) -> TrashManifest:
        manifest = prune(history, *names)
        without_them = history.run.state_file.read_bytes()
        undo(history.run, None, update_state_file=True)
        history.run.state_file.write_bytes(without_them)
        (history.run.trash / manifest.id).mkdir()
        pruning = TrashManifest(
            id=manifest.id,
            at=NOW,
            by="",
            checkpoints=manifest.checkpoints,
            sequence=manifest.sequence,
            phase=TrashPhase.PRUNING,
        )
        store(history.run.trash / manifest.id / "manifest.json", pruning)
        return pruning

    def test_what_it_had_moved_comes_back_and_nothing_else_moves(self, history):
        manifest = self.interrupted(history, "ckpt-100", "ckpt-200")
        place = history.run.trash / manifest.id
        os.rename(history.root / "ckpt-100.index", place / "ckpt-100.index")
        (settled,) = settle_interrupted_prunes(history.run)
        assert (settled.phase, settled.names) == (TrashPhase.UNDOING, ["ckpt-100"])
        assert set(history.scan()) == {"ckpt-50", "ckpt-100", "ckpt-200", "ckpt-300"}
        assert listed_names(history.root) == ["ckpt-50", "ckpt-100", "ckpt-200", "ckpt-300"]
        assert list_trash(history.run) == []

    def test_one_whose_files_had_all_moved_is_done(self, history):
        manifest = prune(history, "ckpt-100")
        place = history.run.trash / manifest.id / "manifest.json"
        store(place, replace(manifest, phase=TrashPhase.PRUNING))
        (settled,) = settle_interrupted_prunes(history.run)
        assert (settled.phase, settled.names) == (TrashPhase.TRASHED, ["ckpt-100"])
        assert [one.phase for one in list_trash(history.run)] == [TrashPhase.TRASHED]

    def test_what_is_gone_meanwhile_does_not_come_back_to_the_list(self, history):
        self.interrupted(history, "ckpt-100", "ckpt-200")
        for path in history.root.glob("ckpt-200.*"):
            path.unlink()
        settle_interrupted_prunes(history.run)
        assert listed_names(history.root) == ["ckpt-50", "ckpt-100", "ckpt-300"]

    def test_what_was_saved_again_under_the_name_stays(self, history):
        self.interrupted(history, "ckpt-50")
        history.tensorflow("ckpt-50", shards=2, age=3 * LONG_AGO)
        settle_interrupted_prunes(history.run)
        assert history.scan()["ckpt-50"].state is CheckpointState.COMPLETE
        assert list_trash(history.run) == []

    def test_what_was_saved_again_is_not_moved_over_what_is_in_the_trash(self, history):
        manifest = self.interrupted(history, "ckpt-50")
        place = history.run.trash / manifest.id
        unknown = [msgspec.structs.replace(t, identities=[]) for t in manifest.checkpoints]
        store(place / "manifest.json", msgspec.structs.replace(manifest, checkpoints=unknown))
        os.rename(history.root / "ckpt-50.index", place / "ckpt-50.index")
        before = (place / "ckpt-50.index").read_bytes()
        (history.root / "ckpt-50.index").write_bytes(b"another")
        settle_interrupted_prunes(history.run)
        assert (place / "ckpt-50.index").read_bytes() == before
        assert (history.root / "ckpt-50.index").read_bytes() == b"another"

    def test_a_prune_that_failed_is_taken_back_when_that_is_possible_again(
        self, history, monkeypatch
    ):
        before, moves = contents(history.root), itertools.count()

        def refuse_from_the_third_on(source, target):
            if next(moves) >= 2:
                raise OSError(5, "Input/output error", str(source))
            move(source, target)

        with monkeypatch.context() as broken:
            broken.setattr(moving, "move", refuse_from_the_third_on)
            with pytest.raises(TfckptError, match=r"Now in the trash: ckpt-50, ckpt-200\."):
                prune(history, "ckpt-50", "ckpt-200")
        assert contents(history.root) != before
        settle_interrupted_prunes(history.run)
        assert contents(history.root) == before

    def test_the_next_prune_moves_what_it_was_asked_for(self, history):
        self.interrupted(history, "ckpt-100")
        prune(history, "ckpt-200")
        assert set(history.scan()) == {"ckpt-50", "ckpt-100", "ckpt-300"}
        assert [one.names for one in list_trash(history.run)] == [["ckpt-200"]]

    def test_an_undo_brings_back_the_newest_if_it_had_moved_nothing(self, history):
        prune(history, "ckpt-200")
        self.interrupted(history, "ckpt-100")
        assert undo(history.run, None, update_state_file=True).names == ["ckpt-200"]
        assert list_trash(history.run) == []

    def test_what_was_saved_again_meanwhile_is_told_and_stays(self, history):
        manifest = self.interrupted(history, "ckpt-100", "ckpt-200")
        place = history.run.trash / manifest.id
        for name in ("ckpt-100", "ckpt-200"):
            os.rename(history.root / f"{name}.index", place / f"{name}.index")
        history.tensorflow("ckpt-200", shards=2, age=3 * LONG_AGO)
        told = []
        returned = undo(history.run, None, update_state_file=True, on_warning=told.append)
        assert returned.names == ["ckpt-100"]
        assert told == [
            "What was pruned of ckpt-200 stays in the trash: there is another save of that name."
        ]
        # No advice to move the new one away, which would not help.
        with pytest.raises(RefusedError, match="cannot be brought back completely"):
            undo(history.run, None, update_state_file=True)
        assert history.scan()["ckpt-200"].restorable

    def test_a_signal_takes_a_prune_back(self, history, monkeypatch):
        before, moves = contents(history.root), itertools.count()

        def interrupted(source, target):
            move(source, target)
            if next(moves) == 2:
                raise KeyboardInterrupt

        monkeypatch.setattr(moving, "move", interrupted)
        with pytest.raises(KeyboardInterrupt):
            prune(history, "ckpt-50", "ckpt-200")
        assert contents(history.root) == before
        assert list_trash(history.run) == []


class TestOrder:
    """The order of prunes is that in which they were done, whatever the clocks said."""

    def test_the_newest_is_the_last_one_that_was_done(self, history):
        first = prune(history, "ckpt-100", at=NOW)
        second = prune(history, "ckpt-200", at=NOW - 5000)
        assert [m.id for m in list_trash(history.run)] == [second.id, first.id]
        assert undo(history.run, None, update_state_file=True).id == second.id

    def test_the_oldest_is_emptied_first(self, history):
        prune(history, "ckpt-100", at=NOW)
        prune(history, "ckpt-200", at=NOW - 5000)
        assert empty_trash(history.run, until_freed=1).names == ("ckpt-100",)

    def test_it_never_goes_back(self, history):
        assert prune(history, "ckpt-50").sequence == 1
        assert prune(history, "ckpt-100").sequence == 2
        empty_trash(history.run)
        assert prune(history, "ckpt-200").sequence == 3
        history.run.trash_order.write_bytes(b"")
        undo(history.run, None, update_state_file=True)
        assert prune(history, "ckpt-200").sequence == 1

    def test_it_goes_on_without_its_count(self, history):
        prune(history, "ckpt-50")
        history.run.trash_order.unlink()
        assert prune(history, "ckpt-100").sequence == 2


class TestUnreadable:
    """What cannot be read is told, and never taken for nothing."""

    def test_what_no_prune_moved_there_stays_and_is_told(self, history):
        lost, whole = prune(history, "ckpt-100"), prune(history, "ckpt-200")
        trash = history.run.trash
        (trash / lost.id / "manifest.json").unlink()
        mine = trash / "notes" / "mine.txt", trash / whole.id / "mine.txt"
        for path in mine:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(b"mine")
        with pytest.raises(UsageError, match=rf"{lost.id} cannot be used: it has no manifest\."):
            undo(history.run, lost.id, update_state_file=True)
        emptied = empty_trash(history.run)
        assert emptied.names == ("ckpt-200",)
        assert [p.name for p in trash.rglob("*.txt")] == ["mine.txt", "mine.txt"]
        assert len(list(trash.rglob("ckpt-*.index"))) == 1
        told = {problem.partition(": ")[0] for problem in emptied.problems}
        assert told == {
            f"{trash / lost.id} cannot be used",
            f"{trash / 'notes'} cannot be used",
            f"{trash / whole.id}.emptied has files that no prune moved there. They stay",
        }

    def test_what_others_put_into_the_parts_of_a_save_stays(self, history):
        history.temporary("ckpt-400", age=LONG_AGO)
        manifest = prune(history, "ckpt-400")
        place = history.run.trash / manifest.id / "ckpt-400_temp"
        for mine in (place / "mine.txt", place / "more" / "mine.txt"):
            mine.parent.mkdir(exist_ok=True)
            mine.write_bytes(b"mine")
        emptied = empty_trash(history.run)
        assert emptied.names == ("ckpt-400",)
        assert emptied.freed == len(b"half")
        left = history.run.trash / f"{manifest.id}.emptied"
        assert {path.name for path in left.rglob("*") if path.is_file()} == {"mine.txt"}
        assert emptied.problems[0].startswith(f"{left} has files that no prune moved there.")

    @pytest.mark.parametrize("name", ["../../x", "x" * 255])
    def test_a_manifest_of_a_name_that_no_checkpoint_has_blocks_nothing(self, history, name):
        forged, other = prune(history, "ckpt-100"), prune(history, "ckpt-200")
        path = history.run.trash / forged.id / "manifest.json"
        renamed = msgspec.structs.replace(forged.checkpoints[0], name=name)
        store(path, msgspec.structs.replace(forged, checkpoints=[renamed]))
        emptied = empty_trash(history.run)
        assert emptied.names == tuple(other.names)
        (problem,) = emptied.problems
        assert f"{path.parent} cannot be used: its manifest lists" in problem

    def test_a_damaged_manifest_is_told_and_its_files_stay(self, history):
        damaged = prune(history, "ckpt-100")
        prune(history, "ckpt-200")
        path = history.run.trash / damaged.id / "manifest.json"
        path.write_bytes(path.read_bytes()[:-20])
        before = sorted((history.run.trash / damaged.id).rglob("*"))
        emptied = empty_trash(history.run)
        assert emptied.names == ("ckpt-200",)
        (problem,) = emptied.problems
        assert damaged.id in problem
        assert "rm -r" in problem
        catalog = Catalog(history.run)
        catalog.scan(NOW)
        (told,) = [one for one in catalog.diagnostics(NOW) if one.kind == "prune-damaged"]
        assert (told.name, told.message) == (damaged.id, problem)
        assert sorted((history.run.trash / damaged.id).rglob("*")) == before

    def test_a_manifest_that_the_disk_does_not_show_is_no_missing_one(self, history, monkeypatch):
        manifest = prune(history, "ckpt-100")
        lstat = os.lstat

        def refuse(path, **more):
            if str(path).endswith(f"{manifest.id}/manifest.json"):
                raise OSError(5, "Input/output error", str(path))
            return lstat(path, **more)

        monkeypatch.setattr(os, "lstat", refuse)
        emptied = empty_trash(history.run)
        monkeypatch.undo()
        assert emptied.names == ()
        assert "Input/output error" in emptied.problems[0]
        assert undo(history.run, None, update_state_file=True).id == manifest.id

    def test_a_trash_that_cannot_be_read_at_all(self, history, monkeypatch):
        prune(history, "ckpt-100")
        scandir = os.scandir

        def refuse(path):
            if str(path) == str(history.run.trash):
                raise OSError(5, "Input/output error", str(path))
            return scandir(path)

        monkeypatch.setattr(os, "scandir", refuse)
        with pytest.raises(OSError, match="Input/output"):
            empty_trash(history.run)


class TestThroughALink:
    def test_undo_through_a_link_to_the_run_directory(self, history, tmp_path):
        from tfckpt_trainer.rundir.paths import RunDirectory

        (tmp_path / "link").symlink_to(history.root)
        before = contents(history.root)
        linked = RunDirectory(tmp_path / "link")
        move_to_trash(linked, ["ckpt-200"], by="ada", now=NOW, update_state_file=True)
        undo(linked, None, update_state_file=True)
        assert contents(history.root) == before

    @pytest.mark.parametrize("directory", ["", "pins", "trash", "status", "control"])
    def test_nothing_is_written_through_one(self, history, tmp_path, directory):
        history.run.create()
        elsewhere = tmp_path / "elsewhere"
        link = history.run.control / directory
        shutil.move(link, elsewhere)
        link.symlink_to(elsewhere)
        before = contents(elsewhere)
        for act in (
            lambda: pin(history.run, "ckpt-100"),
            lambda: unpin(history.run, "ckpt-100"),
            lambda: set_pins(history.run, ["ckpt-100"], pinned=True),
            lambda: delete_for_good(history.run, ["ckpt-100"], now=NOW, update_state_file=True),
            lambda: empty_trash(history.run),
            history.run.create,
        ):
            with pytest.raises(RefusedError, match="symbolic link"):
                act()
        assert contents(elsewhere) == before


class TestDeleteForGood:
    def test_all_of_a_checkpoint_goes_and_nothing_else(self, history):
        before = contents(history.root)
        deleted = delete_for_good(history.run, ["ckpt-200"], now=NOW, update_state_file=True)
        after = contents(history.root)
        assert set(before) - set(after) == {name for name in before if "ckpt-200" in name}
        assert deleted.names == ("ckpt-200",)
        assert deleted.freed > 0
        assert deleted.problems == ()
        assert listed_names(history.root) == ["ckpt-50", "ckpt-100", "ckpt-300"]
        assert list_trash(history.run) == []

    @staticmethod
    def bytes_of(root):
        return sum(
            p.lstat().st_size for p in root.rglob("*") if "ckpt-200" in f"{p}" and p.is_file()
        )

    @pytest.mark.parametrize("at_once", [True, False])
    def test_a_file_that_has_another_name_frees_nothing(self, history, tmp_path, at_once):
        others = [history.root / "ckpt-200.data-00001-of-00002"]
        others += history.run.worker_state_directory("ckpt-200").iterdir()
        for number, path in enumerate(others):
            os.link(path, tmp_path / f"other-{number}")
        before = self.bytes_of(history.root)
        if at_once:
            emptied = delete_for_good(history.run, ["ckpt-200"], now=NOW, update_state_file=False)
        else:
            prune(history, "ckpt-200", state_file=False)
            emptied = empty_trash(history.run)
        gone = before - self.bytes_of(history.root)
        assert emptied.freed == gone - sum(path.stat().st_size for path in tmp_path.glob("other-*"))

    def test_what_is_pinned_in_the_meantime_stays_and_all_else_with_it(self, history, monkeypatch):
        scan = deleting.scan_for_prune

        def pinned_after_the_scan(*arguments):
            found = scan(*arguments)
            pin(history.run, "ckpt-100")
            return found

        monkeypatch.setattr(deleting, "scan_for_prune", pinned_after_the_scan)
        before = history.scan().keys()
        with pytest.raises(RefusedError, match="ckpt-100 cannot be deleted: it was just pinned"):
            delete_for_good(history.run, ["ckpt-200", "ckpt-100"], now=NOW, update_state_file=True)
        assert history.scan().keys() == before

    def test_what_cannot_be_deleted_is_told_and_the_others_go(self, history, monkeypatch):
        delete_file = emptying.delete_file

        def failing(path):
            if path.name == "ckpt-100.index":
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
            delete_file(path)

        monkeypatch.setattr(emptying, "delete_file", failing)
        deleted = delete_for_good(
            history.run, ["ckpt-50", "ckpt-100", "ckpt-200"], now=NOW, update_state_file=True
        )
        assert deleted.names == ("ckpt-50", "ckpt-200")
        assert deleted.problems == (f"{history.root}/ckpt-100.index: Input/output error.",)
        assert history.scan()["ckpt-100"].state is CheckpointState.VERIFIED
        assert history.scan().keys() == {"ckpt-100", "ckpt-300"}
        assert listed_names(history.root) == ["ckpt-100", "ckpt-300"]

    def test_the_directory_is_listed_as_often_for_many_as_for_few(self, tmp_path, monkeypatch):
        counts = []
        for many in (2, 9):
            made = CheckpointDirectory(tmp_path / str(many))
            for step in range(1, many + 2):
                made.tensorflow(f"ckpt-{step}")
            listed = []
            for call in (os.listdir, os.scandir):

                def noted(path, call=call, listed=listed):
                    listed.append(os.fspath(path))
                    return call(path)

                monkeypatch.setattr(os, call.__name__, noted)
            names = [f"ckpt-{step}" for step in range(1, many + 1)]
            delete_for_good(made.run, names, now=NOW, update_state_file=True)
            monkeypatch.undo()
            counts.append(listed.count(str(made.root)))
        assert counts[0] == counts[1] > 0

    def test_data_that_cannot_be_deleted_goes_with_the_next_deletion(self, made, monkeypatch):
        made.tensorflow("ckpt-1", listed=False)
        made.tensorflow("ckpt-2")
        delete_file = emptying.delete_file

        def failing(path):
            if ".data-" in path.name:
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
            delete_file(path)

        with monkeypatch.context() as patched:
            patched.setattr(emptying, "delete_file", failing)
            delete_for_good(made.run, ["ckpt-1"], now=NOW, update_state_file=True)
        (marked,) = (made.root / "ckpt-1_temp").glob(f"{WRITER}*")
        # As if the command had ended.
        marked.rename(marked.with_name(f"{WRITER}{mark_of_a_killed_process()}"))
        assert made.scan().keys() == {"ckpt-1", "ckpt-2"}
        delete_for_good(made.run, ["ckpt-1"], now=NOW, update_state_file=True)
        assert not list(made.root.glob("ckpt-1*"))

    def test_what_an_interrupted_deletion_left_goes_with_the_next(self, tmp_path):
        """Also where no record and no state file names it."""
        left = set()
        for call in attempts("a deletion that is not killed"):
            made = CheckpointDirectory(tmp_path / str(call))
            names = ["ckpt-1", "ckpt-2"]
            for name in names:
                made.tensorflow(name, shards=2, listed=False)
            made.tensorflow("ckpt-3")

            def delete(made=made, names=names) -> None:
                there = [name for name in names if name in made.scan()]
                delete_for_good(made.run, there, now=NOW, update_state_file=True)

            code = killed_at(call, delete)
            found = {n: made.scan()[n].state for n in names if n in made.scan()}
            left |= set(found.values())
            if found:
                delete()
            files = [path.name for path in made.root.rglob("*") if path.is_file()]
            assert not [name for name in files if name.startswith(("ckpt-1", "ckpt-2"))]
            assert {"ckpt-3.index", "checkpoint"} <= {*files}
            if code == DONE:
                break
        assert left == {CheckpointState.COMPLETE, CheckpointState.ORPHANED}

    def test_what_a_signal_leaves_is_told(self, history, monkeypatch):
        told = []

        def interrupted(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(deleting._Deletion, "delete_data", interrupted)
        with pytest.raises(KeyboardInterrupt):
            delete_for_good(
                history.run,
                ["ckpt-100", "ckpt-200"],
                now=NOW,
                update_state_file=True,
                on_interrupt=told.append,
            )
        assert [gone.names for gone in told] == [("ckpt-100", "ckpt-200")]

    @pytest.mark.parametrize("name", ["ckpt-300", "ckpt-100", "ckpt-50"])
    def test_what_is_protected_stays(self, history, name):
        pin(history.run, "ckpt-100")
        before = contents(history.root)
        with pytest.raises(RefusedError, match="cannot be deleted"):
            delete_for_good(
                history.run,
                ["ckpt-200", name],
                now=NOW,
                update_state_file=True,
                in_use={"ckpt-50": "in use"},
            )
        assert contents(history.root) == before

    def test_each_checkpoint_is_looked_up_once(self, made, monkeypatch):
        count = 60
        for step in range(1, count + 1):
            made.tensorflow(f"ckpt-{step}")
        compared = []
        equal = Checkpoint.__eq__

        def counting(one, other):
            compared.append(one)
            return equal(one, other)

        monkeypatch.setattr(Checkpoint, "__eq__", counting)
        chosen = [f"ckpt-{step}" for step in range(1, count // 2)]
        deleted = delete_for_good(made.run, chosen, now=NOW, update_state_file=True)
        assert len(deleted.names) == len(chosen)
        assert len(compared) <= count


class TestDoneBut:
    """What fails after the last file has moved is told beside the outcome."""

    def test_a_manifest_that_cannot_be_completed(self, history, monkeypatch):
        from tfckpt_trainer.catalog.retention import prune as module

        def refuse(path, document, **more):
            if document.phase is TrashPhase.TRASHED:
                raise OSError(5, "Input/output error", str(path))
            store(path, document, **more)

        monkeypatch.setattr(module, "store", refuse)
        warnings = []
        prune(history, "ckpt-100", on_warning=warnings.append)
        assert "ckpt-100" not in history.scan()
        assert "could not be updated" in warnings[0]
        monkeypatch.undo()
        undo(history.run, None, update_state_file=True)
        assert history.scan()["ckpt-100"].restorable

    def test_an_undo_that_is_refused_names_the_prune_before_it(self, history):
        older = prune(history, "ckpt-50", at=NOW)
        newer = prune(history, "ckpt-100", at=NOW + 10)
        os.remove(history.run.trash / newer.id / "ckpt-100.index")
        with pytest.raises(RefusedError, match="cannot be brought back") as refused:
            undo(history.run, None, update_state_file=True)
        assert f"--trash {older.id}`" in str(refused.value)
        with pytest.raises(RefusedError) as named:
            undo(history.run, newer.id, update_state_file=True)
        assert older.id not in str(named.value)
        assert undo(history.run, older.id, update_state_file=True).names == ["ckpt-50"]

    def test_an_undo_that_was_refused_is_not_done_by_whoever_comes_next(self, history, monkeypatch):
        prune(history, "ckpt-100")
        before = contents(history.root)
        refused = history.root / "ckpt-100.index"

        def refuse_the_index(source, target):
            if target == refused:
                raise PermissionError(13, "Permission denied", str(refused))
            move(source, target)

        monkeypatch.setattr(moving, "move", refuse_the_index)
        with pytest.raises(PermissionError):
            undo(history.run, None, update_state_file=True)
        monkeypatch.undo()
        assert contents(history.root) == before
        assert settle_interrupted_prunes(history.run) == []
        undo(history.run, None, update_state_file=True)
        assert history.scan()["ckpt-100"].restorable

    def test_an_undo_that_was_interrupted_is_the_one_that_the_next_finishes(self, history):
        """No other prune is brought back with it, and nobody is told that the trash is empty."""
        older = prune(history, "ckpt-50", at=NOW)
        manifest = prune(history, "ckpt-100", at=NOW + 10)
        place = history.run.trash / manifest.id
        store(place / "manifest.json", replace(manifest, phase=TrashPhase.UNDOING))
        data = "ckpt-100.data-00000-of-00001"
        os.rename(place / data, history.root / data)
        (told,) = empty_trash(history.run, before=NOW).problems
        assert told.startswith(f"{manifest.id} stays: it was interrupted.")
        returned = undo(history.run, None, update_state_file=True)
        assert [one.name for one in returned.checkpoints] == ["ckpt-100"]
        assert history.scan()["ckpt-100"].restorable
        assert [one.id for one in list_trash(history.run)] == [older.id]

    def test_a_list_that_cannot_be_written_after_an_undo(self, history, monkeypatch):
        from tfckpt_trainer.catalog.retention import prune as module

        prune(history, "ckpt-100")

        def refuse(*_):
            raise OSError(5, "Input/output error", "checkpoint")

        monkeypatch.setattr(module, "return_to_state_file", refuse)
        warnings = []
        undo(history.run, None, update_state_file=True, on_warning=warnings.append)
        assert history.scan()["ckpt-100"].restorable
        assert "next prune or undo updates it" in warnings[0]
        monkeypatch.undo()
        settle_interrupted_prunes(history.run)
        assert "ckpt-100" in listed_names(history.root)
        assert history.scan()["ckpt-100"].restorable


def test_many_are_moved_and_brought_back_without_comparing_each_with_each(made, monkeypatch):
    made.run.create()
    count = 120
    for step in range(count):
        made.ours(step)
    before = made.run.state_file.read_bytes()
    calls = []

    def counted_names(state, real=StateFile.names.fget):
        calls.append("names")
        return real(state)

    def counted_sort(values, *, key=None, real=sorted):
        if key is None and len(values) > 3:
            calls.append("sorted")
        return real(values, key=key)

    monkeypatch.setattr(StateFile, "names", property(counted_names))
    monkeypatch.setattr(state_list, "sorted", counted_sort, raising=False)
    names = [f"ckpt-{step}" for step in range(count - 5)]
    move_to_trash(made.run, names, by="ada", now=NOW, update_state_file=True)
    undo(made.run, None, update_state_file=True)
    assert made.run.state_file.read_bytes() == before
    assert calls.count("names") < 20
    assert calls.count("sorted") < 5
