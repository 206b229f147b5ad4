"""The workers of one run as a group that can agree between steps."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import numpy as np
import tensorflow as tf

Message = dict[str, Any]


WITHOUT_PARAMETER_SERVERS = (
    "Keras's fit loses updates where parameter servers keep the variables; train with a loop over "
    "TrainingRun, or choose another strategy."
)


class WorkerGroup:
    """Knows which worker this is, and lets all workers exchange messages.

    TensorFlow has no `get_rank()`: the number of a worker comes from the cluster resolver of
    its strategy. Messages travel in all-reduces, so they need no further connection, and no
    worker can be one step ahead of another when it receives one.

    Attributes:
        index: This worker's number; 0 is the chief.
        size: Workers in the group: those that run the script's loop.
        processes: With those that serve them.
        local_replicas: Replicas on this worker.
        replicas: Replicas in sync over all workers.
    """

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self._strategy = strategy
        self.index, self.size = _place(strategy)
        self.processes = _processes(strategy, self.size)
        self.replicas: int = replica_count(strategy)
        self.local_replicas = self.replicas // self.size

    @property
    def is_chief(self) -> bool:
        """Whether this worker writes what is shared."""
        return self.index == 0

    def gather(self, message: Message) -> list[Message]:
        """Returns the messages of all workers, by index; all workers call it together.

        Args:
            message: What this worker says; anything that JSON can carry.

        Raises:
            tf.errors.OpError: A peer is gone.
        """
        if self.size == 1:
            return [message]
        data = msgspec.json.encode(message)
        lengths = np.zeros(self.size, np.float32)
        lengths[self.index] = len(data)
        lengths = self._sum(lengths)
        texts = np.zeros((self.size, int(lengths.max())), np.float32)
        texts[self.index, : len(data)] = np.frombuffer(data, np.uint8)
        rows = self._sum(texts).astype(np.uint8)
        return [
            msgspec.json.decode(row[: int(length)].tobytes())
            for row, length in zip(rows, lengths, strict=True)
        ]

    def any(self, flag: bool) -> bool:
        """Whether any worker raised its flag; all workers call it together, in every step."""
        if self.size == 1:
            return flag
        return bool(self._sum(np.array([flag], np.float32))[0] > 0)

    def _sum(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Adds `values` over all workers. Every collective there is can carry float32."""
        calls = itertools.count()
        per_replica = self._strategy.experimental_distribute_values_from_function(
            # Only the first replica of a worker speaks for it.
            lambda _: tf.constant(values if next(calls) == 0 else np.zeros_like(values))
        )
        total = self._strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica, axis=None)
        return np.asarray(total.numpy())


def strategy_name(strategy: tf.distribute.Strategy) -> str:
    """Returns the name under which people know a strategy; its class may have another."""
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return "MultiWorkerMirroredStrategy"
    if uses_parameter_servers(strategy):
        return "ParameterServerStrategy"
    return type(strategy).__name__


def uses_parameter_servers(strategy: tf.distribute.Strategy) -> bool:
    """Whether one chief runs the loop, and workers compute for it."""
    return isinstance(strategy, tf.distribute.ParameterServerStrategy)


def replica_count(strategy: tf.distribute.Strategy) -> int:
    """Returns the replicas in sync; where a chief coordinates workers, each is one."""
    if uses_parameter_servers(strategy):
        return int(_cluster(strategy).num_tasks("worker"))
    return int(strategy.num_replicas_in_sync)


def _processes(strategy: tf.distribute.Strategy, size: int) -> int:
    if not uses_parameter_servers(strategy):
        return size
    cluster = _cluster(strategy)
    return sum(cluster.num_tasks(job) for job in cluster.jobs)


def _cluster(strategy: tf.distribute.ParameterServerStrategy) -> tf.train.ClusterSpec:
    # Its public `cluster_resolver` is None, unlike that of other strategies.
    return strategy._cluster_resolver.cluster_spec()


def _place(strategy: tf.distribute.Strategy) -> tuple[int, int]:
    resolver = strategy.cluster_resolver
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy) or resolver is None:
        return 0, 1
    cluster = resolver.cluster_spec()
    jobs = [job for job in ("chief", "worker") if job in cluster.jobs]
    if not jobs:
        return 0, 1
    earlier = jobs[: jobs.index(resolver.task_type)]
    first = sum(cluster.num_tasks(job) for job in earlier)
    return first + resolver.task_id, sum(cluster.num_tasks(job) for job in jobs)
