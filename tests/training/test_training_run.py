"""A `TrainingRun` within the process of the test: what it writes down, and how it ends."""

from __future__ import annotations

import errno
import gc
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from unittest import mock

import pytest
from msgspec.structs import replace
from this_process import until_taken

from tfckpt_trainer.catalog.directory.checkpoints import CheckpointState
from tfckpt_trainer.catalog.retention.prune import move_to_trash
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.errors import RefusedError, UsageError
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.event_log import read_entries, write_entry
from tfckpt_trainer.rundir.heartbeats.reading import read_workers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, SaveManifest, SavePhase
from tfckpt_trainer.rundir.records.command import CommandKind
from tfckpt_trainer.rundir.records.event import EventEntry, EventKind
from tfckpt_trainer.rundir.records.run import RunInfo, ScriptCommand
from tfckpt_trainer.rundir.records.trash import TrashPhase
from tfckpt_trainer.rundir.records.worker import Ending
from tfckpt_trainer.rundir.storage.disk import LocalDisk, using
from tfckpt_trainer.rundir.storage.documents import load, remove, store
from tfckpt_trainer.words.counts import size
from waiting import wait_until

pytestmark = pytest.mark.tensorflow


def is_saved(run: RunDirectory, name: str) -> bool:
    """Whether a checkpoint is committed, and no save is under way."""
    return (run.root / f"{name}.index").exists() and not list(run.saving_directory.iterdir())


def interrupt_commit(run: RunDirectory, name: str) -> None:
    """Puts a checkpoint back to where it was when a crash had cut off its commit."""
    record = load(run.record(name), CheckpointRecord)
    (run.root / f"{name}.index").rename(run.saving_directory / f"{name}.index")
    remove(run.record(name))
    manifest = SaveManifest(name=name, phase=SavePhase.COMMITTING, record=record)
    store(run.save_manifest(name), manifest)


@pytest.mark.parametrize("background", [False, True], ids=["foreground", "background"])
def test_the_next_save_notes_that_it_completed_an_interrupted_one(make_run, background):
    from tfckpt_trainer.training import SaveOptions

    training = make_run(
        save_every_steps=1, total_steps=2, saving=SaveOptions(background=background)
    )
    run = RunDirectory(training.directory)
    for step in training:
        if step == 1:
            # In the background, the first save may still be under way.
            wait_until(lambda: is_saved(run, "ckpt-1"), 10, "the first save")
            interrupt_commit(run, "ckpt-1")
    assert {path.stem for path in run.root.glob("*.index")} == {"ckpt-1", "ckpt-2"}
    saves = [e for e in read_entries(run) if e.kind is EventKind.SAVE and e.checkpoint]
    listed = {one.name: one.size for one in Catalog(run).scan(time.time())}
    assert f": {size(listed[saves[-1].checkpoint])} in" in saves[-1].message
    completed = [e for e in saves if "Completed" in e.message]
    assert [entry.checkpoint for entry in completed] == ["ckpt-1"]


def test_a_start_brings_back_what_an_interrupted_prune_had_moved(make_run):
    training = make_run(save_every_steps=1, total_steps=3)
    for _ in training:
        pass
    run = RunDirectory(training.directory)
    names = ["ckpt-1", "ckpt-2"]
    pruned = move_to_trash(run, names, by="me", now=time.time(), update_state_file=True)
    place = run.trash / pruned.id
    (place / "ckpt-2.index").rename(run.root / "ckpt-2.index")
    store(place / "manifest.json", replace(pruned, phase=TrashPhase.PRUNING))
    for _ in make_run(save_every_steps=1, total_steps=4):
        pass
    found = {one.name: one.state.restorable for one in Catalog(run).scan(time.time())}
    assert found == dict.fromkeys(["ckpt-4", "ckpt-3", *names], True)
    told = "Brought back: ckpt-1, ckpt-2. It had been interrupted."
    assert told in [entry.message for entry in read_entries(run)]


