"""One training step on all replicas, with the one all-reduce that also carries control."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tfckpt_trainer.training.loop.inputs import batch_of_replicas

ReplicaStep = Callable[[Any], Any]


class StepFunction:
    """Runs a function on every replica and reduces what it reports, in one `tf.function`.

    The reported scalars and one attention flag travel in a single all-reduce: a worker that
    wants to stop, or a chief that holds a command, raises the flag, and all workers see it at
    the end of the same step. Nothing is added to a loop that reduces its loss anyway.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        replica_step: ReplicaStep,
        wants_attention: Callable[[], bool],
        on_result: Callable[[dict[str, float], bool], None],
    ) -> None:
        self._strategy = strategy
        self._replica_step = replica_step
        self._wants_attention = wants_attention
        self._on_result = on_result
        self._names: tuple[str, ...] = ()
        self._compiled = tf.function(self._distributed, reduce_retracing=True)
        # A variable, not an argument: binding one more argument costs 20 µs in every step.
        self._flag = tf.Variable(0.0, trainable=False, name="attention")
        self._raised = False

    def __call__(self, batch: Any) -> dict[str, float]:
        """Runs one step.

        Args:
            batch: What iterating over the run yielded.

        Returns:
            The mean over all replicas of each scalar that the function returned; a single
            scalar is called `loss`.
        """
        wanted = self._wants_attention()
        if wanted is not self._raised:
            self._flag.assign(float(wanted))
            self._raised = wanted
        *sums, attention = self._compiled(batch).numpy().tolist()
        replicas = self._strategy.num_replicas_in_sync
        means = {name: total / replicas for name, total in zip(self._names, sums, strict=True)}
        self._on_result(means, attention > 0)
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
    """Makes a function of one replica into one of all, outside training.

    Args:
        strategy: The strategy.
        replica_step: Returns a dictionary of scalars on one replica.

    Returns:
        A function of this worker's elements, one for each of its replicas; it returns the
        means over the replicas of all workers, who call it together.
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
