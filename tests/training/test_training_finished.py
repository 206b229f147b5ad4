"""A finished run that is started again says so and trains nothing."""

from __future__ import annotations

import os
from types import SimpleNamespace

import numpy as np
import pytest

from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_tui.services.control.request import FrontEnd
from tfckpt_tui.services.control.restore import choose_start
from waiting import wait_until
from weekly import weekly

pytestmark = pytest.mark.tensorflow


def last_message(directory):
    entries = read_entries(RunDirectory(directory))
    return next(entry.message for entry in reversed(entries) if entry.kind is EventKind.FINISH)


def a_model():
    import keras

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def early():
    import keras

    return keras.callbacks.EarlyStopping(
        "loss", patience=2, min_delta=100, restore_best_weights=True
    )


def not_a_number():
    import keras

    return keras.callbacks.TerminateOnNaN()


def in_an_epoch():
    import keras

    class Stops(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if self.model.optimizer.iterations.numpy() == 5:
                self.model.stop_training = True

    return Stops()


@pytest.mark.parametrize("save_every_epochs", [None, *weekly(1)])
@pytest.mark.parametrize(
    ("make", "epochs"), [(in_an_epoch, 3), *weekly((early, 3), (not_a_number, 1))]
)
def test_a_fit_that_a_callback_ended_is_finished(
    make_run, tmp_path, make, epochs, save_every_epochs
):
    import keras

    from tfckpt_trainer.training import fit

    x = np.full((4, 2), np.nan if make is not_a_number else 1.0, "float32")

    def train(last):
        model, began = a_model(), []
        history = fit(
            model,
            x,
            x[:, :1],
            batch_size=2,
            epochs=last,
            run_dir=tmp_path / "run",
            callbacks=[
                make(),
                keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, _: began.append(epoch)),
            ],
            save_every_epochs=save_every_epochs,
            verbose=0,
        )
        return began, history.history["loss"], model.get_weights()

    began, losses, weights = train(9)
    assert (began, len(losses)) == (list(range(epochs)), epochs)
    # A start that trains nothing leaves all as it was for the next one.
    for _ in range(2 if make is early else 1):
        again = train(9)
        assert again[0] == []
        np.testing.assert_equal(again[1:], (losses, weights))
        said = last_message(tmp_path / "run")
        assert "Nothing to train: a callback set model.stop_training in epoch" in said
    assert train(12)[0][0] in {epochs, epochs - 1}


def test_a_loop_that_called_finish_is_finished_until_more_steps_are_wanted(make_run, tmp_path):
    def train(total_steps=9, until=3):
        run, steps = make_run(total_steps=total_steps, save_every_steps=1), []
        for step in run:
            steps.append(step)
            if step + 1 == until:
                run.finish()
        return steps

    assert train() == [0, 1, 2]
    assert train() == []
    run = RunDirectory(tmp_path / "run")
    said = last_message(run.root)
    assert "Nothing to train: the script called run.finish(), after step 3." in said
    choose_start(run, "ckpt-3", through=FrontEnd.COMMAND_LINE)
    assert train(until=4) == [3]
    assert train() == []
    assert train(12) == [4, 5, 6, 7, 8, 9, 10, 11]
    assert train(12) == []
    assert "Nothing to train: all 12 steps are done." in last_message(run.root)


def test_a_stopped_loop_goes_on(make_run):
    for steps in ([0, 1], [2, 3]):
        run, done = make_run(), []
        for step in run:
            done.append(step)
            if len(done) == 2:
                run.request_stop()
        assert done == steps


