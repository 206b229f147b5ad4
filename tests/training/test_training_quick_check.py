"""A run that trains checks its own next steps, and goes on as if it had not."""

from __future__ import annotations

import json
import subprocess
import threading
from unittest import mock

import pytest
from steered import SteeredRun
from this_process import until_taken
from training_cluster import Cluster

from command_running import BINARY
from event_files import steps_with
from tfckpt_trainer.bundle.index import read_index
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.storage.documents import load
from waiting import MOST_SECONDS, wait_until
from weekly import weekly

pytestmark = pytest.mark.tensorflow


@pytest.mark.weekly  # At each change: below, and on two workers in test_training_control.py.
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
    assert EventKind.RESTORE not in kinds
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


def checked_run(
    make_run, replica_step, dataset, total_steps, during=None, steps_per_call=1, **options
):
    """Trains, asks for a check that begins after step 4, and returns the run and the outcome.

    `during` is called once with the run, in the first step that the check will repeat.
    """
    run = make_run(dataset=dataset, total_steps=total_steps, **options)
    directory = RunDirectory(run.directory)
    command, step = None, run.function(replica_step, steps_per_call=steps_per_call)
    for batch in run:
        step(batch)
        if run.step >= 2 and command is None:
            command = submit(run, CommandKind.CHECK)
        if run.may_repeat_step and during is not None:
            during(run)
            during = None
    assert command is not None
    return directory, CommandQueue(directory).wait(command, timeout=30)


def submit(run, kind, **arguments):
    """Asks for a command that is carried out after the present step, unless that is repeated."""
    queue = CommandQueue(RunDirectory(run.directory))
    command = queue.submit(kind, arguments, requested_by="test", lifetime=60)
    until_taken(run)
    return command


def recorded_steps(run):
    """Returns the steps in the event files, in the order in which they were written."""
    return steps_with("loss", run.tensorboard)


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
    known = load(run.run_file, RunInfo).known_exactness
    # What was seen comes first, then what the graph tells.
    assert known.words.startswith("not exact: The metric loss differs on worker 0, ")
    assert "; the step draws random numbers with tf.random.normal at " in known.words
    (checked,) = [e for e in read_entries(run) if e.message.startswith("Checked:")]
    assert checked.step == 7
    assert (run.root / "ckpt-12.index").exists()


def test_a_check_repeats_what_the_data_has_left_and_the_run_ends_there(make_run):
    leftover = RunDirectory(make_run().directory).check_directory
    leftover.mkdir()
    run, outcome = checked_run(make_run, plain_step, numbers(6), None)
    assert (outcome.result["exact"], outcome.result["steps"]) == (True, 2)
    assert not leftover.exists()
    saved = [entry.step for entry in read_entries(run) if entry.kind is EventKind.SAVE]
    assert saved == [6]


def test_a_run_that_was_checked_goes_on_as_if_it_had_not_been(make_run, tmp_path):
    import keras
    import tensorflow as tf

    def saved(name, train):
        # A checkpoint has the names of layers, which Keras numbers.
        keras.utils.clear_session()
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(2)])
        optimizer = keras.optimizers.Adam(0.1)
        optimizer.build(model.trainable_variables)

        def replica_step(batch):
            with tf.GradientTape() as tape:
                noise = tf.random.normal((3, 1))
                loss = tf.reduce_mean((model(noise + batch) - noise) ** 2)
            variables = model.trainable_variables
            optimizer.apply(tape.gradient(loss, variables), variables)
            return loss

        options = {"model": model, "optimizer": optimizer, "random_seed": 7, "save_every_steps": 5}
        train(replica_step, numbers(40), 12, directory=tmp_path / name, **options)
        entries = read_index(tmp_path / name / "ckpt-12").entries
        return {name: entry.crc32c for name, entry in entries.items()}

    def train(replica_step, dataset, total_steps, **options):
        run = make_run(dataset=dataset, total_steps=total_steps, **options)
        list(map(run.function(replica_step), run))

    def train_checked(*arguments, **options):
        run, outcome = checked_run(make_run, *arguments, **options)
        assert outcome.result["exact"] is True, outcome.message
        # Steps that were trained twice are recorded once.
        steps = [json.loads(line)["step"] for line in run.series.read_text().splitlines()]
        assert steps == sorted(set(steps))
        assert EventKind.RESTORE not in {entry.kind for entry in read_entries(run)}
        words = load(run.run_file, RunInfo).known_exactness.words
        assert words == "exact over 3 steps, restored in place on 1 worker"
        assert not run.check_directory.exists()

    # The number of saves is one of the values.
    assert saved("checked", train_checked) == saved("undisturbed", train)


