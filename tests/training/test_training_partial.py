"""Into a changed model: refused with the list of what differs, or restored as far as it fits."""

from __future__ import annotations

import numpy as np
import pytest
from steered import SteeredRun
from test_training_quick_check import submit
from training_cluster import Cluster

from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState

pytestmark = pytest.mark.tensorflow

DIFFERENT = "float32 16×1 in the checkpoint and float32 16×3 in the model"


def built(outputs):
    """A model and its optimizer."""
    import keras

    layers = [keras.Input((8,)), keras.layers.Dense(16), keras.layers.Dense(outputs)]
    model = keras.Sequential(layers)
    optimizer = keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)
    return {"model": model, "optimizer": optimizer}


def assert_started_in_part(run):
    start = [entry for entry in read_entries(run) if entry.kind.value == "start"][-1]
    assert start.step == 10
    assert any("float32 16×1" in line for line in start.details["left_out"])


def assert_restored_in_part(whole, part):
    """Checks the outcomes of the same restore, first without `partial`."""
    assert whole.state is CommandState.REFUSED
    assert "Nothing was changed" in whole.message
    assert "--name ckpt-10 --partial`" in str(whole.advice)
    assert part.state is CommandState.DONE, part.message
    assert part.result["step"] == 10
    assert part.result["variables"] >= 4
    assert any("float32 16×1" in line for line in part.result["left_out"])


def refusal(make_run):
    """Why a run refuses to start."""
    with pytest.raises(TfckptError) as refused:
        list(make_run(**built(3)))
    return str(refused.value)


def test_a_changed_model_takes_what_fits_only_if_told_to(make_run):
    # Each run is told of models that live and are not its own, so none outlives its run.
    first = built(1)
    list(make_run(**first, total_steps=10, save_every_steps=5))
    saved = first.pop("model").layers[0].kernel.numpy()
    first.clear()
    refused = refusal(make_run)
    for told in (
        DIFFERENT,
        "The start could not restore ckpt-10: ",
        "1 other checkpoint was not tried.",
        "--name ckpt-5 --next-start` and start again",
    ):
        assert told in refused

    changed = built(3)
    training = make_run(**changed, partial=True, total_steps=15)
    run, steps, commands = RunDirectory(training.directory), [], []
    kernel = changed["model"].layers[0].kernel
    for step in training:
        if step == 10:
            np.testing.assert_array_equal(kernel, saved)
            kernel.assign(0 * kernel)
        if step in (11, 13) and len(commands) < 2:
            how = {"partial": True} if commands else {}
            commands.append(submit(training, CommandKind.RESTORE, name="ckpt-10", **how))
        steps.append(step)
    assert steps == [10, 11, 12, 13, 10, 11, 12, 13, 14]
    assert_started_in_part(run)
    assert_restored_in_part(*(CommandQueue(run).wait(command, timeout=30) for command in commands))


def in_phase(directory, phase, epochs, **options):
    """Trains the head of a model alone, or all of it; returns the model as it began and ended."""
    import keras

    from tfckpt_trainer.training import fit

    class Begin(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if not begun:
                begun.extend(
                    [*self.model.get_weights(), self.model.optimizer.learning_rate.numpy()]
                )

    keras.utils.set_random_seed(phase)
    begun = []
    layers = [
        keras.layers.Dense(4, activation="relu"),
        keras.layers.Dense(4),
        keras.layers.Dense(1),
    ]
    model = keras.Sequential([keras.Input((4,)), *layers])
    for layer in layers[:2]:
        layer.trainable = phase == 2
    model.compile(keras.optimizers.Adam(0.01 / phase), "mse")
    x = np.random.default_rng(0).normal(size=(32, 4))
    fit(model, x, x[:, :1], 8, epochs, run_dir=directory, callbacks=[Begin()], verbose=0, **options)
    return begun, model


def test_a_model_is_tuned_in_phases_in_one_run_directory(tmp_path):
    _, first = in_phase(tmp_path, 1, 2)
    with pytest.raises(TfckptError, match="the optimizer trained 2 variables and trains 6, so"):
        in_phase(tmp_path, 2, 4)
    begun, _ = in_phase(tmp_path, 2, 4, partial=True)
    # The weights are those of the first phase, and the optimizer is new.
    for weight, trained in zip(begun, first.get_weights(), strict=False):
        np.testing.assert_array_equal(weight, trained)
    assert begun[-1] == np.float32(0.005)
    # After a crash, a script begins again with the first phase, which has nothing to train. The
    # second one continues from its own checkpoint, with its optimizer.
    in_phase(tmp_path, 1, 2, partial=True)
    _, model = in_phase(tmp_path, 2, 5, partial=True)
    assert int(model.optimizer.iterations.numpy()) == 3 * 4


@pytest.mark.weekly
@pytest.mark.parametrize(("strategy", "workers"), [("mirrored", 1), ("multi-worker", 2)])
def test_several_replicas_take_what_fits_only_if_told_to(tmp_path, strategy, workers):
    def cluster(*arguments):
        return Cluster(tmp_path / "run", "steered.py", list(arguments), workers, strategy)

    with cluster("--steps", "10", "--save-every", "5") as first:
        assert first.wait() == [0] * workers, first.output()

    with cluster("--outputs", "3") as refused:
        assert refused.wait() == [1] * workers
        assert DIFFERENT in refused.output()
        assert "The start could not restore ckpt-10: " in refused.output()
        assert "1 other checkpoint was not tried." in refused.output()
        assert "--name ckpt-5 --next-start` and start again" in refused.output()

    with cluster("--outputs", "3", "--partial") as changed:
        run = SteeredRun(changed)
        run.wait_for_step(15)
        assert_started_in_part(run.run)
        whole = run.ask(CommandKind.RESTORE, name="ckpt-10")
        part = run.ask(CommandKind.RESTORE, name="ckpt-10", partial=True)
        assert_restored_in_part(whole, part)
        run.progress()
        stopped = run.ask(CommandKind.STOP)
        assert stopped.state is CommandState.DONE
        assert changed.wait() == [0] * workers, changed.output()
