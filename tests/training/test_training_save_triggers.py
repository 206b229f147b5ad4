"""Triggers of a script save where they say, beside those of the library."""

from __future__ import annotations

import json
import time
from itertools import pairwise

import pytest
from steered import SteeredRun
from test_training_quick_check import checked_run
from test_training_several_steps import numbers, plain
from training_cluster import Cluster

from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.rundir.storage.documents import load

pytestmark = pytest.mark.tensorflow


def triggers_of(directory) -> dict[int, str]:
    """Why each step was saved."""
    paths = RunDirectory(directory).records_directory.glob("*.json")
    records = [load(path, CheckpointRecord) for path in paths]
    return {record.step: record.trigger for record in sorted(records, key=lambda one: one.step)}


def failures_in(directory) -> list[str]:
    messages = [entry.message for entry in read_entries(RunDirectory(directory))]
    return [message for message in messages if "save trigger" in message]


class AtSteps:
    """Saves after given steps, and notes when it is asked."""

    def __init__(self, *steps):
        self.steps = steps
        self.asked = []

    def steps_left(self, step):
        return min((one - step for one in self.steps if one > step), default=None)

    def reason(self, step, metrics):
        self.asked.append((step, dict(metrics)))
        return f"step {step} is\none of them"


class Above:
    """Saves whenever a metric is above a value; it is asked after each call."""

    def __init__(self, value):
        self.value = value

    def reason(self, step, metrics):
        return f"loss {metrics['loss']:g}" if metrics["loss"] > self.value else None


class Failing:
    def __init__(self, left=1):
        self.left = left

    def steps_left(self, step):
        return self.left

    def reason(self, step, metrics):
        return metrics["accuracy"] if step < 6 else True


class EveryFifthTime:
    """Counts how often it was asked, in a variable."""

    def __init__(self, asked):
        self.asked = asked

    def reason(self, step, metrics):
        self.asked.assign_add(1)
        return None if self.asked.numpy() % 5 else "the fifth time"


def test_a_call_ends_where_a_trigger_wants_to_be_asked(make_run):
    trigger = AtSteps(3, 12, 14)
    run = make_run(dataset=numbers(16), save_every_steps=7, save_when=[trigger])
    train_step, calls = run.function(plain, steps_per_call=4), []
    for batch in run:
        calls.append(len(batch))
        train_step(batch)
    assert calls == [1, 2, 4, 4, 1, 2, 2]
    # The step reports its number, counted from 0.
    assert trigger.asked == [(3, {"loss": 2.0}), (12, {"loss": 11.0}), (14, {"loss": 13.0})]
    assert triggers_of(run.directory) == {
        3: "step 3 is one of them",
        7: "every 7 steps",
        12: "step 12 is one of them",
        14: "step 14 is one of them, every 7 steps",
        16: "end",
    }


def test_a_trigger_without_steps_is_asked_after_each_call_about_its_last_step(make_run):
    run = make_run(
        dataset=numbers(10), save_on_improvement="loss:min", save_when=iter([Above(6.5)])
    )
    train_step = run.function(plain, steps_per_call=4)
    for batch in run:
        train_step(batch)
    # Calls end after the steps 1, 5, 9 and 10.
    assert triggers_of(run.directory) == {1: "loss improved to 0", 9: "loss 8", 10: "loss 9"}


@pytest.mark.parametrize(
    ("trigger", "errors"),
    [
        (Failing(), ["KeyError('accuracy')", "reason returned True; expected a text, or None"]),
        (Failing(left=2.5), ["'float' object cannot be interpreted as an integer"]),
    ],
    ids=["reason", "steps-left"],
)
def test_a_trigger_that_fails_saves_nothing_and_says_so_once(make_run, trigger, errors):
    run = make_run(dataset=numbers(10), save_every_steps=4, save_when=[trigger])
    train_step = run.function(plain)
    for batch in run:
        train_step(batch)
    assert triggers_of(run.directory).keys() == {4, 8, 10}
    failures = failures_in(run.directory)
    assert len(failures) == len(errors)
    for failure, error in zip(failures, errors, strict=True):
        assert failure.startswith("The save trigger Failing failed: ")
        assert error in failure


def test_steps_that_a_check_trains_twice_count_once_for_a_trigger_with_state(make_run):
    import tensorflow as tf

    asked = tf.Variable(0)
    options = {"extra": {"asked": asked}, "save_when": [EveryFifthTime(asked)]}
    run, outcome = checked_run(make_run, plain, numbers(20), 12, **options)
    assert outcome.result["exact"], outcome.message
    assert asked.numpy() == 12
    # The step 5 is the first of those that are trained twice.
    assert triggers_of(run.root) == {5: "the fifth time", 10: "the fifth time", 12: "end"}


def test_saves_by_the_clock(make_run):
    run = make_run(save_every_seconds=0.2)
    records = RunDirectory(run.directory).records_directory
    for _ in run:
        time.sleep(0.01)
        if len(list(records.glob("*.json"))) == 3:
            run.finish()
    saved = [load(path, CheckpointRecord) for path in records.glob("*.json")]
    *by_clock, last = sorted(saved, key=lambda record: record.step)
    assert {record.trigger for record in by_clock} == {"every 0.2 s"}
    times = [record.saved_at for record in by_clock]
    assert all(later - earlier >= 0.18 for earlier, later in pairwise(times))
    assert last.trigger == "end"


@pytest.mark.parametrize("trigger", [AtSteps, "loss:min", None])
def test_what_is_no_trigger_is_refused_at_once(make_run, trigger):
    with pytest.raises(TypeError, match=r"save_when=\[…\] got .* with a method reason\(step, m"):
        make_run(save_when=[trigger])


def test_the_answer_of_the_chief_holds_for_all_workers(tmp_path):
    """The second worker wants other steps, and its trigger fails in step 6."""
    wanted = json.dumps([[3, 5], [4, 5]])
    arguments = ["--steps", "8", "--save-when", wanted]
    with Cluster(tmp_path / "run", "steered.py", arguments) as cluster:
        assert cluster.wait() == [0, 0], cluster.output()
    run = SteeredRun(cluster)
    assert triggers_of(run.run.root) == {3: "worker 0", 5: "worker 0", 8: "end"}
    assert failures_in(run.run.root) == []
