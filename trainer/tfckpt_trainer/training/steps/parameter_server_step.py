"""A training step with parameter servers, applied by the chief.

If workers apply their gradients by themselves, they lose updates: Keras's optimizers read a
variable and then write it, and other workers write in between. So the workers only compute
gradients here, each for the batch of one replica. The chief adds them in the order of the
workers and applies the sum once. The result is that of a `MirroredStrategy` with as many replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.training.steps.step_functions import (
    OnResult,
    ReplicaStep,
    StepFlags,
    of_script,
    scalars_of,
)


class ParameterServerStep:
    """Runs `replica_step` on every worker, and applies the sum of their gradients."""

    def __init__(
        self,
        strategy: tf.distribute.ParameterServerStrategy,
        optimizer: Any,
        replica_step: ReplicaStep,
        flags: Callable[[], StepFlags],
        on_result: OnResult,
        tracing: Callable[[], None],
    ) -> None:
        self._strategy = strategy
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        self._optimizer = optimizer
        self._replica_step = replica_step
        self._flags = flags
        self._on_result = on_result
        self._tracing = tracing
        self._names: tuple[str, ...] = ()
        self._variables: list[Any] = []
        self._compute = tf.function(self._on_worker, reduce_retracing=True, autograph=False)
        self._update = tf.function(self._apply, autograph=False)

    def __call__(self, elements: Sequence[Any]) -> dict[str, float]:
        """Runs one step.

        Args:
            elements: One batch for each worker, as iterating over the run yields them.

        Returns:
            The mean of each metric over all workers; a single scalar is named `loss`.
        """
        scheduled = [
            self._coordinator.schedule(self._compute, args=(element,)) for element in elements
        ]
        results = [result.fetch() for result in scheduled]
        if self._variables:
            gradients = [of_worker for _, of_worker in results]
            self._coordinator.schedule(self._update, args=(gradients,))
            self._coordinator.join()
        means = sum(packed for packed, _ in results) / len(results)
        metrics = {name: float(value) for name, value in zip(self._names, means, strict=True)}
        self._on_result([dict(metrics)], self._flags())
        return metrics

    def _on_worker(self, element: Any) -> tuple[tf.Tensor, list[tf.Tensor]]:
        self._tracing()
        packed, gradients = self._strategy.run(self._on_replica, args=(element,))
        return packed, gradients

    def _on_replica(self, element: Any) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with recorded(self._optimizer) as applied:
            reported = of_script(self._replica_step)(element)
        if len(applied) > 1:
            raise UsageError(
                f"A step applied gradients {len(applied)} times. With parameter servers, apply "
                "them once per step."
            )
        pairs = applied[0] if applied else []
        self._variables = [variable for _, variable in pairs]
        metrics = scalars_of(reported)
        self._names = tuple(metrics)
        packed = tf.stack([*metrics.values()]) if metrics else tf.zeros([0])
        # Embedding lookups have sparse gradients (IndexedSlices).
        return packed, [tf.convert_to_tensor(gradient) for gradient, _ in pairs]

    def _apply(self, gradients: Sequence[Sequence[tf.Tensor]]) -> None:
        # Keras reduces gradients to their device, so they need one.
        with tf.device("/CPU:0"):
            together = zip(*gradients, strict=True)
            sums = [tf.identity(tf.add_n(list(of_workers))) for of_workers in together]
        self._strategy.run(self._optimizer.apply, args=(sums, self._variables))


@contextmanager
def recorded(optimizer: Any) -> Iterator[list[list[tuple[tf.Tensor, Any]]]]:
    """Has an optimizer record gradients instead of applying them.

    `apply_gradients` and `minimize` of Keras's optimizers call `apply`.
    """
    applied: list[list[tuple[tf.Tensor, Any]]] = []

    def record(gradients: Iterable[Any], trainable_variables: Iterable[Any] | None = None) -> None:
        variables = trainable_variables
        if variables is None:
            variables = optimizer._trainable_variables
        pairs = zip(gradients, variables, strict=True)
        applied.append([(gradient, v) for gradient, v in pairs if gradient is not None])

    if optimizer is None:
        yield applied
        return
    object.__setattr__(optimizer, "apply", record)
    try:
        yield applied
    finally:
        object.__delattr__(optimizer, "apply")
