"""Batches from arrays: shuffled by a permutation of the seed and the pass."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.training.keras.batches import (
    endless_passes,
    known_as_endless,
    order_of_pass,
    part_of_batch,
)
from tfckpt_trainer.training.keras_library import (
    ArrayDataAdapter,
    array_slicing,
    can_convert_arrays,
    keras,
)
from tfckpt_trainer.training.workers.worker_group import WorkerGroup


def are_arrays(x: Any, y: Any, sample_weight: Any) -> bool:
    """Whether Keras takes them as arrays: of NumPy, TensorFlow or Pandas, also nested."""
    return x is not None and bool(can_convert_arrays((x, y, sample_weight)))


class ArrayBatches:
    """Batches from arrays that every worker has in whole.

    Each step takes `batch_size` examples, divided among all replicas.
    """

    def __init__(self, adapter: ArrayDataAdapter, shuffle: bool | str, group: WorkerGroup) -> None:
        """Copies the arrays into tensors.

        Args:
            adapter: Keras's view of the arrays: with weights, and the size of a batch.
            shuffle: Whether to shuffle before each pass, or `"batch"` to shuffle within batches.
            group: The workers.

        Raises:
            UsageError: A batch has not an example for each replica.
        """
        self._examples: int = adapter._num_samples
        self._batch_size: int = adapter.batch_size
        self._shuffle = shuffle
        self._group = group
        if min(self._examples, self._batch_size) < group.replicas:
            raise UsageError(
                f"{self._examples} examples in batches of {self._batch_size} are too few for "
                f"{group.replicas} replicas: each replica needs an example of each batch. Pass "
                "more examples, or a larger batch_size."
            )
        steps = math.ceil(self._examples / self._batch_size)
        if 0 < self._examples % self._batch_size < group.replicas:
            steps -= 1
        self._steps = steps
        self.steps: int | None = steps
        with tf.device("/CPU:0"):
            sliceable = array_slicing.convert_to_sliceable(
                adapter._inputs, target_backend="tensorflow"
            )
            self._arrays = keras.tree.traverse(_as_tensor, keras.tree.lists_to_tuples(sliceable))

    @property
    def examples(self) -> int:
        """Number of examples."""
        return self._examples

    def once(self) -> tf.data.Dataset:
        """Returns one pass over the data, in order."""
        return self._pass(tf.zeros(2, tf.int64), shuffle=False)

    def endless(self, seed: int, steps: int | None) -> tf.data.Dataset:
        """Returns endless passes over the data; each ends with the data."""
        del steps
        passes = endless_passes(seed, lambda number: self._pass(number, shuffle=self._shuffle))
        return known_as_endless(passes, self._group)

    def _pass(self, seed_and_pass: tf.Tensor, *, shuffle: bool | str) -> tf.data.Dataset:
        is_whole = bool(shuffle) and shuffle != "batch"
        order = order_of_pass(self._examples, seed_and_pass, shuffled=is_whole)
        local = self._group.local_replicas

        @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
        def element(number: tf.Tensor) -> Any:
            step, replica = number // local, self._group.index * local + number % local
            first = step * self._batch_size
            batch = order[first : tf.minimum(first + self._batch_size, self._examples)]
            if shuffle == "batch":
                seed = seed_and_pass * self._steps + step
                batch = tf.random.experimental.stateless_shuffle(batch, seed)
            size = tf.size(batch, tf.int64)
            begin, end = part_of_batch(size, replica, self._group.replicas)
            part = batch[begin:end]
            if self._examples % self._batch_size == 0 and self._group.replicas == 1:
                # As in `keras.Model.fit`: a model may need the size, and its graph is another one.
                part.set_shape([self._batch_size])
            return keras.tree.traverse(lambda array: _rows(array, part), self._arrays)

        return tf.data.Dataset.range(self._steps * local).map(element)


def _as_tensor(array: Any) -> Any:
    if isinstance(array, array_slicing.TensorflowSparseWrapper) or _is_nest(array):
        # A wrapper as it is; `None` has the parts of a nest looked at.
        return None if _is_plain_nest(array) else array
    return array if tf.is_tensor(array) else tf.convert_to_tensor(array)


def _rows(array: Any, indices: tf.Tensor) -> Any:
    if isinstance(array, array_slicing.TensorflowSparseWrapper):
        return array_slicing.slice_tensorflow_sparse_wrapper(array, indices)
    if _is_nest(array):
        return None
    return tf.gather(array, indices, axis=0)


def _is_nest(thing: Any) -> bool:
    return isinstance(thing, (list, tuple, dict))


def _is_plain_nest(thing: Any) -> bool:
    return _is_nest(thing) and not isinstance(thing, array_slicing.TensorflowSparseWrapper)