def test_a_part_that_another_worker_could_not_write_is_no_checkpoint(make_run):
    from tfckpt_trainer.training.checkpoint.saves.save_protocol import SaveVote

    training = make_run(save_every_steps=1, total_steps=2)
    run, group = RunDirectory(training.directory), training._state._group
    against = SaveVote.against(1, OSError(5, "Input/output error"))
    votes = group.all_gather

    def with_another_worker(mine):
        is_first_save = isinstance(mine, SaveVote) and training.step == 1
        return [mine, against] if is_first_save else votes(mine)

    with mock.patch.object(group, "all_gather", side_effect=with_another_worker):
        for _ in training:
            pass
    assert (is_saved(run, "ckpt-1"), is_saved(run, "ckpt-2")) == (False, True)
    (failed,) = [e for e in read_entries(run) if e.kind is EventKind.FAILED]
    assert "worker 1: Input/output error" in failed.message


def test_the_buffers_of_input_pipelines_need_room_on_the_disk_too(make_run, small_disk):
    """Of 36 MB, 16 MB stay free. In each checkpoint, the buffers take 4 MB and more."""
    import tensorflow as tf

    def noise(number):
        """A megabyte that cannot be compressed."""
        return tf.random.stateless_uniform((1 << 18,), (number, 1))

    filler = small_disk / "filler"

    def fill():
        """Leaves room for what has to stay free, and for two elements."""
        filler.write_bytes(bytes(shutil.disk_usage(small_disk).free - (18 << 20)))

    dataset = tf.data.Dataset.range(200).map(noise).shuffle(4, seed=1)
    training = make_run(small_disk / "run", dataset=dataset, save_every_steps=1, total_steps=3)
    run = RunDirectory(training.directory)
    for _ in training:
        if training.step == 1:
            fill()
        elif training.step == 2:
            filler.unlink()
    assert (is_saved(run, "ckpt-1"), is_saved(run, "ckpt-2"), is_saved(run, "ckpt-3")) == (1, 0, 1)
    (refused,) = [e for e in read_entries(run) if e.kind is EventKind.REFUSED]
    # Four or more elements, as far as another thread has filled them.
    needed = r".*ckpt-{} needs about ([\d.]+) MB, and 16\.8 MB have to stay free; "
    found = re.match(needed.format(2), refused.message)
    assert found is not None and 4 < float(found[1]) < 12, refused.message

    # The first save after a start knows it from the restored checkpoint.
    shutil.rmtree(run.worker_state_directory("ckpt-1"))
    fill()
    training = make_run(small_disk / "run", dataset=dataset, save_every_steps=1, total_steps=5)
    for _ in training:
        if training.step == 4:
            *_, refused = [e for e in read_entries(run) if e.kind is EventKind.REFUSED]
            found = re.match(needed.format(4), refused.message)
            assert found is not None and 4 < float(found[1]) < 12, refused.message
            filler.unlink()


def test_a_directory_that_was_moved_away_is_described_anew(make_run):
    training = make_run(save_every_steps=1, total_steps=4)
    run = RunDirectory(training.directory)
    for step in training:
        if step == 2:
            before = load(run.run_file, RunInfo)
            run.root.rename(run.root.with_name("moved"))
    assert {path.stem for path in run.root.glob("*.index")} == {"ckpt-3", "ckpt-4"}
    after = load(run.run_file, RunInfo)
    assert (after.id, after.total_steps, after.strategy) == (before.id, 4, before.strategy)
    assert any("was moved or deleted while" in entry.message for entry in read_entries(run))


