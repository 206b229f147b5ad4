"""Input that a command drops is trained by no step, wherever a restart comes."""

from __future__ import annotations

import itertools
from unittest import mock

import pytest
from this_process import copy_before, until_taken

from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState
from weekly import weekly

pytestmark = pytest.mark.tensorflow


def counting(kind):
    """Returns a dataset of 0, 1, 2, …: endless, of known length, of unknown length, or Python's."""
    import tensorflow as tf

    if kind == "python":
        return tf.data.Dataset.from_generator(
            lambda: iter(range(40)), output_signature=tf.TensorSpec((), tf.int64)
        )
    numbers = tf.data.Dataset.counter() if kind == "endless" else tf.data.Dataset.range(40)
    return numbers.filter(lambda number: number >= 0) if kind == "unknown" else numbers


def trained(directory, *, total_steps, kind="endless", skips=None, steps_per_call=1):
    """Trains; asks for skips at steps; returns the batches of the steps, and the outcomes."""
    import tensorflow as tf

    from tfckpt_trainer.training import SaveOptions, TrainingRun

    model = tf.Module()
    model.seen = tf.Variable(0, dtype=tf.int64)
    dataset = None if kind is None else counting(kind)
    run = TrainingRun(
        directory,
        model=model,
        dataset=dataset,
        total_steps=total_steps,
        save_every_steps=5,
        saving=SaveOptions(skip_input=kind == "python"),
    )

    def replica_step(batch):
        model.seen.assign_add(tf.cast(batch, tf.int64))
        return tf.cast(batch, tf.float32)

    step = run.function(replica_step, steps_per_call=steps_per_call)
    queue, waiting, batches = CommandQueue(RunDirectory(directory)), [], []
    for batch in run:
        given = (skips or {}).get(run.step)
        if given is not None:
            waiting.append(queue.submit(CommandKind.SKIP, given, requested_by="test", lifetime=60))
            until_taken(run)
        batches.append([int(one) for one in batch] if steps_per_call > 1 else int(batch))
        step(batch)
    return batches, [queue.wait(command, timeout=30) for command in waiting]


@pytest.mark.parametrize("kind", ["endless", "python", *weekly("unknown", "known")])
def test_dropped_input_is_trained_by_no_step_also_after_a_restart(tmp_path, kind):
    skips = {3: {"batches": 4}, 6: {"batches": 2, "at_step": 12}}
    whole, outcomes = trained(tmp_path / "whole", total_steps=20, kind=kind, skips=skips)
    assert [outcome.state for outcome in outcomes] == [CommandState.DONE] * 2
    assert whole == [0, 1, 2, 3, *range(8, 16), *range(18, 26)]
    copied = copy_before(15, tmp_path / "whole", tmp_path / "copy")
    again, _ = trained(copied, total_steps=20, kind=kind)
    assert again == whole[10:]
    told = [e for e in read_entries(RunDirectory(tmp_path / "whole")) if "Dropped" in e.message]
    assert [(event.step, event.by) for event in told] == [(4, "test"), (12, "test")]
    assert told[0].message == ("Dropped the input of 4 steps on each worker, which no step trains.")


def test_a_call_of_several_steps_ends_where_input_is_dropped(tmp_path):
    skips = {0: {"batches": 3, "at_step": 4}}
    batches, _ = trained(tmp_path / "run", total_steps=10, skips=skips, steps_per_call=8)
    assert list(itertools.chain(*batches)) == [0, 1, 2, 3, *range(7, 13)]


def test_a_restore_to_before_the_command_drops_nothing(tmp_path):
    trained(tmp_path / "run", total_steps=7, skips={6: {"batches": 9, "at_step": 8}})
    (tmp_path / "run" / "ckpt-7.index").unlink()
    after, _ = trained(tmp_path / "run", total_steps=10)
    assert after == list(range(5, 10))


def test_a_command_that_fails_as_it_acts_drops_nothing(tmp_path):
    with mock.patch(
        "tfckpt_trainer.training.commands.skip.count", side_effect=ZeroDivisionError("injected")
    ):
        batches, (outcome,) = trained(
            tmp_path / "run", total_steps=8, skips={3: {"batches": 2, "at_step": 5}}
        )
    assert outcome.state is CommandState.FAILED
    assert batches == list(range(8))


def test_the_run_ends_if_the_dataset_does(tmp_path):
    batches, _ = trained(
        tmp_path / "run", total_steps=30, kind="known", skips={3: {"batches": 500}}
    )
    assert batches == [0, 1, 2, 3]
    (told,) = [
        e.message for e in read_entries(RunDirectory(tmp_path / "run")) if "Dropped" in e.message
    ]
    assert told == ("Dropped the input of 36 steps, of 500 to drop: then the dataset ended.")


def test_a_run_without_a_dataset_refuses(tmp_path):
    _, (outcome,) = trained(tmp_path / "run", total_steps=6, kind=None, skips={2: {"batches": 1}})
    assert outcome.state is CommandState.REFUSED
    assert outcome.message.startswith("The run has no dataset")