def test_a_run_that_went_back_and_ends_where_it_began_has_trained(make_run, tmp_path):
    assert len(list(make_run(total_steps=4, save_every_steps=2))) == 4
    training, queue = make_run(), CommandQueue(RunDirectory(tmp_path / "run"))
    for step in training:
        if step == 4:
            order = {"name": "ckpt-2"}
            command = queue.submit(CommandKind.RESTORE, order, requested_by="test", lifetime=60)
            wait_until(
                lambda number=command.id: queue.look_up(number).state is not CommandState.REQUESTED,
                10,
                "the command is taken",
            )
        elif step == 3:
            training.finish("the script has had enough")
    assert last_message(tmp_path / "run") == "Finished after step 4: the script has had enough."


def test_a_dataset_that_starts_over_ends_once(make_run, tmp_path):
    import tensorflow as tf

    def elements():
        yield from range(3)

    def train(**options):
        dataset = tf.data.Dataset.from_generator(
            elements, output_signature=tf.TensorSpec((), tf.int64)
        )
        return len([float(batch) for batch in make_run(dataset=dataset, **options)])

    assert train() == 3
    assert train() == 0
    assert "Nothing to train: the dataset ended, after step 3." in last_message(tmp_path / "run")
    assert train(total_steps=5) == 2


def test_a_dataset_that_ended_goes_on_if_it_is_repeated_and_more_steps_are_wanted(
    make_run, tmp_path
):
    import tensorflow as tf

    def train(times, total_steps=None):
        dataset = tf.data.Dataset.range(3).repeat(times)
        return [int(batch) for batch in make_run(dataset=dataset, total_steps=total_steps)]

    assert train(2) == [0, 1, 2] * 2
    assert train(2) == []
    assert "use dataset.repeat() with total_steps" in last_message(tmp_path / "run")
    assert train(1) == []
    assert train(None, 8) == [0, 1]


def test_the_fit_of_keras_that_a_callback_ended_is_finished(make_run, tmp_path):
    import keras

    from tfckpt_trainer.training import SteeringCallback, TrainingRun

    x = np.ones((4, 2), "float32")

    def train(epochs):
        model, began = a_model(), []
        run = TrainingRun(tmp_path / "run", model=model, optimizer=model.optimizer)
        seen = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, _: began.append(epoch))
        model.fit(
            *(x, x[:, :1], 2, epochs),
            callbacks=[early(), seen, SteeringCallback(run)],
            verbose=0,
        )
        return began

    assert train(9) == [0, 1, 2]
    assert train(9) == []
    assert train(12)[0] == 3


def test_the_fit_of_keras_repeats_the_epoch_of_its_checkpoint_after_each_interruption(
    make_run, tmp_path
):
    import keras

    from tfckpt_trainer.training import SteeringCallback, TrainingRun

    x = np.ones((6, 2), "float32")

    def train(stop_after):
        model, began = a_model(), []
        run = TrainingRun(
            tmp_path / "run", model=model, optimizer=model.optimizer, save_every_steps=2
        )

        def interrupt(batch, logs):
            if run.step == stop_after:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            model.fit(
                *(x, x[:, :1], 2, 9),
                callbacks=[
                    SteeringCallback(run),
                    keras.callbacks.LambdaCallback(
                        on_epoch_begin=lambda epoch, _: began.append(epoch),
                        on_train_batch_end=interrupt,
                    ),
                ],
                verbose=0,
            )
        return run, began

    assert train(2)[1] == [0]
    assert train(6)[1] == [0, 1]
    left, began = train(10)
    assert began == [1, 2]
    # There is no next run that closes it.
    left.close()


def test_a_pipe_in_place_of_the_state_file_or_of_an_index_holds_up_no_fit(tmp_path):
    from tfckpt_trainer.training.keras import fit as module

    alone = SimpleNamespace(is_chief=True, broadcast=lambda value, kind: value)
    os.mkfifo(tmp_path / "ckpt-1.index")
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "ckpt-1"\n')
    assert module._saved_weights(tmp_path, alone) is None
    (tmp_path / "checkpoint").unlink()
    os.mkfifo(tmp_path / "checkpoint")
    assert module._saved_weights(tmp_path, alone) is None
