"""A `TrainingRun` within the process of the test: what it writes down, and how it ends."""

from __future__ import annotations

import signal
import sys

import pytest

from tfckpt_trainer.rundir.documents import load, remove, store
from tfckpt_trainer.rundir.journal import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, SaveManifest, SavePhase
from tfckpt_trainer.rundir.records.event import JournalKind

pytestmark = pytest.mark.tensorflow


@pytest.fixture
def make_run(tmp_path, monkeypatch):
    """Makes a run of a small model; afterwards signals and uncaught errors are as before."""
    import keras

    from tfckpt_trainer.training import TrainingRun

    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    numbers = (signal.SIGTERM, signal.SIGUSR1)
    handlers = {number: signal.getsignal(number) for number in numbers}

    def make(**options) -> TrainingRun:
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        return TrainingRun(tmp_path / "run", model=model, **options)

    yield make
    for number, handler in handlers.items():
        signal.signal(number, handler)


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
            while not list(run.root.glob("ckpt-1.index")) or list(run.saving_directory.iterdir()):
                pass
            interrupt_commit(run, "ckpt-1")
    assert {path.stem for path in run.root.glob("*.index")} == {"ckpt-1", "ckpt-2"}
    saves = [e for e in read_entries(run) if e.kind is JournalKind.SAVE and e.checkpoint]
    completed = [e for e in saves if "Completed" in e.message]
    assert [entry.checkpoint for entry in completed] == ["ckpt-1"]


def test_a_last_save_that_goes_elsewhere_collects_the_values_of_the_script_once(make_run, tmp_path):
    from tfckpt_trainer.training import SaveOptions

    training = make_run(total_steps=1, saving=SaveOptions(fallback_directory=tmp_path / "other"))
    calls = []
    training.before_save(lambda: calls.append(training.step))
    for _ in training:
        saving = RunDirectory(training.directory).saving_directory
        saving.rmdir()
        saving.write_text("no directory")
    assert calls == [1]
    assert list((tmp_path / "other").rglob("ckpt-1.index"))


def test_an_error_looks_for_another_trainer_once(make_run, monkeypatch):
    from tfckpt_trainer.training.loop import shutdown

    looks = []

    def find_other_trainer(run, index):
        looks.append(index)

    monkeypatch.setattr(shutdown, "find_other_trainer", find_other_trainer)
    make_run()
    sys.excepthook(ValueError, ValueError("wrong shape"), None)
    assert looks == [0]
