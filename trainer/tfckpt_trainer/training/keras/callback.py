"""A callback that adds saving, restoring, pausing and stopping to `keras.Model.fit`."""

from __future__ import annotations

import time
from typing import Any

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.training.keras_library import begin_at_epoch, build_optimizer, keras
from tfckpt_trainer.training.loop.training_run import TrainingRun
from tfckpt_trainer.training.workers.worker_group import uses_parameter_servers

_WITHOUT_PARAMETER_SERVERS = (
    "SteeringCallback does not support parameter servers: Keras calls no callback between steps "
    "there. Use tfckpt_trainer.training.fit with Keras 2, or a loop over TrainingRun."
)

_EPOCH = "epoch"
"""Name of the epoch to begin with, in the state of the run."""


class SteeringCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Adds commands and checkpoints to `model.fit`. Prefer `tfckpt_trainer.training.fit`.

    ```python
    run = TrainingRun(run_dir, model=model, optimizer=model.optimizer, strategy=strategy)
    model.fit(data, epochs=9, callbacks=[SteeringCallback(run)])
    ```

    Keras controls the input pipeline and the epoch. So a restore in place does not restore the
    iterator state, and a cold restore starts the epoch of the checkpoint from its beginning.
    `tfckpt_trainer.training.fit` does not have these limits.
    """

    def __init__(self, run: TrainingRun) -> None:
        """Creates a callback.

        Args:
            run: A run without a dataset.

        Raises:
            UsageError: The run has several workers, which `keras.Model.fit` does not support.
        """
        super().__init__()
        if run.worker_count > 1:
            raise UsageError(
                "keras.Model.fit does not support several workers. Use tfckpt_trainer.training.fit "
                "instead, with the same model, dataset and callbacks."
            )
        self._run = run
        self._began = 0.0
        self._first_batch = 0
        self._next_epoch = 0
        run.before_save(self._keep)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Restores the newest checkpoint and sets the initial epoch.

        Raises:
            UsageError: The strategy uses parameter servers.
        """
        del logs
        if uses_parameter_servers(self.model.distribute_strategy):
            raise UsageError(_WITHOUT_PARAMETER_SERVERS)
        with self.model.distribute_strategy.scope():
            build_optimizer(self.model.optimizer, self.model.trainable_variables)
        steps, epochs = self.params.get("steps"), self.params["epochs"]
        self._run.open(total_steps=epochs * steps if steps else None)
        if self._run.is_over:
            begin_at_epoch(self.model, epochs)
        elif self._run.step and (steps or _EPOCH in self._run.state):
            # Keras's own BackupAndRestore resumes in the same way.
            first = self._run.state.get(_EPOCH)
            begin_at_epoch(self.model, self._run.step // steps if first is None else first)
        self._run.note(
            "keras.Model.fit controls the input pipeline: a restore in place does not restore the "
            "iterator state, and a cold restore starts the epoch of the checkpoint again."
        )

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Takes the number of the epoch."""
        del logs
        self._next_epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Starts the timer of the step, or of several: see `steps_per_execution` of Keras."""
        del logs
        self._first_batch = batch
        self._began = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Reports the metrics and ends the step."""
        # A save after the last batch of an epoch goes on with the next one.
        in_epoch = self.params.get("steps")
        # Keras counts the last execution of an epoch as if it were as long as the others.
        done = min(batch + 1, in_epoch or batch + 1)
        self._next_epoch += done == in_epoch
        self._run.report(**(logs or {}))
        seconds = time.perf_counter() - self._began
        self._run.step_done(seconds, steps=done - self._first_batch)
        if self._run.is_over:
            self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Reports the validation metrics of the epoch."""
        self._next_epoch = epoch + 1
        self._run.report(**{name: v for name, v in (logs or {}).items() if name.startswith("val_")})

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Saves the last step and closes the run."""
        del logs
        if self.model.stop_training and not self._run.is_over:
            self._run.finish(f"a callback set model.stop_training in epoch {self._next_epoch}")
        self._run.close(finished=True)

    def _keep(self) -> None:
        self._run.state[_EPOCH] = self._next_epoch
