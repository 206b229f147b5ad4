"""Streams of random numbers that start anew at each step.

A draw takes a key and a counter for Philox, the algorithm of `tf.random.Generator`. The key is a
hash of seed and replica; the counter is the step and the number of the draw in it. A graph keeps
the counter in a variable: TensorFlow runs operations on a variable in the order of the program,
so each iteration of a loop and each call of a function draws other numbers. A graph of several
steps counts the step up itself.
"""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from tfckpt_trainer.training.state.variables import exempt

PHILOX = tf.random.Algorithm.PHILOX.value

_LARGEST_DRAW = 2**32
"""How many numbers one draw may have; for each, the counter advances by 256."""

_COUNTERS_OF_STEP = 2**16
"""How far the upper word of the counter advances with a step: the lower may carry into it."""

_TRACES_DATASETS = "tensorflow.python.data.ops.structured_function"


class StreamPosition(NamedTuple):
    """Where the streams of this worker start.

    Attributes:
        seed: The seed of the run.
        step: Steps done; None before training.
        worker: Index of this worker.
    """

    seed: int
    step: int | None
    worker: int


class DrawSource(NamedTuple):
    """Who draws.

    Attributes:
        kind: `replica`, or `worker` outside of all replicas.
        number: Its number in the whole run.
    """

    kind: str
    number: int


class Draw(NamedTuple):
    """What one operation draws from.

    Attributes:
        key: Key of Philox, a vector of one `uint64`.
        counter: Its counter, a vector of two `uint64`.
    """

    key: tf.Tensor
    counter: tf.Tensor


class _Stream(Protocol):
    def next(self) -> Draw: ...
    def place(self) -> Any: ...
    def move(self, place: Any) -> None: ...


class Streams:
    """All streams of this process: one of each source, and one of each operation with a seed."""

    def __init__(self) -> None:
        self._position = StreamPosition(seed=0, step=None, worker=0)
        self._thread = 0
        self._eager: dict[tuple[DrawSource, int | None], _EagerStream] = {}
        self._of_source: dict[DrawSource, _GraphStream] = {}
        self._of_operations: list[_GraphStream] = []

    def start(self, position: StreamPosition) -> None:
        """Starts all streams at a position, for draws of this thread and of its replicas."""
        self._position = position
        self._thread = threading.get_ident()
        self._eager.clear()
        for stream in (*self._of_source.values(), *self._of_operations):
            stream.start(position)

    def next_step(self) -> None:
        """Starts all streams at the next step, or adds to the graph being traced that they do."""
        if tf.executing_eagerly():
            done = self._position.step
            self.start(self._position._replace(step=0 if done is None else done + 1))
            return
        for stream in (*self._of_source.values(), *self._of_operations):
            stream.next_step()

    def serve_caller(self) -> bool:
        """Whether the caller draws from a stream.

        Other threads and functions of datasets do not: they read ahead, in no fixed order. Neither
        do graphs of TensorFlow 1, which cannot use a variable of another graph.
        """
        if threading.get_ident() != self._thread and not tf.distribute.has_strategy():
            return False
        if tf.executing_eagerly():
            return True
        graph = tf.compat.v1.get_default_graph()
        return isinstance(graph, tf.__internal__.FuncGraph) and not _is_in_dataset()

    def next(self, operation_seed: int | None = None) -> Draw:
        """Returns what the next operation draws from.

        Args:
            operation_seed: The seed that the script passes to the operation. In a graph, operations
                with the same seed draw the same numbers, as TensorFlow documents.
        """
        if operation_seed is None or tf.executing_eagerly():
            return self._stream(operation_seed).next()
        stream = _GraphStream(self._source(), operation_seed)
        stream.start(self._position)
        self._of_operations.append(stream)
        return stream.next()

    def seed(self, operation_seed: int | None = None) -> tf.Tensor:
        """Returns what an operation draws from that takes a seed: a vector of two `int32`.

        XLA supports no `int64` there.
        """
        key, counter = self.next(operation_seed)
        return tf.raw_ops.StatelessRandomUniformFullIntV2(
            shape=[2], key=key, counter=counter, alg=PHILOX, dtype=tf.int32
        )

    @contextmanager
    def repeating(self, first: list[Any]) -> Iterator[None]:
        """Has each block with the same list draw what the first one drew.

        Args:
            first: An empty list, which the first block fills.
        """
        stream = self._stream(None)
        reached = stream.place()
        if not first:
            first.append(reached)
            yield
            return
        stream.move(first[0])
        yield
        stream.move(reached)

    def _stream(self, operation_seed: int | None) -> _Stream:
        source = self._source()
        if tf.executing_eagerly():
            name = (source, operation_seed)
            if name not in self._eager:
                key = _key(*self._position, *source, "eager", operation_seed)
                self._eager[name] = _EagerStream(key)
            return self._eager[name]
        if source not in self._of_source:
            self._of_source[source] = stream = _GraphStream(source)
            stream.start(self._position)
        return self._of_source[source]

    def _source(self) -> DrawSource:
        if not tf.distribute.has_strategy() or tf.distribute.in_cross_replica_context():
            return DrawSource("worker", self._position.worker)
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return DrawSource("replica", int(tf.get_static_value(replica)))


