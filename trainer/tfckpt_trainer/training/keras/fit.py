"""`fit`: Keras training that can be watched, saved, taken back and resumed in mid-epoch.

Keras's own `fit` counts epochs and reads its input in variables of its own, so it cannot go back
to a step, and with several workers it fails. This one runs the model's own `train_step` in the
loop of a `TrainingRun`, with Keras's own callbacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import tensorflow as tf

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.training.checkpoint.variables import components
from tfckpt_trainer.training.iterators import destroy_iterator
from tfckpt_trainer.training.keras.callback_state import CallbackStates
from tfckpt_trainer.training.loop.inputs import DatasetFunction, worker_dataset
from tfckpt_trainer.training.loop.step_functions import mean_over_replicas
from tfckpt_trainer.training.loop.training_run import TrainingRun
from tfckpt_trainer.training.worker_group import (
    WITHOUT_PARAMETER_SERVERS,
    WorkerGroup,
    uses_parameter_servers,
)

Logs = dict[str, float]


def fit(
    model: keras.Model,
    dataset: tf.data.Dataset | DatasetFunction,
    run_dir: str | Path | None = None,
    *,
    epochs: int,
    steps_per_epoch: int | None = None,
    initial_epoch: int = 0,
    callbacks: Iterable[keras.callbacks.Callback] = (),
    validation_data: tf.data.Dataset | DatasetFunction | None = None,
    validation_steps: int | None = None,
    validation_freq: int = 1,
    verbose: int = 2,
    save_every_epochs: int | None = None,
    **options: Any,
) -> keras.callbacks.History:
    """Trains a compiled model as `model.fit` does, under any strategy, and can be steered.

    Call it on every worker. It restores the newest checkpoint first, goes on in the middle of an
    epoch where it was saved there, and follows a restore into another epoch.

    Args:
        model: Built and compiled within the scope of its strategy.
        dataset: Batches of one replica, as `TrainingRun` takes them; it is repeated.
        run_dir: The checkpoint directory; by default the one that the launcher gave.
        epochs: Of the whole training, counted from 0.
        steps_per_epoch: Steps of all replicas in one epoch; by default as many as the dataset
            has whole groups of batches.
        initial_epoch: Number of the first epoch where nothing is restored.
        callbacks: Keras's own and yours; they are called on every worker with equal logs.
        validation_data: Batches of one replica, read anew after an epoch.
        validation_steps: How many of its groups of batches are used; by default all whole ones.
        validation_freq: After how many epochs it is used.
        verbose: 0 is silent, 1 a progress bar, 2 a line an epoch; on the chief only.
        save_every_epochs: Save after so many epochs, beside what `options` say.
        **options: As `TrainingRun` takes them, such as `save_every_steps` and `retention`.

    Returns:
        What Keras's `fit` returns, over all epochs, also those before a restart.

    Raises:
        UsageError: The model is not compiled, or the length of an epoch cannot be known.
        RefusedError: As `TrainingRun` does.
    """
    _check(model, callbacks)
    strategy = model.distribute_strategy
    group = WorkerGroup(strategy)
    own = worker_dataset(dataset, group)
    steps = _agreed_steps(group, own, steps_per_epoch, "dataset", "steps_per_epoch")
    _build(model, strategy, own)
    if save_every_epochs is not None:
        if "save_every_steps" in options:
            raise UsageError("Give either save_every_epochs or save_every_steps.")
        options["save_every_steps"] = save_every_epochs * steps
    run = TrainingRun(
        run_dir,
        model=model,
        optimizer=model.optimizer,
        dataset=_endless(own, steps * group.local_replicas, steps_per_epoch),
        strategy=strategy,
        total_steps=(epochs - initial_epoch) * steps,
        worker_objects={
            **options.pop("worker_objects", {}),
            "metrics": [list(components(variable)) for variable in model.metrics_variables],
        },
        **options,
    )
    validation = (
        Validation(model, group, validation_data, validation_steps, validation_freq)
        if validation_data is not None
        else None
    )
    listed = keras.callbacks.CallbackList(
        list(callbacks),
        add_history=True,
        add_progbar=verbose != 0 and group.is_chief,
        model=model,
        verbose=verbose,
        epochs=epochs,
        steps=steps,
    )
    Fitting(run, group, model, listed, Epochs(steps, initial_epoch), validation).train()
    return next(c for c in listed.callbacks if isinstance(c, keras.callbacks.History))


class Validation:
    """Runs the model's own `test_step` over a dataset that each worker has."""

    def __init__(
        self,
        model: keras.Model,
        group: WorkerGroup,
        dataset: tf.data.Dataset | DatasetFunction,
        steps: int | None,
        every_epochs: int,
    ) -> None:
        """Takes the dataset and agrees on the number of steps.

        Raises:
            UsageError: That number cannot be known.
        """
        self._model = model
        self._replicas = group.local_replicas
        self._every_epochs = every_epochs
        self._dataset = worker_dataset(dataset, group)
        self._steps = _agreed_steps(
            group, self._dataset, steps, "validation_data", "validation_steps"
        )
        self._test = mean_over_replicas(model.distribute_strategy, model.test_step)

    def is_due(self, epoch: int) -> bool:
        """Whether it runs after this epoch, counted from 0."""
        return (epoch + 1) % self._every_epochs == 0

    def run(self, callbacks: keras.callbacks.CallbackList) -> Logs:
        """Returns the metrics, with `val_` before their names."""
        self._model.reset_metrics()
        callbacks.on_test_begin()
        logs: Logs = {}
        iterator = iter(self._dataset)
        try:
            for number in range(self._steps):
                callbacks.on_test_batch_begin(number)
                elements = [next(iterator) for _ in range(self._replicas)]
                logs = self._test(elements)
                callbacks.on_test_batch_end(number, logs)
        finally:
            destroy_iterator(iterator)
        callbacks.on_test_end(logs)
        return {f"val_{name}": value for name, value in logs.items()}


