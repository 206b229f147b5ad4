"""A callback for Keras's own `fit`: save, pause, stop and go back between two batches."""

from __future__ import annotations

import time
from typing import Any

import keras

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.training.loop.training_run import TrainingRun
from tfckpt_trainer.training.worker_group import (
    WITHOUT_PARAMETER_SERVERS,
    uses_parameter_servers,
)


class SteeringCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Makes `model.fit` steerable where it cannot be replaced by `tfckpt_trainer.training.fit`.

    ```python
    run = TrainingRun(run_dir, model=model, optimizer=model.optimizer, strategy=strategy)
    model.fit(data, epochs=9, callbacks=[SteeringCallback(run)])
    ```

    Keras's `fit` owns its input and its count of epochs. So a restore in place brings back
    weights, slots and step, and the input goes on where it is; a start from a checkpoint begins
    the epoch anew in which it was saved. The journal says so. `tfckpt_trainer.training.fit` has
    no such gap.
    """

    def __init__(self, run: TrainingRun) -> None:
        """Takes the run, which has no dataset.

        Raises:
            UsageError: It has several workers, on which Keras's own `fit` fails.
        """
        super().__init__()
        if run.worker_count > 1:
            raise UsageError(
                "Keras's own fit does not work on several workers; use tfckpt_trainer.training.fit "
                "in its place, which takes the same model, dataset and callbacks."
            )
        self._run = run
        self._began = 0.0

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Restores the newest checkpoint, and has `fit` begin with its epoch.

        Raises:
            UsageError: Parameter servers keep the variables.
        """
        del logs
        if uses_parameter_servers(self.model.distribute_strategy):
            raise UsageError(WITHOUT_PARAMETER_SERVERS)
        if not self.model.optimizer.built:
            with self.model.distribute_strategy.scope():
                self.model.optimizer.build(self.model.trainable_variables)
        self._run.open()
        steps = self.params.get("steps")
        if steps and self._run.step:
            # The way by which Keras's own BackupAndRestore resumes.
            self.model._initial_epoch = self._run.step // steps
        self._run.note(
            "Keras's own fit reads the input: after a restore in place it goes on where it is, "
            "and a start begins the epoch of its checkpoint anew."
        )

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Takes the time."""
        del batch, logs
        self._began = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Does what is due after the step."""
        del batch
        self._run.report(**(logs or {}))
        self._run.step_done(time.perf_counter() - self._began)
        if self._run.is_over:
            self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Shows the metrics of the epoch."""
        del epoch
        self._run.report(**{name: v for name, v in (logs or {}).items() if name.startswith("val_")})

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Saves the last step."""
        del logs
        self._run.close(finished=True)