@pytest.mark.parametrize("is_moved", [True, False])
def test_nothing_is_saved_into_the_directory_of_another_run(make_run, tmp_path, is_moved):
    """Its checkpoints of these names would be taken for those of this one.

    A directory that was deleted and made again may have the same inode.
    """
    other = make_run(tmp_path / "other", save_every_steps=1, total_steps=6)
    for _ in other:
        pass
    own = make_run(tmp_path / "run", save_every_steps=1, total_steps=6)
    place, foreign, aside = (tmp_path / name for name in ("run", "other", "aside"))

    def exchange():
        pairs = [(place, aside), (foreign, place), (aside, foreign)]
        for old, new in pairs if is_moved else []:
            old.rename(new)
        for path in [] if is_moved else sorted(foreign.iterdir()):
            path.rename(aside / path.name)
        for old, new in [] if is_moved else [(place, foreign), (aside, place)]:
            for path in sorted(old.iterdir()):
                path.rename(new / path.name)

    if not is_moved:
        aside.mkdir()
    before = {path.name: path.read_bytes() for path in foreign.glob("ckpt-*")}
    for step in own:
        if step in (2, 4):
            exchange()
    assert {path.stem for path in place.glob("*.index")} == {f"ckpt-{n}" for n in (1, 2, 5, 6)}
    assert {path.name: path.read_bytes() for path in foreign.glob("ckpt-*")} == before
    # A directory is told from another by its number, and what is in one by its description.
    words = "another directory is in" if is_moved else "is the directory of another run now"
    told = [entry.message for entry in read_entries(RunDirectory(place if is_moved else foreign))]
    assert sum(words in message for message in told if message.startswith("Save ")) == 2
    infos = [load(RunDirectory(root).run_file, RunInfo) for root in (place, foreign)]
    assert infos[0].id != infos[1].id


