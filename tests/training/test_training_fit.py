"""Keras training by `fit`: under any strategy, resumed in mid-epoch, taken back across epochs."""

from __future__ import annotations

import json
import signal

import pytest
from steered import SteeredRun
from training_cluster import Cluster

from tfckpt_trainer.rundir.records.command import CommandKind, CommandState
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.records.worker import Ending
from tfckpt_trainer.rundir.storage.documents import load
from weekly import weekly

pytestmark = pytest.mark.tensorflow

STEPS = 10
"""In one epoch: 80 examples a replica in batches of 8."""


def lines(log, worker):
    path = log.with_name(f"{log.name}-{worker}.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def by_place(log, worker, *, last):
    """What was logged of each batch and each end of an epoch; the first time, or the last."""
    found = {}
    for line in lines(log, worker):
        place = (line["epoch"], line.get("batch", "end"))
        if last or place not in found:
            found[place] = line
    return found


def train(run_dir, log, strategy, workers, *arguments):
    return Cluster(run_dir, "fitted.py", ["--log", str(log), *arguments], workers, strategy)


@pytest.mark.parametrize("how", [[], *weekly(["--in-parts"])])
@pytest.mark.parametrize(
    ("strategy", "workers"),
    [("multi-worker", 2), *weekly(("one-device", 1), ("mirrored", 1))],
)
def test_a_fit_resumed_in_mid_epoch_is_the_fit_that_never_stopped(tmp_path, strategy, workers, how):
    whole = tmp_path / "whole"
    with train(tmp_path / "run", whole, strategy, workers) as cluster:
        assert cluster.wait() == [0] * workers, cluster.output()
        history = cluster.log(0).read_text().split("history ")[1]
    rates = [line["rate"] for line in lines(whole, 0) if "rate" in line]
    assert rates[-1] < rates[0]
    expected = [by_place(whole, worker, last=False) for worker in range(workers)]
    assert [len(places) for places in expected] == [6 * (STEPS + 1)] * workers

    cut, killed, resumed = tmp_path / "cut", tmp_path / "killed", tmp_path / "resumed"
    # Saved at step 14, in the middle of epoch 1, and at 21 and 28; killed in epoch 3.
    with train(cut, killed, strategy, workers, "--die-after", "33", *how) as cluster:
        assert -signal.SIGKILL in cluster.wait(), cluster.output()
    with train(cut, resumed, strategy, workers, *how) as cluster:
        assert cluster.wait() == [0] * workers, cluster.output()
        assert cluster.log(0).read_text().split("history ")[1] == history

    for worker in range(workers):
        found = by_place(resumed, worker, last=False)
        first = min(found, key=lambda place: (place[0], place[1] == "end", str(place[1])))
        # Which save was the last to be whole depends on the disk if they go on beside training.
        assert first == (2, 8) if not how else first > (0, 0)
        for place, line in found.items():
            assert line == expected[worker][place], place


@pytest.mark.weekly  # With callbacks it runs at each change: test_training_fit_callbacks.py.
@pytest.mark.parametrize(("strategy", "workers"), [("mirrored", 1), ("multi-worker", 2)])
def test_going_back_into_an_earlier_epoch_repeats_it_exactly(tmp_path, strategy, workers):
    log = tmp_path / "log"
    with train(tmp_path / "run", log, strategy, workers, "--restore-after", "33") as cluster:
        assert cluster.wait() == [0] * workers, cluster.output()
    for worker in range(workers):
        first, again = by_place(log, worker, last=False), by_place(log, worker, last=True)
        written = [(line["epoch"], line.get("batch", "end")) for line in lines(log, worker)]
        assert written.count((0, 6)) == 1
        assert written.count((0, 7)) == written.count((2, 0)) == written.count((1, "end")) == 2
        assert again == first
    run = SteeredRun(cluster)
    assert "ckpt-b1-14" in run.names()


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
def test_a_preempted_fit_goes_on_with_the_very_next_batch(tmp_path, strategy, workers):
    log = tmp_path / "log"
    with train(tmp_path / "run", log, strategy, workers, "--slow") as cluster:
        SteeredRun(cluster).wait_for_step(STEPS + 3)
        cluster.processes[-1].terminate()
        assert cluster.wait() == [143] * workers, cluster.output()
    with train(tmp_path / "run", log, strategy, workers) as cluster:
        assert cluster.wait() == [0] * workers, cluster.output()
    for worker in range(workers):
        places = [(line["epoch"], line["batch"]) for line in lines(log, worker) if "batch" in line]
        assert places == [(epoch, batch) for epoch in range(6) for batch in range(STEPS)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("multi-worker", 2), ("one-device", 1)),
        *weekly((("one-device", 1), ("multi-worker", 2))),
    ],
)
def test_a_fit_goes_on_with_another_number_of_workers(tmp_path, before, after):
    first, second = tmp_path / "first", tmp_path / "second"
    with train(tmp_path / "run", first, *before, "--epochs", "2") as cluster:
        assert cluster.wait() == [0] * before[1], cluster.output()
    with train(tmp_path / "run", second, *after, "--epochs", "3") as cluster:
        assert cluster.wait() == [0] * after[1], cluster.output()
    for worker in range(after[1]):
        assert min(place[0] for place in by_place(second, worker, last=False)) == 2
    assert f"ckpt-{3 * STEPS}" in SteeredRun(cluster).names()


