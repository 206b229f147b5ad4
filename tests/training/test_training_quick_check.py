"""A run that trains checks its own next steps, and goes on as if it had not."""

from __future__ import annotations

import json

import pytest
from steered import SteeredRun
from training_cluster import Cluster

from tfckpt_trainer.bundle.index import read_index
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.documents import load
from tfckpt_trainer.rundir.journal import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState
from tfckpt_trainer.rundir.records.event import JournalKind
from tfckpt_trainer.rundir.records.run import RunInfo
from waiting import wait_until

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize(("strategy", "workers"), [("mirrored", 1), ("multi-worker", 2)])
def test_a_run_that_trains_is_checked_on_all_workers_and_goes_on(tmp_path, strategy, workers):
    with Cluster(tmp_path / "run", "steered.py", ["--save-every", "7"], workers, strategy) as c:
        steered = SteeredRun(c)
        steered.wait_for_step(5)
        checked = steered.ask(CommandKind.CHECK)
        assert checked.state is CommandState.DONE, checked
        assert checked.result["exact"], checked.message
        of = f"{workers} worker{'s' * (workers > 1)}"
        assert checked.message.startswith(
            f"Checked: exact over 3 steps, restored in place on {of}. Not covered: epoch ends, "
        )
        steered.progress()
        assert not steered.run.check_directory.exists()
        stopped = steered.ask(CommandKind.STOP)
        assert c.wait() == [0] * workers, c.output()
    found = load(steered.run.run_file, RunInfo).known_exactness
    assert found.words == f"exact over 3 steps, restored in place on {of}"
    # The steps were trained twice, and are recorded once.
    kinds = [e.kind for e in read_entries(steered.run)]
    assert JournalKind.RESTORE not in kinds
    steps = [json.loads(line)["step"] for line in steered.run.series.read_text().splitlines()]
    assert steps == sorted(set(steps))
    # The same steps without a check have the same checksums, that of the number of saves included.
    step = int(stopped.result["step"])
    arguments = ["--save-every", "7", "--steps", str(step)]
    with Cluster(tmp_path / "other", "steered.py", arguments, workers, strategy) as undisturbed:
        assert undisturbed.wait() == [0] * workers, undisturbed.output()
    name = stopped.result["name"]
    ours, theirs = (read_index(tmp_path / run / name).entries for run in ("run", "other"))
    assert {k: e.crc32c for k, e in ours.items()} == {k: e.crc32c for k, e in theirs.items()}


def checked_run(make_run, replica_step, dataset, total_steps):
    """Trains, asks for a check at step 3, and returns the run and the command's outcome."""
    run = make_run(dataset=dataset, total_steps=total_steps)
    directory = RunDirectory(run.directory)
    queue, command, step = CommandQueue(directory), None, run.function(replica_step)
    for batch in run:
        step(batch)
        if run.step == 2:
            command = queue.submit(CommandKind.CHECK, {}, requested_by="test", lifetime=60)
            # The poller of the run takes it; the next step carries it out.
            wait_until(lambda: run._coordinator.needs_sync, 30, "the command")
    assert command is not None
    return directory, queue.wait(command, timeout=30)


def random_step(batch):
    import tensorflow as tf

    return tf.reduce_mean(batch + tf.random.normal(tf.shape(batch)))


def plain_step(batch):
    import tensorflow as tf

    return tf.reduce_mean(batch)


def numbers(count):
    import tensorflow as tf

    return tf.data.Dataset.range(count).map(lambda n: tf.cast(n, tf.float32))


def test_a_run_that_draws_without_a_seed_is_not_exact_and_the_line_is_named(make_run):
    run, outcome = checked_run(make_run, random_step, numbers(20), 12)
    assert outcome.state is CommandState.DONE
    assert outcome.result["exact"] is False
    assert outcome.message.startswith("Checked: not exact: The metric loss differs on worker 0")
    assert outcome.result["cause"]["id"] == "stateful-operation"
    assert "test_training_quick_check.py" in outcome.result["cause"]["why"]
    assert load(run.run_file, RunInfo).check.difference
    assert (run.root / "ckpt-12.index").exists()


def test_a_check_repeats_what_the_data_has_left_and_the_run_ends_there(make_run):
    leftover = RunDirectory(make_run().directory).check_directory
    leftover.mkdir()
    run, outcome = checked_run(make_run, plain_step, numbers(6), None)
    assert (outcome.result["exact"], outcome.result["steps"]) == (True, 2)
    assert not leftover.exists()
    saved = [entry.step for entry in read_entries(run) if entry.kind is JournalKind.SAVE]
    assert saved == [6]