def contents(root):
    """All files of a directory."""
    return {path: path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("kind", ["run", "plain"])
@pytest.mark.parametrize("by_link", [True, False])
def test_nothing_is_written_into_a_directory_that_comes_in_place_of_a_run(
    make_run, tmp_path, kind, by_link
):
    """Others can put one of this user there, if they may write to the directory above."""
    aside, other = tmp_path / "aside", tmp_path / "other"
    if kind == "run":
        for _ in make_run(other, total_steps=1):
            pass
    else:
        other.mkdir()
        (other / "ckpt-9.index").write_bytes(b"of another program")
    training = make_run(tmp_path / "run", save_every_steps=1, total_steps=6)
    root, before = training.directory, contents(other)
    for step in training:
        if step == 2:
            root.rename(aside)
            root.symlink_to(other) if by_link else other.rename(root)
        if step == 5:
            root.unlink() if by_link else root.rename(other)
            assert contents(other) == before
            aside.rename(root)
    assert {path.stem for path in root.glob("*.index")} == {f"ckpt-{n}" for n in (1, 2, 6)}
    told = [entry.message for entry in read_entries(RunDirectory(root))]
    refused = r"Save .* another directory is in place of that of the run now\."
    assert sum(re.match(refused, message) is not None for message in told) == 3
    assert contents(other) == before


def test_a_restart_remembers_since_when_a_metric_is_not_finite(make_run):
    def since(*, first, last):
        training = make_run(total_steps=last, save_every_steps=2)
        for step in training:
            training.report(loss=1.0 if step + 1 < first else float("nan"))
        (worker,) = read_workers(RunDirectory(training.directory))
        return [metric.step for metric in worker.not_finite]

    assert since(first=3, last=4) == [3]
    assert since(first=3, last=6) == [3]
    assert since(first=9, last=8) == []
    assert since(first=9, last=10) == [9]


@pytest.mark.parametrize(
    ("after_the_pause", "stays"),
    [
        ((EventKind.WORKER_LOST, EventKind.RESTART), True),
        ((EventKind.REQUEUE,), True),
        ((EventKind.FAILED,), False),
        ((EventKind.RESUME, EventKind.RESTART), False),
        ((EventKind.RESTART, EventKind.STOP), False),
    ],
)
def test_a_pause_outlives_a_restart_that_no_person_made(make_run, after_the_pause, stays):
    for _ in (training := make_run(total_steps=2, save_every_steps=1)):
        pass
    run, now = RunDirectory(training.directory), time.time()
    write_entry(run, EventEntry(at=now, kind=EventKind.PAUSE, message="Paused.", by="ada@host"))
    for kind in after_the_pause:
        write_entry(run, EventEntry(at=now, kind=kind, message="It happened."))
    # It is there before the first step.
    queue = CommandQueue(run)
    command = queue.submit(CommandKind.RESUME, {}, requested_by="test", lifetime=60)
    for step in (again := make_run(total_steps=4)):
        if step == 2:
            until_taken(again)
    message = queue.look_up(command.id).message
    expected = "Resumed after step 3." if stays else "Training was already running at step 3."
    assert message == expected
    entries = read_entries(run)
    again = [(e.step, e.by) for e in entries if "after the restart" in e.message]
    assert again == [(3, "ada@host")] * stays
    # Nothing of it comes back after the next death.
    write_entry(run, EventEntry(at=now, kind=EventKind.RESTART, message="It happened."))
    for _ in make_run(total_steps=5):
        pass
    assert len(read_entries(run)) > len(entries)
    assert sum("after the restart" in e.message for e in read_entries(run)) == stays


@pytest.mark.parametrize("value", [None, "much", [1.0, 2.0]])
def test_a_metric_that_is_no_number_is_refused_by_name(make_run, value):
    for _ in (training := make_run(total_steps=1)):
        with pytest.raises(UsageError, match=f"metric accuracy is not .* {type(value).__name__}"):
            training.report(loss=1.0, accuracy=value)


def test_a_restore_brings_back_the_best_value_of_its_step(make_run):
    training = make_run(total_steps=5, save_every_steps=2, save_on_improvement="score:min")
    run = RunDirectory(training.directory)
    scores, restore = iter([5.0, 4.0, 3.0, 2.0, 3.5, 3.7, 3.6]), {"name": "ckpt-2"}
    for _ in training:
        score = next(scores)
        if score == 2.0:
            CommandQueue(run).submit(CommandKind.RESTORE, restore, requested_by="test")
            until_taken(training)
        training.report(score=score)
    saved = load(run.record("ckpt-b1-3"), CheckpointRecord)
    assert (saved.trigger, saved.parent) == ("score improved to 3.5", "ckpt-2")
    assert load(run.record("ckpt-b1-5"), CheckpointRecord).best == {"score": 3.5}


def test_a_save_on_a_new_branch_keeps_since_when_a_metric_is_not_finite(make_run):
    training = make_run(total_steps=4, save_every_steps=2)
    run = RunDirectory(training.directory)
    for _ in training:
        (run.root / "ckpt-2.index").write_text("of another program")
        training.report(loss=float("nan"))
    (worker,) = read_workers(run)
    assert worker.directory == run.identity()
    assert worker.branch == 1
    assert [metric.step for metric in worker.not_finite] == [1]


def test_a_last_save_that_goes_elsewhere_collects_the_values_of_the_script_once(make_run, tmp_path):
    from tfckpt_trainer.training import SaveOptions

    training = make_run(total_steps=1, saving=SaveOptions(fallback_directory=tmp_path / "other"))
    calls = []
    training.before_save(lambda: calls.append(training.step))
    saving = RunDirectory(training.directory).saving_directory

    class FailingDisk(LocalDisk):
        def rename(self, source: Path, target: Path) -> None:
            if target.parent == saving:
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(target))
            super().rename(source, target)

    with using(FailingDisk()):
        for _ in training:
            pass
    assert calls == [1]
    assert list((tmp_path / "other").rglob("ckpt-1.index"))


@pytest.mark.parametrize("background", [False, True])
def test_all_that_a_save_writes_is_for_those_who_share_the_directory(
    make_run, tmp_path, background
):
    from tfckpt_trainer.training import SaveOptions

    root = tmp_path / "run"
    root.mkdir()
    root.chmod(0o2770)
    before = os.umask(0o077)
    try:
        saving = SaveOptions(background=background)
        list(make_run(save_every_steps=1, total_steps=2, saving=saving))
    finally:
        os.umask(before)
    places = [*root.glob("*"), *(root / ".tfckpt/workers").rglob("*")]
    assert len(places) > 8
    assert [path for path in places if not path.stat().st_mode & 0o040] == []


