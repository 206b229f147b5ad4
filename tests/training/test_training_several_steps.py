"""A call of several steps does what as many calls do, and ends where the run has to act."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from training_cluster import Cluster

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.worker import WorkerStatus
from tfckpt_trainer.rundir.storage.documents import load
from tfckpt_tui.services.control.request import FrontEnd
from tfckpt_tui.services.control.restore import choose_start
from weekly import weekly

pytestmark = pytest.mark.tensorflow

STEPS = 23
"""Batches of the worker that has the fewest."""


def train(place, strategy, workers, steps_per_call, *arguments, attempts=1):
    """Trains to the end; returns the lines that each worker logged."""
    place.mkdir(exist_ok=True)
    log = place / f"calls-of-{steps_per_call}"
    options = ["--log", str(log), "--steps-per-call", str(steps_per_call), *arguments]
    for number in range(attempts):
        dies = ["--die-after", "14"] * (number + 1 < attempts)
        with Cluster(
            place / "run", "several_steps.py", [*options, *dies], workers, strategy
        ) as cluster:
            expected = -signal.SIGKILL if dies else 0
            assert expected in cluster.wait(), cluster.output()
    return [
        [json.loads(line) for line in Path(f"{log}-{worker}").read_text().splitlines()]
        for worker in range(workers)
    ]


def losses(run, branch):
    """The loss of each step in the event files of the chief."""
    events = EventAccumulator(str(run.tensorboard / f"branch-{branch}"), {"tensors": 0})
    events.Reload()
    return {event.step: event.tensor_proto.SerializeToString() for event in events.Tensors("loss")}


@pytest.mark.parametrize(
    ("strategy", "workers"),
    [("one-device", 1), *weekly(("multi-worker", 2))],
)
def test_a_call_of_several_steps_has_the_same_bits_as_one_call_a_step(tmp_path, strategy, workers):
    run = RunDirectory(tmp_path / "run")
    four = train(tmp_path, strategy, workers, 4)
    assert load(run.worker_status(0), WorkerStatus).steps_per_call == 4
    for step in (5, 10, 15, 20, 23):
        assert run.record(f"ckpt-{step}").exists()
    # The second start trains the steps after the fifth again, on another branch.
    choose_start(run, "ckpt-5", through=FrontEnd.COMMAND_LINE)
    one = train(tmp_path, strategy, workers, 1)
    for of_one, of_four in zip(one, four, strict=True):
        by_step = {line["step"]: line for line in of_one}
        assert [*by_step] == [*range(6, STEPS + 1)]
        # The first step of a process is traced alone; each fifth step is saved.
        assert [line["steps"] for line in of_four] == [1, 4, 4, 1, 4, 1, 4, 1, 3]
        for line in of_four[2:]:
            assert line | {"steps": 1} == by_step[line["step"]]
    of_four, of_one = losses(run, 0), losses(run, 1)
    assert [*of_four] == [*range(1, STEPS + 1)]
    assert of_one == {step: of_four[step] for step in range(6, STEPS + 1)}


@pytest.mark.weekly  # The test above restarts from a checkpoint that calls of four steps saved.
def test_a_restart_whose_calls_begin_elsewhere_has_the_same_bits(tmp_path):
    [whole] = train(tmp_path / "whole", "one-device", 1, 4, "--endless")
    [again] = train(tmp_path / "again", "one-device", 1, 4, "--endless", attempts=2)
    # The second process begins with step 11, alone, and so do the calls after it.
    assert [line["step"] for line in again[5:]] == [11, 15, 19, 20, 23]
    expected = {line["step"]: line["state"] for line in whole}
    shared = [line for line in again if line["step"] in expected]
    assert {line["step"] for line in shared} >= {15, 19, 20, 23}
    assert all(line["state"] == expected[line["step"]] for line in shared)


def numbers(count):
    """The numbers from 0, as a dataset."""
    import tensorflow as tf

    return tf.data.Dataset.range(count).map(lambda number: tf.cast(number, tf.float32))


def plain(number):
    """A step that reports its input."""
    return number + 0.0


def test_a_metric_that_is_not_finite_in_the_middle_of_a_call_has_the_step_of_it(make_run):
    run = make_run(dataset=numbers(9))
    # Infinite in step 4 only: the call is of the steps 2 to 5.
    train_step = run.function(lambda number: 1.0 / (number - 3.0), steps_per_call=4)
    for batch in run:
        train_step(batch)
    [entry] = [
        entry
        for entry in read_entries(RunDirectory(run.directory))
        if entry.kind is EventKind.NOT_FINITE
    ]
    assert entry.step == 4


def test_the_run_acts_after_the_call_in_which_it_was_asked(make_run):
    run = make_run(dataset=numbers(30), total_steps=30)
    train_step, begun = run.function(plain, steps_per_call=4), []
    for batch in run:
        begun.append(run.step)
        train_step(batch)
        if run.step == 5:
            run.stop()
    # The workers ask each other in the next call.
    assert begun == [0, 1, 5, 9]
    assert (run.directory / "ckpt-13.index").exists()


def test_a_run_without_a_dataset_yields_the_numbers_of_the_steps(make_run):
    import tensorflow as tf

    run = make_run(total_steps=6)
    train_step = run.function(plain, steps_per_call=3)
    yielded = []
    for steps in run:
        yielded.append(steps)
        train_step([tf.constant(float(step)) for step in steps])
    assert yielded == [[0], [1, 2, 3], [4, 5]]


def test_a_run_has_one_function_of_several_steps(make_run):
    run = make_run(dataset=numbers(9))
    run.function(plain)
    with pytest.raises(UsageError, match="has one step function"):
        run.function(plain, steps_per_call=2)
    run = make_run(dataset=numbers(9))
    run.function(plain, steps_per_call=2)
    with pytest.raises(UsageError, match="has one step function"):
        run.function(plain)
    for wrong in (0, "8", 2.5, True):
        with pytest.raises(UsageError, match=f"steps_per_call is {wrong!r}; it must be a whole"):
            make_run(dataset=numbers(9)).function(plain, steps_per_call=wrong)


def test_a_call_takes_the_whole_list_and_once(make_run):
    def train(body):
        run = make_run(dataset=numbers(9), total_steps=9)
        train_step = run.function(plain, steps_per_call=4)
        for batches in run:
            body(train_step, batches)

    def each(train_step, batches):
        for batch in batches:
            train_step([batch])

    for body, problem in (
        (lambda step, batches: step(batches[:2]), "a list of 2, and .* a list of 4"),
        (each, "a list of 1, and .* a list of 4"),
        (lambda step, batches: (step(batches), step(batches)), "called twice"),
        (lambda step, batches: step(batches[0]), "called with EagerTensor"),
    ):
        with pytest.raises(UsageError, match=problem):
            train(body)


def test_several_workers_have_to_know_how_much_data_is_left():
    from tfckpt_trainer.training.steps.dataset_end import DatasetEnd
    from tfckpt_trainer.training.steps.step_functions import CallLength
    from tfckpt_trainer.training.steps.step_reader import StepReader

    def ends(dataset, on_end="stop"):
        inputs = SimpleNamespace(reader=StepReader(dataset, 1, mark=True))
        return DatasetEnd(SimpleNamespace(size=2, index=0), inputs, None, on_end, CallLength([]))

    ends(numbers(9)).refuse_calls_of_several_steps()
    ends(numbers(9).repeat(), "wait").refuse_calls_of_several_steps()
    with pytest.raises(UsageError, match='does not go with on_dataset_end="wait"'):
        ends(numbers(9), "wait").refuse_calls_of_several_steps()
    with pytest.raises(UsageError, match="assert_cardinality"):
        ends(numbers(9).filter(lambda number: number < 5)).refuse_calls_of_several_steps()


def test_the_fit_of_keras_counts_the_steps_of_an_execution(tmp_path):
    import keras
    import numpy as np

    from tfckpt_trainer.training import SteeringCallback, TrainingRun

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution=4)
    run = TrainingRun(tmp_path / "run", model=model, optimizer=model.optimizer, save_every_steps=6)
    x = np.ones((20, 2), "float32")
    model.fit(x, x[:, :1], 2, 2, callbacks=[SteeringCallback(run)], verbose=0)
    assert run.step == 20
    # Executions end after the steps 4, 8, 10, 14, 18 and 20.
    saved = [entry.step for entry in read_entries(RunDirectory(run.directory)) if entry.checkpoint]
    assert saved == [8, 14, 18, 20]


def test_fit_calls_callbacks_as_often_as_the_step_function(tmp_path):
    import keras
    import numpy as np

    from tfckpt_trainer.training import fit

    class Numbers(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            calls.append([batch])

        def on_train_batch_end(self, batch, logs=None):
            calls[-1].append(batch)

    calls = []
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution=4)
    x = np.ones((20, 2), "float32")
    fit(model, x, x[:, :1], 2, 2, run_dir=tmp_path / "run", callbacks=[Numbers()], verbose=0)
    assert calls == [[0, 0], [1, 4], [5, 8], [9, 9], [0, 3], [4, 7], [8, 9]]