@pytest.mark.parametrize("steps_per_call", [3, *weekly(1)])
def test_draws_with_a_seed_are_exact(make_run, steps_per_call):
    options = {"random_seed": 7, "steps_per_call": steps_per_call}
    run, outcome = checked_run(make_run, random_step, numbers(40), 20, **options)
    assert outcome.result["exact"] is True, outcome.message
    assert outcome.result["steps"] == 3
    assert recorded_steps(run) == list(range(1, 21))


def test_a_stop_during_the_check_ends_it_without_a_word_of_going_on(make_run):
    run, outcome = checked_run(
        make_run, plain_step, numbers(20), 12, lambda run: submit(run, CommandKind.STOP)
    )
    assert outcome.state is CommandState.FAILED
    assert outcome.message == "Nothing was compared. The run ended during the check."
    # It acts after the first step that is repeated.
    assert recorded_steps(run) == [1, 2, 3, 4, 5]
    assert (run.root / "ckpt-5.index").exists()
    assert not run.check_directory.exists()


def test_a_stop_of_the_script_is_meant_for_its_step(make_run):
    run = make_run(dataset=numbers(20), total_steps=12)
    step, steps = run.function(plain_step), []
    for batch in run:
        step(batch)
        steps.append(run.step)
        if steps == [0, 1, 2]:
            submit(run, CommandKind.CHECK)
        if run.step == 4:
            run.stop()
    # As without a check, it acts after the next step.
    assert steps == [0, 1, 2, 3, 4, 5, 6, 4, 5]
    assert recorded_steps(RunDirectory(run.directory)) == [1, 2, 3, 4, 5, 6]


def test_a_pause_during_the_check_waits_and_the_check_goes_on(make_run):
    resumers = []

    def pause(run):
        paused = submit(run, CommandKind.PAUSE)
        queue = CommandQueue(RunDirectory(run.directory))

        def resume():
            queue.wait(paused, timeout=60)
            queue.submit(CommandKind.RESUME, {}, requested_by="test", lifetime=60)

        resumers.append(threading.Thread(target=resume))
        resumers[0].start()

    run, outcome = checked_run(make_run, plain_step, numbers(20), 12, pause)
    resumers[0].join(60)
    assert outcome.result["exact"] is True, outcome.message
    kinds = [entry.kind for entry in read_entries(run)]
    assert EventKind.PAUSE in kinds and EventKind.RESUME in kinds
    assert recorded_steps(run) == list(range(1, 13))


def test_a_restore_during_the_check_ends_it(make_run):
    run, outcome = checked_run(
        make_run,
        plain_step,
        numbers(20),
        12,
        lambda run: submit(run, CommandKind.RESTORE, name="ckpt-2"),
        save_every_steps=2,
    )
    assert outcome.state is CommandState.FAILED
    assert outcome.message == (
        "Nothing was compared. The run was restored during the check. Training goes on."
    )
    assert set(recorded_steps(run)) >= set(range(3, 13))
    assert (run.root / "ckpt-b1-12.index").exists()


def test_steps_count_if_the_restore_of_the_check_is_refused(make_run):
    def damage(run):
        for path in RunDirectory(run.directory).check_directory.glob("*.data-*"):
            path.unlink()

    run, outcome = checked_run(make_run, plain_step, numbers(20), 12, damage, save_every_steps=5)
    assert outcome.state is CommandState.FAILED
    assert "The restore in place was refused" in outcome.message
    assert recorded_steps(run) == list(range(1, 13))
    # The save after step 5 was due in the first pass.
    saved = [entry.step for entry in read_entries(run) if entry.kind is EventKind.SAVE]
    assert saved == [7, 10, 12]