class _EagerStream:
    """Counts the draws outside of graphs, in Python."""

    def __init__(self, key: int) -> None:
        self._key = tf.constant(np.array([key], np.int64).view(np.uint64))
        self._drawn = 0

    def next(self) -> Draw:
        counter = tf.constant(np.array([0, self._drawn], np.uint64))
        self._drawn += 1
        return Draw(self._key, counter)

    def place(self) -> int:
        return self._drawn

    def move(self, place: int) -> None:
        self._drawn = place


class _GraphStream:
    """Counts the draws of graphs, in a variable on the device of the replica."""

    def __init__(self, source: DrawSource, operation_seed: int | None = None) -> None:
        self._source = source
        self._operation_seed = operation_seed
        device = None
        if source.kind == "replica":
            devices = tf.distribute.get_strategy().extended.worker_devices
            device = devices[source.number % len(devices)]
        self._state = _local_variable(device)

    def start(self, position: StreamPosition) -> None:
        seed, step, worker = position
        key = _key(seed, worker, *self._source, "graph", self._operation_seed)
        counter = 0 if step is None else (step + 1) * _COUNTERS_OF_STEP
        with tf.init_scope():
            # A quarter of the time of `assign`, and every step waits for it.
            state = np.array([0, counter, key], np.int64)
            tf.raw_ops.AssignVariableOp(resource=self._state.handle, value=state)

    def next_step(self) -> None:
        _, counter, key = tf.unstack(self._state.read_value())
        step = counter // _COUNTERS_OF_STEP
        self._state.assign([tf.zeros_like(key), (step + 1) * _COUNTERS_OF_STEP, key])

    def next(self) -> Draw:
        state = tf.raw_ops.RngReadAndSkip(
            resource=self._state.handle, alg=PHILOX, delta=tf.constant(_LARGEST_DRAW, tf.uint64)
        )
        words = tf.bitcast(state, tf.uint64)
        return Draw(words[2:], words[:2])

    def place(self) -> tf.Tensor:
        return tf.identity(self._state.read_value())

    def move(self, place: tf.Tensor) -> None:
        self._state.assign(place)


def _key(*parts: Any) -> int:
    """Returns a 64-bit number that no other parts have."""
    text = repr(parts).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big", signed=True)


def _local_variable(device: str | None) -> tf.Variable:
    """Creates a variable that no strategy distributes: a new thread is in the scope of none."""

    def create() -> tf.Variable:
        with tf.device(device):
            return exempt(tf.Variable([0, 0, 0], dtype=tf.int64, trainable=False, name="draws"))

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(create).result()


def _is_in_dataset() -> bool:
    """Whether a function of a dataset is being traced."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_globals.get("__name__") == _TRACES_DATASETS:
            return True
    return False