@pytest.mark.needs("root")
def test_a_state_that_a_colleague_keeps_private_is_not_called_damaged(
    make_run, open_place, become_nobody
):
    from tfckpt_trainer.training.checkpoint.restores.restore_check import find_damage

    list(make_run(open_place, total_steps=2))
    run = RunDirectory(open_place)
    state = run.worker_state_directory("ckpt-2") / "worker-0"
    state.with_name("worker-0.index").chmod(0o600)
    become_nobody()
    (problem,) = find_damage(state, "ckpt-2")
    assert problem.startswith(
        "worker-0 of ckpt-2 cannot be used: worker-0.index cannot be read: Permission denied. "
        "Run this as its owner, root."
    )
    (checkpoint,) = Catalog(run).scan(time.time())
    assert checkpoint.state is CheckpointState.UNREADABLE
    assert "worker-0.index cannot be read" in checkpoint.problem


def test_an_error_looks_for_another_trainer_once(make_run, monkeypatch):
    from tfckpt_trainer.training.loop import shutdown

    looks = []

    def find_other_trainer(run, index):
        looks.append(index)

    monkeypatch.setattr(shutdown, "find_other_trainer", find_other_trainer)
    make_run()
    sys.excepthook(ValueError, ValueError("wrong shape"), None)
    assert looks == [0]


def test_a_run_knows_the_command_of_its_script_and_tells_only_its_owner(make_run, monkeypatch):
    training = make_run(total_steps=1)
    file = RunDirectory(training.directory).command_file
    assert list(training) == [0]
    assert load(file, ScriptCommand).command == tuple(sys.orig_argv)
    assert file.stat().st_mode & 0o077 == 0
    # A launcher has stored its own.
    monkeypatch.setenv("TFCKPT_ATTEMPT", "0")
    assert list(make_run(total_steps=2)) == [1]
    assert not file.exists()


