"""The workers of a run, and how they exchange values between two steps."""

from __future__ import annotations

import itertools
import json
import re
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
import numpy as np
import tensorflow as tf

from tfckpt_trainer.rundir.storage.documents import prepare
from tfckpt_trainer.words.counts import count, noun

ValueT = TypeVar("ValueT")

_GAVE_UP = -1.0
"""What a worker that gave up exchanges; all other numbers are counts or flags."""

_SHORT = 2000
"""Bytes of a value that travel with its length: an all-reduce of them takes as long as one of 4."""

_SHORT_TOGETHER = 16_000
"""The most of them from all workers, so that a flag does not cost many workers more."""

_TASK = re.compile(r"/job:(\w+)(?:/replica:\d+)?/task:(\d+)")

_UNHEALTHY = "tasks are unhealthy"

_TO_LEADER = "CoordinationService/"
"""Names a call to the first worker, with which all others register."""


class WorkerGaveUpError(Exception):
    """A worker called `WorkerGroup.give_up` while this one called another method."""


class WorkerGroup:
    """The workers that run the training loop together.

    TensorFlow has no `get_rank()`: the index of a worker comes from the cluster resolver of its
    strategy. Values travel in all-reduces, so no other connection is needed.

    Attributes:
        index: Index of this worker; 0 is the chief.
        size: Number of workers that run the loop.
        processes: Number of all processes, with the workers and parameter servers that serve a
            chief.
        local_replicas: Replicas on this worker.
        replicas: Replicas in sync over all workers.
        computing: Processes that compute steps.
        is_asynchronous: Whether each step is computed and applied by one of them, beside others.
    """

    def __init__(self, strategy: tf.distribute.Strategy, *, asynchronous: bool = False) -> None:
        """Finds out who they are.

        Args:
            strategy: The strategy.
            asynchronous: As `asynchronous` of `TrainingRun`.
        """
        self._strategy = strategy
        self.is_asynchronous = asynchronous and uses_parameter_servers(strategy)
        self.index, self.size = _index_and_size(strategy)
        self.processes = _process_count(strategy, self.size)
        replicas = _replica_count(strategy)
        self.computing = replicas if uses_parameter_servers(strategy) else self.size
        self.replicas: int = 1 if self.is_asynchronous else replicas
        self.local_replicas = self.replicas // self.size

    @property
    def is_chief(self) -> bool:
        """Whether this is the worker that writes the shared state."""
        return self.index == 0

    @property
    def has_parameter_servers(self) -> bool:
        """Whether other processes hold the variables."""
        return uses_parameter_servers(self._strategy)

    @property
    def job(self) -> str:
        """The job of this process in TensorFlow's cluster, as its heartbeat names it."""
        return "chief" if self.has_parameter_servers else "worker"

    def index_of(self, job: str, task: int) -> int | None:
        """Returns the index of the worker that is a task of TensorFlow's cluster.

        Args:
            job: `worker` or `chief`.
            task: Its number among the tasks of the job.
        """
        if self.size == 1:
            return None
        cluster = _cluster_spec(self._strategy)
        first = cluster.num_tasks("chief") if job == "worker" and "chief" in cluster.jobs else 0
        return first + task if job in cluster.jobs else None

    def idle_devices(self, kind: str = "GPU") -> str:
        """Returns which devices the strategy leaves idle, as a sentence; empty if it uses all.

        Strategies of several processes use all devices that a process sees.

        Args:
            kind: The kind of device, as TensorFlow names it.
        """
        if self.processes > 1:
            return ""
        numbers = range(len(tf.config.list_logical_devices(kind)))
        if not numbers:
            return ""
        try:
            names = self._strategy.extended.worker_devices
        except RuntimeError:
            # Without a strategy, TensorFlow computes on the first device.
            names = (f"/device:{kind}:0",)
        specs = map(tf.DeviceSpec.from_string, names)
        used = {spec.device_index for spec in specs if spec.device_type == kind}
        idle = [str(number) for number in numbers if number not in used]
        if not idle:
            return ""
        who = f"{noun(len(idle), kind)} {', '.join(idle)} {noun(len(idle), 'is', 'are')} idle"
        return f"{who}: the strategy uses {len(used)} of {count(len(numbers), kind)}."

    @property
    def topology(self) -> dict[str, Any]:
        """What a checkpoint's record says about the workers that saved it."""
        return {
            "workers": self.size,
            "replicas": self.replicas,
            "strategy": strategy_name(self._strategy),
        }

    def all_gather(self, value: ValueT) -> list[ValueT]:
        """Returns the values of all workers, by index. All workers call it together.

        Args:
            value: Of the same type on all workers; any type that msgspec can write as JSON.

        Raises:
            tf.errors.OpError: Another worker is gone.
        """
        if self.size == 1:
            return [value]
        texts = self._all_gather_bytes(_encode(value))
        prepare(type(value))
        return [_decode(text, type(value)) for text in texts]

    def broadcast(self, value: ValueT | None, kind: type[ValueT]) -> ValueT | None:
        """Returns the chief's value on all workers. All workers call it together.

        Args:
            value: The value on the chief; ignored on other workers.
            kind: Its type.

        Raises:
            tf.errors.OpError: Another worker is gone.
        """
        if self.size == 1:
            return value
        text, *_ = self._all_gather_bytes(_encode(value if self.is_chief else None))
        prepare(kind)
        received: ValueT | None = _decode(text, kind | None)
        return received

    def any(self, flag: bool) -> bool:
        """Whether the flag of any worker is set. All workers call it together."""
        if self.size == 1:
            return flag
        return bool(self._exchange(float(flag))[:, 0].any())

    def barrier(self) -> None:
        """Waits until all workers have called it.

        Raises:
            tf.errors.OpError: Another worker is gone.
        """
        self.any(False)

    def join(self) -> None:
        """Waits until all steps that were scheduled are applied.

        What reads or changes the state of an asynchronous run calls it first. Steps of other runs
        are applied when their values are read.

        Raises:
            Exception: A step failed.
            tf.errors.OpError: A parameter server is gone.
        """
        if self.is_asynchronous:
            # TensorFlow has one for each strategy, which the script can use too.
            tf.distribute.coordinator.ClusterCoordinator(self._strategy).join()

    def give_up(self) -> None:
        """Ends what the workers do together, after an error on this one.

        Call it instead of the next method that the others call. On each of them, that method
        raises `WorkerGaveUpError`, whichever it is: so all leave their work at the same point.

        Raises:
            tf.errors.OpError: Another worker is gone.
        """
        if self.size > 1:
            with suppress(WorkerGaveUpError):
                self._exchange(_GAVE_UP)

    @property
    def _short(self) -> int:
        return min(_SHORT, _SHORT_TOGETHER // self.size)

    def _exchange(self, number: float, data: bytes = b"") -> np.ndarray[Any, Any]:
        """Returns a row for each worker: its number, and the beginning of its data.

        Every method begins with this.

        Raises:
            WorkerGaveUpError: A worker called `give_up`.
        """
        beginning = np.frombuffer(data[: self._short], np.uint8)
        rows = np.zeros((self.size, 1 + self._short), np.float32)
        rows[self.index, 0] = number
        rows[self.index, 1 : 1 + len(beginning)] = beginning
        rows = self._sum(rows)
        if (rows[:, 0] == _GAVE_UP).any():
            raise WorkerGaveUpError
        return rows

    def _all_gather_bytes(self, data: bytes) -> list[bytes]:
        rows = self._exchange(len(data), data)
        lengths, texts = rows[:, 0].astype(int), rows[:, 1:]
        longest = int(lengths.max())
        if longest > self._short:
            rest = np.zeros((self.size, longest - self._short), np.float32)
            mine = np.frombuffer(data[self._short :], np.uint8)
            rest[self.index, : len(mine)] = mine
            texts = np.hstack([texts, self._sum(rest)])
        return [
            row[:length].astype(np.uint8).tobytes()
            for row, length in zip(texts, lengths, strict=True)
        ]

    def _sum(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Adds `values` over all workers. Every collective implementation supports float32."""
        calls = itertools.count()
        per_replica = self._strategy.experimental_distribute_values_from_function(
            # Only the first replica of a worker contributes its values.
            lambda _: tf.constant(values if next(calls) == 0 else np.zeros_like(values))
        )
        total = self._strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica, axis=None)
        return np.asarray(total.numpy())


def strategy_name(strategy: tf.distribute.Strategy) -> str:
    """Returns the public name of a strategy; its class may have another."""
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return "MultiWorkerMirroredStrategy"
    if uses_parameter_servers(strategy):
        return "ParameterServerStrategy"
    return type(strategy).__name__


def uses_parameter_servers(strategy: tf.distribute.Strategy) -> bool:
    """Whether a chief runs the loop alone, and workers compute for it."""
    return isinstance(strategy, tf.distribute.ParameterServerStrategy)


def _replica_count(strategy: tf.distribute.Strategy) -> int:
    """Returns the replicas; with parameter servers, each worker is one."""
    if uses_parameter_servers(strategy):
        return int(_cluster_spec(strategy).num_tasks("worker"))
    return int(strategy.num_replicas_in_sync)


def _process_count(strategy: tf.distribute.Strategy, size: int) -> int:
    if not uses_parameter_servers(strategy):
        return size
    cluster = _cluster_spec(strategy)
    return sum(cluster.num_tasks(job) for job in cluster.jobs)


def _cluster_spec(strategy: tf.distribute.Strategy) -> tf.train.ClusterSpec:
    # The parameter server strategy has no public `cluster_resolver`: it is None.
    resolver = strategy.cluster_resolver or strategy._cluster_resolver
    return resolver.cluster_spec()


def _index_and_size(strategy: tf.distribute.Strategy) -> tuple[int, int]:
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


def find_lost_peer(group: WorkerGroup, message: str) -> int | None:
    """Returns the index of the worker that did not answer; None if the message does not name it.

    Args:
        group: The workers, with the one that got the message.
        message: Of the error that the collective raised.
    """
    # The first worker reports which others it has not heard of.
    _, _, about = message.rpartition(_UNHEALTHY)
    named = (group.index_of(job, int(task)) for job, task in _TASK.findall(about))
    others = [index for index in named if index is not None and index != group.index]
    if others:
        return others[0]
    if _TO_LEADER in message and not group.is_chief:
        return 0
    return 1 - group.index if group.size == 2 else None


def _encode(value: object) -> bytes:
    """Returns a value as JSON. A file name in it may not be UTF-8: its bytes are written so too."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value)).encode()


def _decode(text: bytes, kind: Any) -> Any:
    """Returns a value that `_encode` wrote."""
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        return msgspec.convert(json.loads(text), type=kind)
