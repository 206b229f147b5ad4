"""`fit`: Keras training with checkpoints in the middle of an epoch and restores in place.

`keras.Model.fit` cannot return to an earlier step and fails with several workers. This function
runs the model's `train_step` in the loop of a `TrainingRun`, with Keras callbacks.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.framework.func_graph import func_graph_from_py_func

from tfckpt_trainer.bundle.index import read_index
from tfckpt_trainer.catalog.directory.history import latest_of, read_state_list
from tfckpt_trainer.errors import BundleError, DamagedFileError, UsageError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.storage.object_storage import refuse_url
from tfckpt_trainer.training.checkpoint.saves.default_saves import BY_DEFAULT, ByDefault
from tfckpt_trainer.training.keras.fit_callbacks import (
    FitCallbacks,
    backup_directories,
    watched_metric,
    worker_callbacks,
)
from tfckpt_trainer.training.keras.fit_data import FitData, read_data, validation_data_of
from tfckpt_trainer.training.keras.keras_files import KerasFiles
from tfckpt_trainer.training.keras.parameter_servers import check_parameter_servers
from tfckpt_trainer.training.keras.python_batches import PyDatasetBatches
from tfckpt_trainer.training.keras.steps import (
    Logs,
    agreed_steps,
    epoch_logs,
    replica_step,
    step_function,
)
from tfckpt_trainer.training.keras.validation import Validation
from tfckpt_trainer.training.keras_library import (
    build_symbolically,
    count_step,
    is_compiled,
    keras,
    logs_of,
    other_keras,
    steps_per_call,
)
from tfckpt_trainer.training.loop.run_options import check_counts
from tfckpt_trainer.training.loop.training_run import TrainingRun
from tfckpt_trainer.training.steps.inputs import input_type
from tfckpt_trainer.training.steps.parameter_server_step import as_scheduled
from tfckpt_trainer.training.workers.worker_group import (
    WorkerGroup,
    uses_parameter_servers,
)


def build(
    model: keras.Model,
    group: WorkerGroup,
    step: Callable[[Any], Any],
    specification: Any,
    *,
    inline: bool,
) -> None:
    """Creates all variables that a training step uses, without running it.

    `keras.Model.fit` creates them when it traces its first step, or by a symbolic call of the model
    under a strategy. A symbolic call fails, or creates variables of wrong shapes, if the model is
    not called on the inputs of a batch as they are. So the step is traced here too.

    Args:
        model: The compiled model.
        group: The workers.
        step: The training step of one replica, which takes a batch.
        specification: The `element_spec` of the batches.
        inline: Whether not to trace each `tf.function` that the step calls by itself. A trace is
            kept, and would draw random numbers as TensorFlow does, whatever the run is asked for.
    """
    strategy = model.distribute_strategy
    batch = input_type(specification, group.local_replicas)

    def on_all_replicas(batch: Any) -> None:
        strategy.run(step, args=(batch,))

    inline = inline or tf.config.functions_run_eagerly()
    with strategy.scope(), as_scheduled(strategy), _functions_inline(inline):
        try:
            # Not a `tf.function`: variables that it creates cannot be mirrored.
            func_graph_from_py_func("build", on_all_replicas, (batch,), {})
        except Exception:
            # The step needs values, or what a callback sets once training begins. If it is wrong,
            # the first step of the training says so.
            with suppress(Exception):
                build_symbolically(model, specification)


@contextmanager
def _functions_inline(inline: bool) -> Iterator[None]:
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(inline)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)


def fit(
    model: keras.Model,
    x: Any = None,
    y: Any = None,
    batch_size: int | None = None,
    epochs: int = 1,
    *,
    run_dir: str | Path | None = None,
    verbose: int | str = "auto",
    callbacks: Any = None,
    validation_split: float = 0.0,
    validation_data: Any = None,
    shuffle: bool | str = True,
    class_weight: dict[int, float] | None = None,
    sample_weight: Any = None,
    initial_epoch: int = 0,
    steps_per_epoch: int | None = None,
    validation_steps: int | None = None,
    validation_batch_size: int | None = None,
    validation_freq: int | Sequence[int] = 1,
    save_every_epochs: int | ByDefault | None = BY_DEFAULT,
    **options: Any,
) -> keras.callbacks.History:
    """Trains a compiled model like `model.fit`, with checkpoints and commands.

    Call it on every worker. It first restores the newest checkpoint and continues in the middle
    of an epoch if the checkpoint was saved there. A run without checkpoints goes on from files of
    `BackupAndRestore` in `callbacks`, and of `ModelCheckpoint` in its directory.

    Args:
        model: A model that was compiled within the scope of its strategy.
        x: The data: arrays or tensors, also in lists and dictionaries; a `tf.data.Dataset`; a
            `keras.utils.PyDataset`, or a `Sequence` of Keras 2; a function without arguments that
            returns a generator; or a function of `tf.distribute.InputContext` that returns this
            worker's dataset. Batches are divided among all replicas. Only the dataset of a
            function of an `InputContext` has batches of one replica. The data is repeated.
        y: The targets, if `x` is arrays.
        batch_size: Number of examples of a step, over all replicas, if `x` is arrays; by default
            32.
        epochs: Total number of epochs.
        run_dir: The run directory; by default the one that the launcher set.
        verbose: 0 prints nothing, 1 a progress bar, 2 a line per epoch. `"auto"` is 1 on a
            terminal, otherwise 2. Only the chief prints.
        callbacks: Keras callbacks. They are called on every worker with equal logs. Those that
            write files or send data, and those with `chief_only = True`, are called on the chief
            only.
        validation_split: The part of the arrays, taken from their end, that is kept for
            validation.
        validation_data: What to validate with after an epoch: `(x, y)`, `(x, y, sample_weight)`,
            or anything that `x` can be. It is read from its start each time.
        shuffle: Whether to shuffle arrays, or the batches of a `PyDataset`, before each pass.
            `"batch"` shuffles arrays within batches. Datasets and generators are not shuffled.
        class_weight: The weight of each class in the loss.
        sample_weight: The weight of each example in the loss, if `x` is arrays.
        initial_epoch: Number of the first epoch if nothing is restored.
        steps_per_epoch: Number of steps per epoch; by default one pass over the data. Data whose
            length is unknown needs it.
        validation_steps: Number of validation steps; by default all.
        validation_batch_size: As `batch_size`, for validation; by default the same.
        validation_freq: Number of epochs between validations, or a list of the epochs after which
            to validate, counted from 1.
        save_every_epochs: Number of epochs between saves, in addition to those in `options`.
            Without any save option, it saves after each epoch and every 10 minutes, and keeps the
            newest three of these checkpoints and the best one, by the metric that the first
            callback with a `monitor` watches, or else by the loss, of the validation if there is
            one. With None, it does not.
        **options: Options of `TrainingRun`, such as `save_every_steps` and `retention`.

    Returns:
        The history of all epochs, including those before a restart.

    Raises:
        UsageError: The model is not compiled, an argument is invalid, or the length of an epoch
            is unknown.
        RefusedError: See `TrainingRun`; or the files of `BackupAndRestore` do not fit.
    """
    _check(model, epochs, initial_epoch)
    strategy = model.distribute_strategy
    if uses_parameter_servers(strategy):
        options = {"asynchronous": True, **options}
        check_parameter_servers(model, asynchronous=options["asynchronous"])
    group = WorkerGroup(strategy, asynchronous=options.get("asynchronous", False))
    own_callbacks = worker_callbacks(callbacks, is_chief=group.is_chief)
    data, held_out = FitData("x", x, y, sample_weight), None
    if validation_data is not None:
        held_out = validation_data_of(validation_data)
    elif validation_split:
        data, held_out = data.split(validation_split)
    batches = read_data(
        data,
        group,
        batch_size=batch_size,
        steps=steps_per_epoch,
        shuffle=shuffle,
        class_weight=class_weight,
    )
    steps = agreed_steps(group, batches.steps, steps_per_epoch, "x", "steps_per_epoch")
    specification = batches.once().element_spec
    step = replica_step(model.train_step)
    build(model, group, step, specification, inline=options.get("random_seed") is not None)
    # After the model has drawn its initial values, which are those of `keras.Model.fit` then.
    seed = group.broadcast(random.getrandbits(31), int)
    dataset = batches.endless(seed or 0, steps if steps_per_epoch is None else None)
    if isinstance(batches, PyDatasetBatches):
        own_callbacks.append(batches.callback(epochs))
    observers = FitCallbacks(
        model,
        keras.callbacks.CallbackList(
            own_callbacks,
            add_history=True,
            add_progbar=verbose != 0 and group.is_chief,
            model=model,
            verbose=_verbosity(verbose),
            epochs=epochs,
            steps=steps,
        ),
        saved_weights=_saved_weights(run_dir, group),
    )
    run = TrainingRun(
        run_dir,
        model=model,
        optimizer=model.optimizer,
        dataset=dataset,
        strategy=strategy,
        total_steps=(epochs - initial_epoch) * steps,
        **_options(
            options,
            observers,
            save_every_epochs,
            ByDefault(steps, watched_metric(callbacks, validates=held_out is not None)),
        ),
    )
    backups = backup_directories(callbacks)
    files = KerasFiles(run._run, group, model, backups, steps, initial_epoch)
    run._restores.begin = files.load_newest
    validation = None
    if held_out is not None:
        size = validation_batch_size or batch_size
        held = read_data(held_out, group, batch_size=size)
        tracing = run._state.traced.add_function(is_step=False)
        validation = Validation(model, group, held, validation_steps, validation_freq, tracing)
    FitLoop(
        run,
        group,
        step_function(run, group, model, step, specification),
        Epochs(steps, initial_epoch),
        observers,
        validation,
    ).train()
    return observers.history


_BEST_WEIGHTS = "best_weights"
"""Name of the weights of callbacks in a checkpoint."""


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
        step: Callable[[Any], Mapping[str, Any]],
        epochs: Epochs,
        callbacks: FitCallbacks,
        validation: Validation | None,
    ) -> None:
        self._run = run
        self._group = group
        self._step = step
        self._takes_lists = steps_per_call(callbacks.model) > 1
        self._epochs = epochs
        self._callbacks = callbacks
        self._model = callbacks.model
        self._validation = validation
        self._in_epoch = False
        self._named_unsaved: set[str] = set()
        run.set_epoch_steps(epochs.steps)
        run.before_save(self._keep)
        run.after_restore(self._resume)

    def train(self) -> None:
        """Trains until the last epoch, or until the run is stopped."""
        self._model.stop_training = False
        logs: Mapping[str, Any] = {}
        for batch in self._run:
            steps = len(batch) if self._takes_lists else 1
            # A run that begins with a file of Keras has done steps too.
            self._callbacks.begin_training(is_resumed=self._run.step > 0)
            epoch, number = self._epochs.at(self._run.step)
            if not self._in_epoch:
                self._callbacks.begin_epoch(epoch, is_resumed=number > 0)
                self._in_epoch = True
            callbacks = self._callbacks.of_batch(may_repeat=self._run.may_repeat_step)
            callbacks.on_train_batch_begin(number)
            result = self._step(batch)
            # To look at its values would wait for the step.
            logs = logs_of(result) if self._callbacks.look_at_batches else result
            count_step(self._model, self._run.step + steps)
            callbacks.on_train_batch_end(number + steps - 1, logs)
            if number + steps == self._epochs.steps or self._model.stop_training:
                logs = self._end_epoch(epoch, logs)
        self._callbacks.begin_training(is_resumed=False)
        # Legacy optimizers of Keras 2 have no average of the variables.
        if hasattr(self._model.optimizer, "finalize_variable_values"):
            self._model.optimizer.finalize_variable_values(self._model.trainable_weights)
        self._callbacks.all.on_train_end(logs_of(logs))

    def _end_epoch(self, epoch: int, reported: Mapping[str, Any]) -> Logs:
        self._group.join()
        logs = epoch_logs(self._model, reported)
        if self._validation is not None and self._validation.is_due(epoch):
            logs |= self._validation.run(self._callbacks.all)
            self._run.report(
                **{n: v for n, v in logs.items() if n.startswith("val_") and isinstance(v, float)}
            )
        self._callbacks.all.on_epoch_end(epoch, logs)
        self._in_epoch = False
        if self._group.any(bool(self._model.stop_training)):
            self._run.finish(f"a callback set model.stop_training in epoch {epoch + 1}")
        return logs

    def _keep(self) -> None:
        self._run.state["callbacks"] = self._callbacks.state()
        # Training can give an attribute a value of another type at any time.
        unsaved = [name for name in self._callbacks.unsaved if name not in self._named_unsaved]
        self._named_unsaved.update(unsaved)
        if unsaved:
            self._run.note(
                f"Checkpoints do not bring back attributes of callbacks: {', '.join(unsaved)}. "
                "If training changes one, pass it in extra={…}, or give its callback state_dict() "
                "and load_state_dict()."
            )

    def _resume(self) -> None:
        self._callbacks.begin_training(is_resumed=True)
        self._callbacks.restore(self._run.state.get("callbacks", ""))
        self._model.stop_training = False
        self._in_epoch = False


def _check(model: keras.Model, epochs: int, initial_epoch: int) -> None:
    if not is_compiled(model):
        raise UsageError(
            other_keras(model)
            or "fit needs a compiled keras.Model. Call model.compile(...) within strategy.scope()."
        )
    if epochs <= initial_epoch:
        raise UsageError(
            f"epochs is {epochs}, and initial_epoch is {initial_epoch}: nothing is left to train. "
            "Pass the number of the last epoch as epochs."
        )


def _verbosity(given: int | str) -> int:
    if given == "auto":
        return 1 if sys.stdout.isatty() else 2
    return int(given)


def _options(
    options: dict[str, Any],
    callbacks: FitCallbacks,
    save_every_epochs: int | ByDefault | None,
    default: ByDefault,
) -> dict[str, Any]:
    """Returns the options of `TrainingRun` with what `fit` adds to them."""
    if not isinstance(save_every_epochs, ByDefault):
        if "save_every_steps" in options:
            raise UsageError("Give either save_every_epochs or save_every_steps.")
        check_counts(save_every_epochs=save_every_epochs)
        every = save_every_epochs and save_every_epochs * (default.epoch_steps or 0)
        options = {**options, "save_every_steps": every}
    options = {"save_every_steps": default, **options}
    if callbacks.weights:
        options["extra"] = {**(options.get("extra") or {}), _BEST_WEIGHTS: callbacks.weights}
    return options


def _saved_weights(run_dir: str | Path | None, group: WorkerGroup) -> int | None:
    """Returns how many sets of weights of callbacks the newest checkpoint has; None without one.

    A restore needs the same variables. A run therefore keeps its number of sets,
    whatever callbacks its script has now.
    """
    directory = run_dir or os.environ.get("TFCKPT_RUN_DIR")
    if directory:
        refuse_url(directory)
    run = RunDirectory(Path(directory)) if directory and group.is_chief else None
    newest = latest_of(read_state_list(run)) if run is not None else ""
    sets = -1
    if run is not None and newest:
        # The restore says what is wrong with it. TensorFlow would wait for a pipe in its place.
        with suppress(OSError, DamagedFileError, BundleError):
            names = read_index(run.root / newest).entries
            prefix = f"{_BEST_WEIGHTS}/"
            sets = len({name.split("/")[1] for name in names if name.startswith(prefix)})
    agreed = group.broadcast(sets, int)
    return None if agreed is None or agreed < 0 else agreed
