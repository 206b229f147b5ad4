"""Prune, undo, pin and the trash: through the trainer where one lives, by ourselves otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE

import pytest
from answering_trainer import AnsweringTrainer, moving_files
from rundir_factory import RunFactory, two_branches

from bundle_writing import write_floats
from child_processes import entered_elsewhere
from tensorflow_processes import TensorFlowProcess
from tfckpt_trainer.bundle.state_file import read_state_file
from tfckpt_trainer.errors import RefusedError, UsageError
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import CommandKind
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.storage.locks import locked
from tfckpt_tui.services.checkpoints.look_up import list_checkpoints
from tfckpt_tui.services.control import prune
from tfckpt_tui.services.control.request import FrontEnd
from waiting import LEAST_SECONDS

TEST = FrontEnd.COMMAND_LINE


def names(run: RunDirectory) -> list[str]:
    return [checkpoint.name for checkpoint in list_checkpoints(run)]


def files(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in root.iterdir() if path.is_file()}


@pytest.fixture
def ended(tmp_path: Path) -> RunFactory:
    """A run whose trainer is gone."""
    made = two_branches(tmp_path / "run")
    for index in range(2):
        made.run.worker_status(index).unlink()
    return made


def test_undo_brings_back_every_byte(ended: RunFactory) -> None:
    before = files(ended.run.root)
    pruned = prune.prune(ended.run, ["ckpt-100", "ckpt-200"], through=TEST)
    assert pruned.names == ("ckpt-100", "ckpt-200")
    assert "ckpt-100" not in names(ended.run)
    assert pruned.size == 2 * 129
    back = prune.undo(ended.run, through=TEST)
    assert (back.trash, back.names) == (pruned.trash, pruned.names)
    after = files(ended.run.root)
    after.pop("checkpoint")
    before.pop("checkpoint")
    assert after == before
    kinds = [entry.kind for entry in read_entries(ended.run)]
    assert kinds[-2:] == [EventKind.PRUNE, EventKind.UNDO]


def test_tensorflows_list_follows_in_a_run_of_ours(ended: RunFactory) -> None:
    prune.prune(ended.run, ["ckpt-100"], through=TEST)
    state = read_state_file(ended.run.state_file)
    assert state is not None
    assert "ckpt-100" not in state.all_paths
    assert "ckpt-200" in state.all_paths


def test_the_list_of_a_foreign_directory_is_left_alone(tmp_path: Path) -> None:
    made = RunFactory(tmp_path)
    for step in (1, 2, 3):
        made.checkpoint(step, recorded=False, seconds_ago=7200)
    before = made.run.state_file.read_bytes()
    prune.prune(made.run, ["ckpt-1"], through=TEST)
    assert made.run.state_file.read_bytes() == before
    assert "ckpt-1" not in names(made.run)


@contextmanager
def another_program(path: Path, mode: str) -> Iterator[int]:
    """A process that has `path` open; yields its number."""
    code = f"file = open({str(path)!r}, {mode!r}); print('open', flush=True); input()"
    words = [sys.executable, "-c", code]
    with subprocess.Popen(words, stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield process.pid
        process.communicate("\n")


@pytest.fixture
def somebody_elses(tmp_path: Path) -> RunFactory:
    made = RunFactory(tmp_path)
    for step in (1, 2, 3, 4):
        made.checkpoint(step, recorded=False, seconds_ago=7200)
    return made


def test_beside_a_foreign_trainer_it_is_refused_until_the_person_insists(
    somebody_elses: RunFactory,
) -> None:
    run = somebody_elses.run
    before = files(run.root)
    with another_program(run.root / "events.out", "w") as pid:
        with pytest.raises(RefusedError, match=rf"Process {pid} .*--beside-trainer"):
            prune.prune(run, ["ckpt-1"], through=TEST)
        assert {**files(run.root), "events.out": b""} == {**before, "events.out": b""}
        prune.prune(run, ["ckpt-1"], through=TEST, beside_trainer=True)
    assert "ckpt-1" not in names(run)
    assert files(run.root)["checkpoint"] == before["checkpoint"]


def test_what_a_foreign_trainer_has_open_is_not_touched(somebody_elses: RunFactory) -> None:
    run = somebody_elses.run
    data = run.root / "ckpt-2.data-00000-of-00001"
    with another_program(run.root / "events.out", "w"), another_program(data, "r"):
        with pytest.raises(RefusedError, match="open in another process"):
            prune.prune(run, ["ckpt-2"], through=TEST, beside_trainer=True)
        assert data.exists()


MANAGER = """
import sys
import tensorflow as tf
directory, orders = sys.argv[1:]
checkpoint = tf.train.Checkpoint(step=tf.Variable(0))
manager = tf.train.CheckpointManager(checkpoint, directory, max_to_keep=4)
log = open(f"{directory}/events.out", "w")
for saves in open(orders):
    for _ in range(int(saves)):
        checkpoint.step.assign_add(1)
        manager.save()
    print(*(path.rsplit("/", 1)[1] for path in manager.checkpoints), flush=True)