def test_an_error_of_the_check_ends_the_check_and_not_training(make_run, monkeypatch):
    def spoil(run):
        error = mock.Mock(side_effect=ZeroDivisionError("injected"))
        digest = "tfckpt_trainer.training.check.digests.StateDigests.digest"
        monkeypatch.setattr(digest, error)

    run, outcome = checked_run(make_run, plain_step, numbers(20), 12, spoil)
    assert outcome.state is CommandState.FAILED
    assert "An error in tfckpt_trainer, not in the script" in outcome.message
    assert recorded_steps(run) == list(range(1, 13))
    assert not run.check_directory.exists()


def test_a_check_that_has_no_room_on_the_disk_compares_nothing_and_training_goes_on(
    make_run, small_disk
):
    filler = small_disk / "filler"
    # Of 36 MB, 16 MB have to stay free.
    filler.write_bytes(bytes(20 << 20))
    dataset = numbers(20)
    run = make_run(small_disk / "run", dataset=dataset, total_steps=8)
    directory, step = RunDirectory(run.directory), run.function(plain_step)
    commands = []
    for batch in run:
        step(batch)
        if run.step == 2:
            commands.append(submit(run, CommandKind.CHECK))
        if run.step == 6:
            filler.unlink()
    outcome = CommandQueue(directory).wait(commands[0], timeout=30)
    assert outcome.state is CommandState.FAILED
    assert outcome.message.startswith("Nothing was compared. No checkpoint can be saved: ")
    assert "have to stay free" in outcome.message
    assert outcome.message.endswith(" Training goes on.")
    assert recorded_steps(directory) == list(range(1, 9))
    assert (directory.root / "ckpt-8.index").exists()
    assert not directory.check_directory.exists()


@pytest.mark.parametrize(("replica_step", "status"), [*weekly((plain_step, 0)), (random_step, 1)])
def test_the_command_line_checks_a_run_that_trains(make_run, replica_step, status):
    run = make_run(dataset=numbers(20), total_steps=12)
    step, process = run.function(replica_step), None
    for batch in run:
        step(batch)
        if run.step == 2 and process is None:
            command = [BINARY, "check", "--quick", str(run.directory)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            until_taken(run, 60)
    said, _ = process.communicate(timeout=MOST_SECONDS)
    assert process.returncode == status, said
    exact = "Checked: exact over 3 steps, restored in place on 1 worker. Not covered: epoch ends, "
    assert said.startswith("Checked: not exact: The metric loss differs" if status else exact)
    assert recorded_steps(RunDirectory(run.directory)) == list(range(1, 13))


def test_a_callback_sees_repeated_batches_twice_and_its_state_counts_them_once(tmp_path):
    import keras
    import numpy as np

    from tfckpt_trainer.training import fit

    directory, seen = RunDirectory(tmp_path / "run"), []

    class Counter(keras.callbacks.Callback):
        count = 0

        def on_train_batch_end(self, batch, logs=None):
            self.count += 1
            seen.append(batch)
            if batch == 2 and seen.count(2) == 1:
                queue = CommandQueue(directory)
                queue.submit(CommandKind.CHECK, {}, requested_by="test", lifetime=60)
                wait_until(
                    lambda: any(one.state is CommandState.SEEN for one in queue.working()),
                    30,
                    "the run takes the command",
                )

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    counter, x = Counter(), np.ones((12, 2), "float32")
    fit(model, x, x[:, :1], batch_size=1, run_dir=directory.root, callbacks=[counter])
    assert [seen.count(batch) for batch in range(12)].count(2) == 3
    assert (len(seen), counter.count) == (15, 12)
    assert any("Checked: exact over 3 steps" in one.message for one in read_entries(directory))