def test_a_script_that_was_not_launched_records_its_commit(make_run, monkeypatch, tmp_path):
    git = ("git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-C", str(tmp_path))
    subprocess.run([*git, "init", "-q", "-b", "trunk"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["-c"])
    training = make_run(total_steps=1)
    list(training)
    assert load(RunDirectory(training.directory).run_file, RunInfo).code.branch == "trunk"


def endings(run):
    return [(worker.ending, worker.step) for worker in read_workers(run)]


def test_after_an_interrupted_cell_another_run_goes_on_in_the_same_process(make_run):
    first = make_run(save_every_steps=2)
    run = RunDirectory(first.directory)

    def cell():
        for step in first:
            if step == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cell()
    assert endings(run) == [(Ending.STOPPED, 3)]
    with pytest.raises(UsageError, match="Create another TrainingRun"):
        next(iter(first))
    assert list(make_run(total_steps=4)) == [2, 3]
    assert endings(run) == [(Ending.FINISHED, 4)]


def test_a_run_that_was_left_open_is_closed_by_the_next(make_run):
    """Keras tells no callback that its loop was interrupted."""
    left = make_run(save_every_steps=2)
    run = RunDirectory(left.directory)
    left.open()
    for _ in range(3):
        left.step_done(0.1)
    later = make_run(total_steps=4)
    loop = iter(later)
    assert next(loop) == 2
    left.close()
    assert [ending for ending, _ in endings(run)] == [None]
    assert list(loop) == [3]
    assert endings(run) == [(Ending.FINISHED, 4)]


def test_after_a_refused_start_another_run_goes_on_in_the_same_process(make_run):
    refused = make_run(guards=["above loss 1: set nope 1"])
    run = RunDirectory(refused.directory)
    threads, files = set(threading.enumerate()), open_files()
    with pytest.raises(UsageError, match="no hyperparameter nope"):
        next(iter(refused))
    assert set(threading.enumerate()) <= threads and open_files() == files
    (worker,) = read_workers(run)
    assert worker.ending is Ending.FAILED and "no hyperparameter nope" in worker.detail
    assert list(make_run(total_steps=2)) == [0, 1]
    assert endings(run) == [(Ending.FINISHED, 2)]


def train_in_thread(run, act=lambda step: None):
    """Trains in a thread that calls `act` in each step."""

    def train():
        for step in run:
            act(step)

    thread = threading.Thread(target=train, name="training")
    thread.start()
    return thread


def test_the_model_of_an_earlier_run_is_not_missing_in_a_later_one(make_run, tmp_path):
    """As in a notebook, which keeps the model. The conftest looks for a false sentence."""
    import keras

    def create(name):
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        optimizer = keras.optimizers.Adam()
        optimizer.build(model.trainable_variables)
        return make_run(tmp_path / name, model=model, optimizer=optimizer, total_steps=1), (
            model,
            optimizer,
        )

    def train(name):
        run, kept = create(name)
        assert list(run) == [0]
        return kept

    kept = [train("ended"), create("never opened")[1]]
    # Nothing but these is left of them: the handlers of the process are those of this run.
    last = make_run(tmp_path / "later", total_steps=1)
    sys.excepthook = sys.__excepthook__
    gc.collect()
    assert list(last) == [0]
    assert all(model.built and optimizer.built for model, optimizer in kept)


def open_files() -> list[str]:
    """What the descriptors of this process refer to."""
    targets = []
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            targets.append(re.sub(r"\d+", "N", os.readlink(f"/proc/self/fd/{descriptor}")))
    return sorted(targets)


def test_a_run_leaves_no_thread_and_no_open_file_in_its_process(make_run, tmp_path):
    """As in a notebook. Objects of a run refer to each other, so they live until collected."""

    def train(name: str):
        training = make_run(tmp_path / name, save_every_steps=1, total_steps=2)
        for _ in training:
            pass
        return training

    kept = [train("first")]
    threads, files = set(threading.enumerate()), open_files()
    kept.append(train("second"))
    wait_until(lambda: set(threading.enumerate()) <= threads, 10, "the end of its threads")
    assert open_files() == files
    assert len(kept) == 2


def test_two_threads_cannot_train_in_one_directory(make_run):
    first = make_run()
    thread = train_in_thread(first)
    wait_until(lambda: first.step, 10, "a step")
    with pytest.raises(RefusedError, match=r"already trains in .*, in thread training\. Stop"):
        next(iter(make_run()))
    # The run that was refused leaves ctrl+c to others.
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    first.request_stop()
    thread.join(60)
    run = RunDirectory(first.directory)
    assert [ending for ending, _ in endings(run)] == [Ending.STOPPED]


def test_any_thread_can_ask_for_a_save(make_run):
    training = make_run()
    run = RunDirectory(training.directory)
    thread = train_in_thread(training)
    training.request_save("the node is drained")
    (path,) = wait_until(lambda: list(run.records_directory.glob("*.json")), 10, "a record")
    training.request_stop()
    thread.join(60)
    assert load(path, CheckpointRecord).trigger == "the node is drained"


@pytest.mark.parametrize("preempted", [False, True])
def test_any_thread_can_ask_for_a_stop(make_run, tmp_path, preempted):
    made, raised = [], []

    def train():
        made.append(make_run())
        try:
            for _ in made[0]:
                pass
        except SystemExit as error:
            raised.append(error.code)

    thread = threading.Thread(target=train)
    thread.start()
    wait_until(lambda: made and made[0].step, 10, "a step")
    made[0].request_stop("the node is drained", preempted=preempted)
    thread.join(60)
    assert raised == ([143] if preempted else [])
    run = RunDirectory(tmp_path / "run")
    ending = Ending.PREEMPTED if preempted else Ending.STOPPED
    step = made[0].step
    assert endings(run) == [(ending, step)]
    assert (run.root / f"ckpt-{step}.index").exists()
    said = [entry.message for entry in read_entries(run)]
    assert f"Stopped after step {step:,} ({ending.value}: the node is drained)." in said
    (told,) = [message for message in said if "outside the main thread" in message]
    assert "run.request_stop(preempted=True)" in told


def test_an_error_in_a_thread_ends_the_run_as_failed(make_run, tmp_path, capsys):

    def train():
        for step in make_run():
            if step == 2:
                raise ValueError("wrong shape")

    thread = threading.Thread(target=train)
    thread.start()
    thread.join(60)
    (worker,) = read_workers(RunDirectory(tmp_path / "run"))
    assert worker.ending is Ending.FAILED
    assert worker.detail.endswith("ValueError: wrong shape")
    assert "wrong shape" in capsys.readouterr().err


@pytest.fixture
def fit_here(tmp_path, make_run):
    """Fits a small model for 1,000 epochs of one step."""
    import keras
    import numpy as np

    from tfckpt_trainer.training import fit

    def fit_model(callback):
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile(optimizer="sgd", loss="mse")
        x, y = np.ones((4, 2)), np.ones((4, 1))
        act = keras.callbacks.LambdaCallback(on_epoch_end=callback)
        options = {"run_dir": tmp_path / "run", "save_every_epochs": None, "verbose": 0}
        return fit(model, x, y, epochs=1000, callbacks=[act], **options)

    return fit_model


def test_a_fit_that_was_interrupted_goes_on_with_the_next_in_the_same_process(fit_here, tmp_path):
    from tfckpt_trainer.training import request_stop

    began = []

    def interrupt(epoch, _logs):
        if epoch == 3:
            raise KeyboardInterrupt

    def stop(epoch, _logs):
        began.append(epoch)
        request_stop("enough")

    run = RunDirectory(tmp_path / "run")
    thread = threading.Thread(target=fit_here, args=(stop,))
    thread.start()
    thread.join(60)
    # The workers agree on it in the next step.
    assert began == [0, 1]
    assert endings(run) == [(Ending.STOPPED, 2)]
    assert any("(stopped: enough)" in entry.message for entry in read_entries(run))
    with pytest.raises(KeyboardInterrupt):
        fit_here(interrupt)
    assert endings(run) == [(Ending.STOPPED, 3)]
    fit_here(stop)
    assert began == [0, 1, 2, 3]


RESET = (
    "Collective ops is aborted by: recvmsg:Connection reset by peer\n"
    "Additional GRPC error information from remote target /job:worker/replica:0/task:2 while "
    "calling /tensorflow.WorkerService/RecvBuf"
)
UNHEALTHY = (
    "Error reported from /job:worker/task:0: The following tasks are unhealthy:\n"
    "/job:worker/replica:0/task:2\nThe tasks have crashed."
)
NO_ANSWER = "Collective ops is aborted by: Deadline Exceeded\nRPC: /tensorflow.CoordinationService"


@pytest.mark.parametrize(
    ("index", "size", "message", "lost"),
    [
        (1, 3, RESET, 2),
        (1, 3, UNHEALTHY, 2),
        (1, 3, f"{NO_ANSWER}/Heartbeat", 0),
        (0, 3, "Collective ops is aborted", None),
        (0, 2, "Collective ops is aborted", 1),
        (1, 2, "Collective ops is aborted", 0),
    ],
)
def test_a_message_of_tensorflow_tells_which_worker_was_lost(index, size, message, lost):
    from tfckpt_trainer.training.workers.worker_group import WorkerGroup, find_lost_peer

    class Workers(WorkerGroup):
        def __init__(self):
            self.index, self.size = index, size

        def index_of(self, job, task):
            return task if job == "worker" else None

    assert find_lost_peer(Workers(), message) == lost


@pytest.mark.parametrize("length", [0, 1, 1997, 1998, 1999, 10_000])
def test_each_worker_gets_the_values_of_all_whatever_their_length(length):
    from tfckpt_trainer.training.workers.worker_group import WorkerGroup

    met = threading.Barrier(3)
    added = {}

    class Workers(WorkerGroup):
        def __init__(self, index):
            self.index, self.size = index, 3

        def _sum(self, values):
            added[self.index] = values
            met.wait(10)
            total = sum(added.values())
            met.wait(10)
            return total

    def talk(index):
        group = Workers(index)
        # The last one has more to say than the others, and its bytes are of every kind.
        value = "é" * (length // 2) + "x" * (length % 2) if index == 2 else str(index)
        return value, group.all_gather(value), group.broadcast(value, str), group.any(index == 1)

    with ThreadPoolExecutor(3) as pool:
        heard = list(pool.map(talk, range(3)))
    said = [value for value, *_ in heard]
    assert [(all_of, first, flag) for _, all_of, first, flag in heard] == [(said, "0", True)] * 3
