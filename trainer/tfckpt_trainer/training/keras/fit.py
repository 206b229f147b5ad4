"""`fit`: Keras training with checkpoints in the middle of an epoch and restores in place.

`keras.Model.fit` cannot return to an earlier step and fails with several workers. This function
runs the model's `train_step` in the loop of a `TrainingRun`, with Keras callbacks.
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
from tfckpt_trainer.training.iterators import destroy_iterator
from tfckpt_trainer.training.keras.callback_state import CallbackState
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
    """Trains a compiled model like `model.fit`, with checkpoints and commands.

    Call it on every worker. It first restores the newest checkpoint and continues in the middle
    of an epoch if the checkpoint was saved there.

    Args:
        model: A model that was compiled within the scope of its strategy.
        dataset: Batches of one replica, as for `TrainingRun`. The dataset is repeated.
        run_dir: The run directory; by default the one that the launcher set.
        epochs: Total number of epochs.
        steps_per_epoch: Number of steps per epoch; by default the number of complete steps in
            the dataset. One step takes a batch for each replica.
        initial_epoch: Number of the first epoch if nothing is restored.
        callbacks: Keras callbacks. They are called on every worker with equal logs.
        validation_data: Batches of one replica, read from the start after each epoch.
        validation_steps: Number of validation steps; by default all complete steps.
        validation_freq: Number of epochs between validations.
        verbose: 0 prints nothing, 1 a progress bar, 2 a line per epoch. Only the chief prints.
        save_every_epochs: Number of epochs between saves, in addition to those in `options`.
        **options: Options of `TrainingRun`, such as `save_every_steps` and `retention`.

    Returns:
        The history of all epochs, including those before a restart.

    Raises:
        UsageError: The model is not compiled, or the length of an epoch is unknown.
        RefusedError: See `TrainingRun`.
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
    FitLoop(run, group, model, listed, Epochs(steps, initial_epoch), validation).train()
    return next(c for c in listed.callbacks if isinstance(c, keras.callbacks.History))


class Validation:
    """Runs the model's `test_step` over a validation dataset."""

    def __init__(
        self,
        model: keras.Model,
        group: WorkerGroup,
        dataset: tf.data.Dataset | DatasetFunction,
        steps: int | None,
        every_epochs: int,
    ) -> None:
        """Creates the dataset and agrees on the number of steps with all workers.

        Raises:
            UsageError: The number of steps is unknown.
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
        """Returns the metrics, with names that start with `val_`."""
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


class FitLoop:
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
        self._states = CallbackState(callbacks.callbacks)
        self._in_epoch = False
        self._step: Callable[[Any], Logs] = run.function(model.train_step)
        run.before_save(self._keep)
        run.after_restore(self._resume)

    def train(self) -> None:
        """Trains until the last epoch, or until the run is stopped."""
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
            "fit needs a compiled keras.Model. Call model.compile(...) within strategy.scope()."
        )
    if uses_parameter_servers(model.distribute_strategy):
        raise UsageError(WITHOUT_PARAMETER_SERVERS)
    for callback in callbacks:
        if isinstance(callback, keras.callbacks.BackupAndRestore):
            raise UsageError(
                "BackupAndRestore conflicts with fit, which restores checkpoints itself. Remove "
                "BackupAndRestore from the callbacks."
            )


def _agreed_steps(
    group: WorkerGroup, dataset: tf.data.Dataset, given: int | None, what: str, argument: str
) -> int:
    """Returns the number of steps for which every worker has batches."""
    if given is not None:
        if given < 1:
            raise UsageError(f"{argument} is {given}; it must be at least 1.")
        return given
    mine = int(dataset.cardinality().numpy()) // group.local_replicas
    counts = group.all_gather(mine)
    if min(counts) < 1:
        raise UsageError(
            f"The number of steps in {what} is unknown: the datasets of the workers report "
            f"{counts}. Pass {argument}."
        )
    return min(counts)


def _endless(dataset: tf.data.Dataset, elements: int, given: int | None) -> tf.data.Dataset:
    """Returns the dataset repeated endlessly. If no length is given, each epoch starts over."""
    if given is None:
        dataset = dataset.take(elements)
    return dataset.repeat()


def _build(model: keras.Model, strategy: tf.distribute.Strategy, dataset: tf.data.Dataset) -> None:
    """Creates all variables of model, optimizer and metrics, before the first restore.

    `keras.Model.fit` uses the same private method.
    """

    def symbol(specification: Any) -> SimpleNamespace:
        return SimpleNamespace(
            shape=tuple(specification.shape.as_list()), dtype=specification.dtype.name
        )

    with strategy.scope():
        model._symbolic_build(data_batch=tf.nest.map_structure(symbol, dataset.element_spec))
