"""Keras training by `fit`: under any strategy, resumed in mid-epoch, taken back across epochs."""

from __future__ import annotations

import json
import os
import shutil
import signal
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from kerases import KERAS_2, KERAS_3, environment_of
from steered import SteeredRun
from training_cluster import Cluster

from documentation import ROOT, python_blocks
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.records.worker import Ending
from tfckpt_trainer.rundir.storage.documents import load
from weekly import weekly

pytestmark = pytest.mark.tensorflow

STEPS = 10
"""In one epoch: 80 examples a replica in batches of 8."""

EPOCHS = 4


def lines(log, worker):
    path = log.with_name(f"{log.name}-{worker}.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def place_of(line):
    return line["epoch"], line.get("batch", "end")


def by_place(log, worker, *, last):
    """What was logged of each batch and each end of an epoch; the first time, or the last."""
    found = {}
    for line in lines(log, worker):
        if last or place_of(line) not in found:
            found[place_of(line)] = line
    return found


def test_the_lines_of_the_readme_for_keras_train_and_save(tmp_path):
    import keras
    import tensorflow as tf

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    dataset = tf.data.Dataset.from_tensors((tf.ones((4, 2)), tf.ones((4, 1))))
    (block,) = (block for block in python_blocks(ROOT / "README.md") if "fit(" in block)
    exec(block, {"model": model, "dataset": dataset, "run_dir": tmp_path / "run"})
    assert RunDirectory(tmp_path / "run").record("ckpt-20").exists()


def last_step(cluster):
    """The step of the last checkpoint, on whichever branch."""
    return max(int(name.rpartition("-")[2]) for name in SteeredRun(cluster).names())


def train(run_dir, log, strategy, workers, *arguments, keras=KERAS_3):
    words = ["--log", str(log), *arguments]
    return Cluster(run_dir, "fitted.py", words, workers, strategy, environment_of(keras))


@dataclass
class Resumed:
    """A fit that went back from epoch 3 into epoch 0, was killed, and resumed to its end."""

    run_dir: Path
    begun: Path
    resumed: Path
    history: list[float]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Returns such a fit, by its strategy, number of workers, further arguments and Keras."""

    @cache
    def train_and_resume(strategy, workers, *how, keras=KERAS_3):
        place = tmp_path_factory.mktemp("fit")
        run_dir, begun, resumed = place / "run", place / "begun", place / "resumed"
        words = ["--epochs", str(EPOCHS), *how]
        dies = ["--restore-after", "33", "--die-after", "44"]
        with train(run_dir, begun, strategy, workers, *words, *dies, keras=keras) as cluster:
            assert -signal.SIGKILL in cluster.wait(), cluster.output()
        # A file of others, with a name that is not UTF-8.
        index = next(run_dir.glob("ckpt-*.index"))
        shutil.copy(index, run_dir / os.fsdecode(b"\xff\xfe-8.index"))
        with train(run_dir, resumed, strategy, workers, *words, keras=keras) as cluster:
            assert cluster.wait() == [0] * workers, cluster.output()
            history = cluster.log(0).read_text().split("history ")[1].splitlines()[0]
        return Resumed(run_dir, begun, resumed, json.loads(history))

    return train_and_resume


@pytest.mark.weekly  # `test_training_several_steps.py` compares the bits of a loop on two workers.
def test_several_steps_in_a_call_train_arrays_on_two_workers_with_the_same_bits(tmp_path):
    ends = {}
    for steps in ("1", "4"):
        words = ["--arrays", "--epochs", "2", "--steps-per-execution", steps]
        log = tmp_path / f"log-{steps}"
        with train(tmp_path / f"run-{steps}", log, "multi-worker", 2, *words) as cluster:
            assert cluster.wait() == [0, 0], cluster.output()
        ends[steps] = [
            {place: line.get("digest") for place, line in by_place(log, worker, last=True).items()}
            for worker in range(2)
        ]
    for one, four in zip(ends["1"], ends["4"], strict=True):
        assert one[1, 9] == four[1, 9] is not None
        assert len(four) < len(one)


@pytest.mark.parametrize("how", [[], *weekly(["--in-parts"])])
@pytest.mark.parametrize(
    ("strategy", "workers"),
    [("multi-worker", 2), *weekly(("one-device", 1), ("mirrored", 1))],
)
@pytest.mark.parametrize("keras", [KERAS_3, KERAS_2])
def test_a_fit_that_went_back_and_was_resumed_in_mid_epoch_is_the_fit_that_did_neither(
    trained, keras, strategy, workers, how
):
    fit = trained(strategy, workers, *how, keras=keras)
    for worker in range(workers):
        expected = by_place(fit.begun, worker, last=False)
        # Three epochs and what followed, until the chief had found the command.
        assert len(expected) >= 3 * (STEPS + 1) + 3
        rates = [line["rate"] for line in expected.values() if "rate" in line]
        assert rates[-1] < rates[0]
        written = [place_of(line) for line in lines(fit.begun, worker)]
        assert written.count((0, 6)) == 1
        assert written.count((0, 7)) == written.count((0, "end")) == written.count((1, 5)) == 2
        assert by_place(fit.begun, worker, last=True) == expected

        found = by_place(fit.resumed, worker, last=False)
        # Resumed after the save of step 14 on branch 1. Which save was the last to be whole depends
        # on the disk if they go on beside training.
        assert next(iter(found)) == (1, 4) if not how else next(iter(found)) > (0, 0)
        assert (EPOCHS - 1, "end") in found
        for place in expected.keys() & found.keys():
            assert found[place] == expected[place], place
        if worker == 0:
            ends = [(expected | found)[epoch, "end"]["end"]["loss"] for epoch in range(EPOCHS)]
            assert [loss.hex() for loss in fit.history] == ends


@pytest.mark.weekly
def test_early_stopping_ends_all_workers_after_the_same_epoch_as_a_finished_run(tmp_path):
    log = tmp_path / "log"
    with train(tmp_path / "run", log, "multi-worker", 2, "--patience", "2") as cluster:
        assert cluster.wait() == [0, 0], cluster.output()
    run = SteeredRun(cluster)
    assert {worker.ending for worker in run.workers()} == {Ending.FINISHED}
    assert {worker.step for worker in run.workers()} == {3 * STEPS}
    names, batches = run.names(), len(lines(log, 1))
    assert f"ckpt-{3 * STEPS}" in names

    with train(tmp_path / "run", log, "multi-worker", 2, "--patience", "2") as cluster:
        assert cluster.wait() == [0, 0], cluster.output()
    assert (run.names(), len(lines(log, 1))) == (names, batches)
    assert "Nothing to train: a callback set model.stop_training in epoch 3" in cluster.output()


@pytest.mark.parametrize(
    ("strategy", "workers"),
    [
        pytest.param("one-device", 1, marks=pytest.mark.matrix),
        *weekly(("mirrored", 1), ("multi-worker", 2)),
    ],
)
def test_a_fit_serves_commands_and_goes_on_after_a_preemption_with_the_very_next_batch(
    tmp_path, strategy, workers
):
    log = tmp_path / "log"
    slow = ["--slow", "--epochs", "100"]
    with train(tmp_path / "run", log, strategy, workers, *slow) as cluster:
        run = SteeredRun(cluster)
        run.wait_for_step(3)
        assert run.ask(CommandKind.PAUSE).state is CommandState.DONE
        saved = run.ask(CommandKind.SAVE)
        assert saved.state is CommandState.DONE
        assert run.ask(CommandKind.RESUME).state is CommandState.DONE
        run.wait_for_step(STEPS + 3)
        cluster.processes[-1].terminate()
        assert cluster.wait() == [143] * workers, cluster.output()
    with train(tmp_path / "run", log, strategy, workers, *slow) as cluster:
        run = SteeredRun(cluster)
        run.progress()
        stopped = run.ask(CommandKind.STOP)
        assert stopped.state is CommandState.DONE
        assert cluster.wait() == [0] * workers, cluster.output()
    assert {worker.ending for worker in run.workers()} == {Ending.STOPPED}
    assert {saved.result["name"], stopped.result["name"]} <= run.names()
    assert load(run.run.run_file, RunInfo).epoch_steps == STEPS, "charts count epochs by it"
    for worker in range(workers):
        places = [place_of(line) for line in lines(log, worker) if "batch" in line]
        assert len(places) == stopped.result["step"] > STEPS + 3
        assert places == [divmod(step, STEPS) for step in range(len(places))]


@pytest.mark.weekly  # `test_training_elastic.py` shows it of a loop.
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("multi-worker", 2), ("one-device", 1)),
        (("one-device", 1), ("multi-worker", 2)),
    ],
)
def test_a_fit_goes_on_with_another_number_of_workers(trained, tmp_path, before, after):
    run_dir, log = tmp_path / "run", tmp_path / "log"
    shutil.copytree(trained(*before).run_dir, run_dir)
    with train(run_dir, log, *after, "--epochs", str(EPOCHS + 1)) as cluster:
        assert cluster.wait() == [0] * after[1], cluster.output()
    for worker in range(after[1]):
        assert next(iter(by_place(log, worker, last=False))) == (EPOCHS, 0)
    assert last_step(cluster) == (EPOCHS + 1) * STEPS


def test_a_fit_of_a_changed_model_is_refused_unless_it_is_to_take_what_fits(trained, tmp_path):
    run_dir, log = tmp_path / "run", tmp_path / "log"
    shutil.copytree(trained("multi-worker", 2).run_dir, run_dir)
    wider = ("one-device", 1, "--width", "24", "--epochs", str(EPOCHS + 1))
    with train(run_dir, log, *wider) as cluster:
        assert cluster.wait() == [1], cluster.output()
        assert "8×16 in the checkpoint and float32 8×24 in the model" in cluster.output()
    with train(run_dir, log, *wider, "--partial") as cluster:
        assert cluster.wait() == [0], cluster.output()
    assert last_step(cluster) == (EPOCHS + 1) * STEPS


@pytest.mark.parametrize("strategy", ["one-device", *weekly("mirrored")])
def test_the_fit_of_keras_is_steered_by_a_callback(tmp_path, strategy):
    with Cluster(tmp_path / "run", "kept_fit.py", [], 1, strategy) as cluster:
        run = SteeredRun(cluster)
        run.wait_for_step(12)
        saved = run.ask(CommandKind.SAVE)
        assert saved.state is CommandState.DONE, saved.message
        assert run.ask(CommandKind.PAUSE).state is CommandState.DONE
        assert run.ask(CommandKind.RESUME).state is CommandState.DONE
        run.progress()
        restored = run.ask(CommandKind.RESTORE, name=saved.result["name"])
        assert restored.state is CommandState.DONE, restored.message
        assert restored.result["step"] == saved.result["step"]
        run.progress()
        stopped = run.ask(CommandKind.STOP)
        assert stopped.state is CommandState.DONE
        assert cluster.wait() == [0], cluster.output()
    assert "note" in run.event_log()


@pytest.mark.parametrize(
    "keras",
    [
        # In one process it does at each change: test_training_finished.py.
        *weekly(KERAS_3),
        KERAS_2,
    ],
)
def test_the_fit_of_keras_begins_with_the_epoch_of_its_checkpoint(tmp_path, keras):
    def train_until(epochs):
        words = ["--epochs", epochs]
        place, environment = tmp_path / "run", environment_of(keras)
        return Cluster(place, "kept_fit.py", words, 1, "mirrored", environment)

    with train_until("3") as cluster:
        assert cluster.wait() == [0], cluster.output()
    assert SteeredRun(cluster).names() == {"ckpt-30"}
    with train_until("5") as cluster:
        assert cluster.wait() == [0], cluster.output()
        assert "epochs 3 4" in cluster.output()
    assert SteeredRun(cluster).names() == {"ckpt-30", "ckpt-50"}


def test_the_fit_of_keras_on_several_workers_is_refused_with_the_way_round(tmp_path):
    with Cluster(tmp_path / "run", "kept_fit.py", [], 2, "multi-worker") as cluster:
        assert cluster.wait() == [1, 1], cluster.output()
        assert "Use tfckpt_trainer.training.fit" in cluster.output()
