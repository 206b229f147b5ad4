"""A training step on all replicas, with one all-reduce for metrics and the flag of workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tfckpt_trainer.training.loop.inputs import batch_of_replicas

ReplicaStep = Callable[[Any], Any]


class StepFunction:
    """Runs a function on every replica and reduces its metrics, in one `tf.function`.

    The metrics and one flag share a single all-reduce. A worker that asks for a synchronization
    sets the flag, and all workers see it at the end of the same step. A loop that reduces its
    loss anyway needs no further collective for that.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        replica_step: ReplicaStep,
        needs_sync: Callable[[], bool],
        on_result: Callable[[dict[str, float], bool], None],
    ) -> None:
        self._strategy = strategy
        self._replica_step = replica_step
        self._needs_sync = needs_sync
        self._on_result = on_result
        self._names: tuple[str, ...] = ()
        self._compiled = tf.function(self._distributed, reduce_retracing=True)
        # A variable, not an argument: one more argument costs 20 µs in every step.
        self._flag = tf.Variable(0.0, trainable=False, name="needs_sync")
        self._flag_value = False

    def __call__(self, batch: Any) -> dict[str, float]:
        """Runs one step.

        Args:
            batch: The input of the step, as iterating over the run yields it.

        Returns:
            The mean of each metric over all replicas; a single scalar is named `loss`.
        """
        needs_sync = self._needs_sync()
        if needs_sync is not self._flag_value:
            self._flag.assign(float(needs_sync))
            self._flag_value = needs_sync
        *sums, flags = self._compiled(batch).numpy().tolist()
        replicas = self._strategy.num_replicas_in_sync
        means = {name: total / replicas for name, total in zip(self._names, sums, strict=True)}
        self._on_result(means, flags > 0)
        return means

    def _distributed(self, batch: Any) -> tf.Tensor:
        packed = self._strategy.run(self._on_replica, args=(batch,))
        return self._strategy.reduce(tf.distribute.ReduceOp.SUM, packed, axis=None)

    def _on_replica(self, batch: Any) -> tf.Tensor:
        reported = self._replica_step(batch)
        metrics = reported if isinstance(reported, Mapping) else {"loss": reported}
        self._names = tuple(metrics)
        scalars = [tf.cast(tf.reduce_mean(value), tf.float32) for value in metrics.values()]
        return tf.stack([*scalars, self._flag])


def mean_over_replicas(
    strategy: tf.distribute.Strategy, replica_step: ReplicaStep
) -> Callable[[list[Any]], dict[str, float]]:
    """Returns a function that runs `replica_step` on all replicas, such as for validation.

    Args:
        strategy: The strategy.
        replica_step: Takes a batch on one replica and returns a dictionary of scalars.

    Returns:
        A function that takes one element for each replica of this worker, and returns the means
        over all replicas. All workers call it together.
    """
    names: list[str] = []

    def on_replica(batch: Any) -> tf.Tensor:
        metrics = replica_step(batch)
        names[:] = metrics
        return tf.stack([tf.cast(value, tf.float32) for value in metrics.values()])

    def step(batch: Any) -> tf.Tensor:
        packed = strategy.run(on_replica, args=(batch,))
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, packed, axis=None)

    compiled = tf.function(step, reduce_retracing=True)

    def run(elements: list[Any]) -> dict[str, float]:
        values = compiled(batch_of_replicas(strategy, elements)).numpy().tolist()
        return dict(zip(names, values, strict=True))

    return run