def test_a_fit_of_a_changed_model_is_refused_unless_it_is_to_take_what_fits(tmp_path):
    log = tmp_path / "log"
    with train(tmp_path / "run", log, "mirrored", 1, "--epochs", "1") as cluster:
        assert cluster.wait() == [0], cluster.output()
    wider = ("mirrored", 1, "--width", "24", "--epochs", "2")
    with train(tmp_path / "run", log, *wider) as cluster:
        assert cluster.wait() == [1], cluster.output()
        assert "8×16 in the checkpoint and float32 8×24 in the model" in cluster.output()
    with train(tmp_path / "run", log, *wider, "--partial") as cluster:
        assert cluster.wait() == [0], cluster.output()
    assert f"ckpt-{2 * STEPS}" in SteeredRun(cluster).names()


def test_commands_are_served_between_batches(tmp_path):
    arguments = ["--slow", "--epochs", "100"]
    with train(tmp_path / "run", tmp_path / "log", "multi-worker", 2, *arguments) as cluster:
        run = SteeredRun(cluster)
        run.wait_for_step(3)
        assert run.ask(CommandKind.PAUSE).state is CommandState.DONE
        saved = run.ask(CommandKind.SAVE)
        assert saved.state is CommandState.DONE
        assert run.ask(CommandKind.RESUME).state is CommandState.DONE
        run.progress()
        stopped = run.ask(CommandKind.STOP)
        assert stopped.state is CommandState.DONE
        assert cluster.wait() == [0, 0], cluster.output()
    assert {worker.ending for worker in run.workers()} == {Ending.STOPPED}
    assert {saved.result["name"], stopped.result["name"]} <= run.names()
    assert load(run.run.run_file, RunInfo).epoch_steps == STEPS, "charts count epochs by it"


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


def test_the_fit_of_keras_begins_with_the_epoch_of_its_checkpoint(tmp_path):
    with Cluster(tmp_path / "run", "kept_fit.py", ["--epochs", "3"], 1, "mirrored") as cluster:
        assert cluster.wait() == [0], cluster.output()
    assert SteeredRun(cluster).names() == {"ckpt-30"}
    with Cluster(tmp_path / "run", "kept_fit.py", ["--epochs", "5"], 1, "mirrored") as cluster:
        assert cluster.wait() == [0], cluster.output()
        assert "epochs 3 4" in cluster.output()
    assert SteeredRun(cluster).names() == {"ckpt-30", "ckpt-50"}


def test_the_fit_of_keras_on_several_workers_is_refused_with_the_way_round(tmp_path):
    with Cluster(tmp_path / "run", "kept_fit.py", [], 2, "multi-worker") as cluster:
        assert cluster.wait() == [1, 1], cluster.output()
        assert "Use tfckpt_trainer.training.fit" in cluster.output()