@dataclass(frozen=True)
class Epochs:
    """How steps divide into epochs.

    Attributes:
        steps: Steps of one epoch.
        initial: Number of the first epoch.
    """

    steps: int
    initial: int

    def at(self, step: int) -> tuple[int, int]:
        """Returns the epoch after so many steps of the run, and the number of its next batch."""
        epoch, batch = divmod(step, self.steps)
        return epoch + self.initial, batch


class Fitting:
    """The loop of one `fit`: turns steps into epochs and batches, wherever a restore leads."""

    def __init__(
        self,
        run: TrainingRun,
        group: WorkerGroup,
        model: keras.Model,
        callbacks: keras.callbacks.CallbackList,
        epochs: Epochs,
        validation: Validation | None,
    ) -> None:
        self._run = run
        self._group = group
        self._model = model
        self._callbacks = callbacks
        self._epochs = epochs
        self._validation = validation
        self._states = CallbackStates(callbacks.callbacks)
        self._in_epoch = False
        self._step: Callable[[Any], Logs] = run.function(model.train_step)
        run.before_save(self._keep)
        run.after_restore(self._resume)

    def train(self) -> None:
        """Trains until the last epoch is done or somebody ends it."""
        self._model.stop_training = False
        self._callbacks.on_train_begin()
        self._states.begin()
        logs: Logs = {}
        for batch in self._run:
            epoch, number = self._epochs.at(self._run.step)
            if not self._in_epoch:
                self._begin_epoch(epoch, number)
            self._callbacks.on_train_batch_begin(number)
            logs = self._step(batch)
            self._callbacks.on_train_batch_end(number, logs)
            if number + 1 == self._epochs.steps or self._model.stop_training:
                self._end_epoch(epoch, logs)
        self._callbacks.on_train_end(logs)

    def _begin_epoch(self, epoch: int, number: int) -> None:
        if number == 0:
            # In the middle of an epoch they came back with the checkpoint.
            self._model.reset_metrics()
        self._callbacks.on_epoch_begin(epoch)
        self._in_epoch = True

    def _end_epoch(self, epoch: int, logs: Logs) -> None:
        logs = dict(logs)
        if self._validation is not None and self._validation.is_due(epoch):
            logs |= self._validation.run(self._callbacks)
            self._run.report(**{n: v for n, v in logs.items() if n.startswith("val_")})
        self._callbacks.on_epoch_end(epoch, logs)
        self._in_epoch = False
        if self._group.any(bool(self._model.stop_training)):
            self._run.finish()

    def _keep(self) -> None:
        self._run.state["callbacks"] = self._states.text()

    def _resume(self) -> None:
        self._states.restore(self._run.state.get("callbacks", ""))
        self._model.stop_training = False
        self._in_epoch = False


def _check(model: keras.Model, callbacks: Iterable[keras.callbacks.Callback]) -> None:
    if not isinstance(model, keras.Model) or not model.compiled:
        raise UsageError(
            "fit needs a compiled keras.Model: call model.compile(...) within strategy.scope()."
        )
    if uses_parameter_servers(model.distribute_strategy):
        raise UsageError(WITHOUT_PARAMETER_SERVERS)
    for callback in callbacks:
        if isinstance(callback, keras.callbacks.BackupAndRestore):
            raise UsageError(
                "BackupAndRestore would restore another state beneath this one; leave it out: "
                "fit resumes by itself."
            )


def _agreed_steps(
    group: WorkerGroup, dataset: tf.data.Dataset, given: int | None, what: str, argument: str
) -> int:
    """Returns how many groups of batches all workers have."""
    if given is not None:
        if given < 1:
            raise UsageError(f"{argument} is {given}; it must be at least 1.")
        return given
    mine = int(dataset.cardinality().numpy()) // group.local_replicas
    counts = group.all_gather(mine)
    if min(counts) < 1:
        raise UsageError(
            f"How many steps {what} is for cannot be known (it says {counts} for the workers): "
            f"give {argument}."
        )
    return min(counts)


def _endless(dataset: tf.data.Dataset, elements: int, given: int | None) -> tf.data.Dataset:
    """Returns the dataset without an end; without a given length, epochs begin at its beginning."""
    if given is None:
        dataset = dataset.take(elements)
    return dataset.repeat()


def _build(model: keras.Model, strategy: tf.distribute.Strategy, dataset: tf.data.Dataset) -> None:
    """Creates all variables of model, optimizer and metrics, which no step may do later.

    Keras does it itself in its `fit`, by the same private method.
    """

    def symbol(specification: Any) -> SimpleNamespace:
        return SimpleNamespace(
            shape=tuple(specification.shape.as_list()), dtype=specification.dtype.name
        )

    with strategy.scope():
        model._symbolic_build(data_batch=tf.nest.map_structure(symbol, dataset.element_spec))