"""


@pytest.mark.tensorflow
def test_a_manager_of_tensorflows_goes_on_while_we_prune_beside_it(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    run.root.mkdir()
    script, orders = tmp_path / "manager.py", tmp_path / "orders"
    script.write_text(MANAGER)
    os.mkfifo(orders)
    reader, writer = os.pipe()
    with open(reader) as answers:
        with open(writer, "wb") as output:
            trainer = TensorFlowProcess([script, run.root, orders], os.environ, output)

        # To open it for writing alone would wait for a reader, also for one that has failed.
        sending = os.open(orders, os.O_RDWR)

        def save(count: int) -> list[str]:
            os.write(sending, f"{count}\n".encode())
            return answers.readline().split()

        assert save(6) == ["ckpt-3", "ckpt-4", "ckpt-5", "ckpt-6"]
        for path in run.root.glob("ckpt-*"):
            os.utime(path, (1e9, 1e9))
        before = run.state_file.read_bytes()
        with pytest.raises(RefusedError, match=rf"Process {trainer.pid} "):
            prune.prune(run, ["ckpt-4"], through=TEST)
        with pytest.raises(RefusedError, match="ckpt-6 cannot be pruned"):
            prune.prune(run, ["ckpt-6"], through=TEST, beside_trainer=True)
        prune.prune(run, ["ckpt-3", "ckpt-4"], through=TEST, beside_trainer=True)
        assert run.state_file.read_bytes() == before
        assert save(2) == ["ckpt-5", "ckpt-6", "ckpt-7", "ckpt-8"]
        os.close(sending)
    assert trainer.wait(LEAST_SECONDS) == 0
    assert names(run) == ["ckpt-8", "ckpt-7", "ckpt-6", "ckpt-5"]
    state = read_state_file(run.state_file)
    assert state is not None
    assert state.latest_name == "ckpt-8"


def test_a_save_of_a_moment_ago_speaks_for_a_foreign_trainer(somebody_elses: RunFactory) -> None:
    somebody_elses.checkpoint(5, recorded=False)
    with pytest.raises(RefusedError, match=r"changed .* ago. Perhaps .* If none does, wait \d"):
        prune.prune(somebody_elses.run, ["ckpt-1"], through=TEST)


def test_what_was_written_a_moment_ago_is_not_touched(somebody_elses: RunFactory) -> None:
    for name in ("best-1", "ckpt-5"):
        somebody_elses.checkpoint(1, name=name, recorded=False)
    with pytest.raises(
        RefusedError, match="best-1 cannot be pruned: its files changed a moment ago"
    ):
        prune.prune(somebody_elses.run, ["best-1"], through=TEST, beside_trainer=True)
    assert "best-1" in names(somebody_elses.run)


def test_a_prune_leaves_the_list_of_a_foreign_trainer_alone(ended: RunFactory) -> None:
    run = ended.run
    before = run.state_file.read_bytes()
    with another_program(run.root / "events.out", "w"):
        prune.prune(run, ["ckpt-100"], through=TEST, beside_trainer=True)
    assert "ckpt-100" not in names(run)
    assert run.state_file.read_bytes() == before


def test_an_undo_leaves_the_list_of_a_foreign_trainer_alone(ended: RunFactory) -> None:
    run = ended.run
    prune.prune(run, ["ckpt-100"], through=TEST)
    before = run.state_file.read_bytes()
    with another_program(run.root / "events.out", "w"):
        prune.undo(run, through=TEST)
    assert "ckpt-100" in names(run)
    assert run.state_file.read_bytes() == before


def test_a_reader_of_the_newest_is_no_trainer(somebody_elses: RunFactory) -> None:
    run = somebody_elses.run
    with another_program(run.root / "ckpt-4.index", "r"):
        prune.prune(run, ["ckpt-1"], through=TEST)
    assert "ckpt-1" not in names(run)


def test_a_live_trainer_does_it_itself(tmp_path: Path) -> None:
    run = two_branches(tmp_path / "run", live=True).run
    with AnsweringTrainer(run, moving_files(run)) as trainer:
        pruned = prune.prune(run, ["ckpt-100"], through=TEST)
        assert "ckpt-100" not in names(run)
        back = prune.undo(run, pruned.trash, through=TEST)
    assert back.names == pruned.names == ("ckpt-100",)
    assert [c.kind for c in trainer.taken] == [CommandKind.PRUNE, CommandKind.UNDO]


def test_a_live_trainer_is_not_asked_to_delete_what_may_be_no_checkpoint(tmp_path: Path) -> None:
    run = two_branches(tmp_path / "run", live=True).run
    write_floats(run.root / "other", (1.0,))
    (run.root / "other.index").write_bytes(b"damaged")
    with (
        AnsweringTrainer(run, moving_files(run)) as trainer,
        pytest.raises(RefusedError, match="neither its content nor a record"),
    ):
        prune.delete(run, ["other"], through=TEST)
    assert trainer.taken == []
    assert (run.root / "other.index").exists()


def test_a_live_trainer_that_is_not_waited_for_has_not_moved_anything_yet(tmp_path: Path) -> None:
    run = two_branches(tmp_path / "run", live=True).run
    asked = prune.prune(run, ["ckpt-100"], through=TEST, wait=False)
    assert asked.trash is None
    assert asked.command is not None
    assert (run.inbox / f"{asked.command.id}.json").exists()
    assert "ckpt-100" in names(run)


@pytest.mark.parametrize(
    ("name", "reason"), [("ckpt-b1-400", "training continues from it"), ("ckpt-300", "pinned")]
)
def test_what_is_protected_stays_and_so_does_all_else(
    ended: RunFactory, name: str, reason: str
) -> None:
    prune.set_pins(ended.run, ["ckpt-300"], pinned=True, through=TEST)
    before = files(ended.run.root)
    with pytest.raises(RefusedError, match=reason):
        prune.prune(ended.run, ["ckpt-100", name], through=TEST)
    assert files(ended.run.root) == before


def test_beside_a_trainer_that_holds_the_lock_nothing_is_touched(
    ended: RunFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(ended.run.root)
    monkeypatch.setattr(prune, "LOCK_SECONDS", 0.1)
    with (
        entered_elsewhere(locked(ended.run.trainer_lock, 60, "test")),
        pytest.raises(RefusedError, match="does not answer; nothing was changed"),
    ):
        prune.prune(ended.run, ["ckpt-100"], through=TEST)
    assert files(ended.run.root) == before


def test_a_pin_of_something_that_is_not_there_is_no_pin(ended: RunFactory) -> None:
    with pytest.raises(UsageError, match="ckpt-7"):
        prune.set_pins(ended.run, ["ckpt-7"], pinned=True, through=TEST)
    with pytest.raises(UsageError):
        prune.set_pins(ended.run, ["../ckpt-100"], pinned=True, through=TEST)
    prune.set_pins(ended.run, ["ckpt-100"], pinned=True, through=TEST)
    prune.set_pins(ended.run, ["ckpt-100"], pinned=True, through=TEST)
    assert [c.name for c in list_checkpoints(ended.run) if c.pinned] == ["ckpt-100"]
    prune.set_pins(ended.run, ["ckpt-100"], pinned=False, through=TEST)
    assert not any(c.pinned for c in list_checkpoints(ended.run))


def test_an_undo_names_the_manifest_that_cannot_be_used(ended: RunFactory) -> None:
    done = prune.prune(ended.run, ["ckpt-100"], through=FrontEnd.COMMAND_LINE)
    (directory,) = (path for path in ended.run.trash.iterdir() if path.is_dir())
    (directory / "manifest.json").write_text("not JSON")
    for identifier in (None, done.trash):
        with pytest.raises(UsageError) as refused:
            prune.undo(ended.run, identifier, through=FrontEnd.COMMAND_LINE)
        assert f"Nothing can be brought back. {directory} cannot be used" in str(refused.value)
    with pytest.raises(UsageError, match=r"There is no prune other .* are damaged\."):
        prune.undo(ended.run, "other", through=FrontEnd.COMMAND_LINE)
