"""Validation during `fit`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.training.keras.batches import Batches
from tfckpt_trainer.training.keras.steps import (
    Logs,
    agreed_steps,
    compiled_as,
    epoch_logs,
    replica_step,
)
from tfckpt_trainer.training.keras_library import keras, logs_of
from tfckpt_trainer.training.pipelines.iterators import destroy_iterator
from tfckpt_trainer.training.steps.inputs import input_type
from tfckpt_trainer.training.steps.parameter_server_step import mean_over_workers
from tfckpt_trainer.training.steps.step_functions import mean_over_replicas
from tfckpt_trainer.training.workers.worker_group import WorkerGroup


class Validation:
    """Runs the model's `test_step` over validation data, from its start each time."""

    def __init__(
        self,
        model: keras.Model,
        group: WorkerGroup,
        batches: Batches,
        steps: int | None,
        frequency: int | Sequence[int],
        tracing: Callable[[], None],
    ) -> None:
        """Agrees on the number of steps with all workers.

        Args:
            model: The compiled model.
            group: The workers.
            batches: The data of this worker.
            steps: Steps of each validation; None takes all.
            frequency: Epochs between two validations, or the numbers of the epochs after which
                it runs, counted from 1.
            tracing: Called while the graph of `test_step` is made.

        Raises:
            UsageError: The number of steps is unknown, or the frequency is invalid.
        """
        self._model = model
        self._replicas = group.local_replicas
        self._frequency = _checked(frequency)
        self._dataset = batches.once()
        self._steps = agreed_steps(
            group, batches.steps, steps, "validation_data", "validation_steps"
        )
        test = compiled_as(model, replica_step(model.test_step))
        if group.has_parameter_servers:
            self._test = mean_over_workers(model.distribute_strategy, test, tracing)
            return
        self._test = mean_over_replicas(
            model.distribute_strategy,
            test,
            tracing,
            run_eagerly=model.run_eagerly,
            of_type=input_type(self._dataset.element_spec, group.local_replicas),
        )

    def is_due(self, epoch: int) -> bool:
        """Whether it runs after this epoch, counted from 0."""
        if isinstance(self._frequency, int):
            return (epoch + 1) % self._frequency == 0
        return epoch + 1 in self._frequency

    def run(self, callbacks: keras.callbacks.CallbackList) -> Logs:
        """Returns the metrics, with names that start with `val_`."""
        callbacks.on_test_begin()
        self._model.reset_metrics()
        logs: Logs = {}
        iterator = iter(self._dataset)
        try:
            for number in range(self._steps):
                callbacks.on_test_batch_begin(number)
                logs = logs_of(self._test([next(iterator) for _ in range(self._replicas)]))
                callbacks.on_test_batch_end(number, logs)
        finally:
            destroy_iterator(iterator)
        logs = epoch_logs(self._model, logs)
        callbacks.on_test_end(logs)
        return {f"val_{name}": value for name, value in logs.items()}


def _checked(frequency: int | Sequence[int]) -> int | frozenset[int]:
    if isinstance(frequency, int) and frequency >= 1:
        return frequency
    if isinstance(frequency, (list, tuple, set)) and all(isinstance(n, int) for n in frequency):
        return frozenset(frequency)
    raise UsageError(
        f"validation_freq is {frequency!r}. Pass a number of epochs, at least 1, or a list of "
        "epochs, counted from 1."
    )
