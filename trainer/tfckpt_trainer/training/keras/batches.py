"""Batches of one replica with a position that can be saved, from what `fit` takes as data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import tensorflow as tf

from tfckpt_trainer.training.pipelines.obstacles import REPEATED_BY_FIT
from tfckpt_trainer.training.steps.inputs import DatasetFunction, worker_dataset
from tfckpt_trainer.training.workers.worker_group import WorkerGroup

_ENDLESS = 2**62


class Batches(Protocol):
    """The data of this worker: each element is the batch of one replica.

    Attributes:
        steps: Steps in one pass over the data; None if unknown. One step takes an element for
            each replica.
    """

    steps: int | None

    def once(self) -> tf.data.Dataset:
        """Returns one pass over the data, in order."""
        ...

    def endless(self, seed: int, steps: int | None) -> tf.data.Dataset:
        """Returns endless passes over the data.

        Args:
            seed: Seed of the order, if the data is shuffled; equal on all workers.
            steps: Steps after which a pass ends; None if it ends with the data.
        """
        ...


class DatasetBatches:
    """The batches of a `tf.data.Dataset`.

    A function of `tf.distribute.InputContext` returns batches of one replica. The batches of a
    dataset are divided among all replicas, as Keras does.
    """

    def __init__(
        self,
        dataset: tf.data.Dataset | DatasetFunction,
        group: WorkerGroup,
        transform: Callable[..., Any] | None,
    ) -> None:
        """Creates the dataset of this worker.

        Args:
            dataset: The dataset, or a function that returns it.
            group: The workers.
            transform: A function to map the elements with.

        Raises:
            UsageError: The function returns something else.
        """
        is_whole = isinstance(dataset, tf.data.Dataset)
        own = worker_dataset(dataset, group)
        elements = int(own.cardinality().numpy())
        self.steps = None
        if elements >= 0:
            self.steps = elements if is_whole else elements // group.local_replicas
        if transform is not None:
            own = own.map(transform)
        self._elements_per_step = group.local_replicas
        self._dataset = divided(own, group) if is_whole else own

    def once(self) -> tf.data.Dataset:
        """Returns one pass over the data, in order."""
        return self._dataset

    def endless(self, seed: int, steps: int | None) -> tf.data.Dataset:
        """Returns endless passes; the dataset shuffles itself."""
        del seed
        dataset = self._dataset
        if steps is not None:
            dataset = dataset.take(steps * self._elements_per_step)
        return dataset.repeat(name=REPEATED_BY_FIT)


def endless_passes(seed: int, one_pass: Callable[[tf.Tensor], tf.data.Dataset]) -> tf.data.Dataset:
    """Returns endless passes over data with random access.

    Its position is a few numbers: the seed, the pass, and the element in it. Reading ahead would
    add elements to it.

    Args:
        seed: Part of the saved position: after a restore, it is the one of the first start.
        one_pass: Returns the elements of a pass, from a tensor of the seed and the pass.
    """

    def numbered(seed: tf.Tensor, number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return seed, tf.stack([seed, number])

    start = tf.constant(seed, tf.int64)
    passes = tf.data.Dataset.range(_ENDLESS).scan(start, numbered)
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    options.autotune.enabled = False
    return passes.flat_map(one_pass).with_options(options)


def known_as_endless(dataset: tf.data.Dataset, group: WorkerGroup) -> tf.data.Dataset:
    """Returns an endless dataset with that length, which TensorFlow does not see itself.

    Several workers need not agree then on how much input they have left.
    """
    if group.size == 1:
        return dataset
    endless = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
    return dataset.apply(endless)


def order_of_pass(count: int, seed_and_pass: tf.Tensor, *, shuffled: bool) -> tf.Tensor:
    """Returns the numbers up to `count` in the order of a pass."""
    numbers = tf.range(count, dtype=tf.int64)
    if not shuffled:
        return numbers
    return tf.random.experimental.stateless_shuffle(numbers, seed_and_pass)


def divided(dataset: tf.data.Dataset, group: WorkerGroup) -> tf.data.Dataset:
    """Divides each batch among all replicas; returns the parts for those of this worker."""
    if group.replicas == 1:
        return dataset
    first = group.index * group.local_replicas
    is_tuple = isinstance(dataset.element_spec, tuple)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def parts(*elements: Any) -> tf.data.Dataset:
        batch = elements if is_tuple else elements[0]

        @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
        def part(replica: tf.Tensor) -> Any:
            return tf.nest.map_structure(
                lambda tensor: _part_of_tensor(tensor, replica, group.replicas), batch
            )

        return tf.data.Dataset.range(first, first + group.local_replicas).map(part)

    return dataset.flat_map(parts)


def part_of_batch(size: Any, replica: Any, replicas: int) -> tuple[Any, Any]:
    """Returns the bounds of a replica's part of a batch; sizes of parts differ by one at most."""
    share, rest = size // replicas, size % replicas
    begin = replica * share + tf.minimum(replica, rest)
    return begin, begin + share + tf.cast(replica < rest, tf.int64)


def _part_of_tensor(tensor: Any, replica: tf.Tensor, replicas: int) -> Any:
    if tensor is None:
        return None
    if isinstance(tensor, tf.SparseTensor):
        size = tensor.dense_shape[0]
    elif isinstance(tensor, tf.RaggedTensor):
        size = tensor.nrows(tf.int64)
    else:
        size = tf.shape(tensor, tf.int64)[0]
    begin, end = part_of_batch(size, replica, replicas)
    if isinstance(tensor, tf.SparseTensor):
        rest = tf.zeros_like(tensor.dense_shape[1:])
        start = tf.concat([[begin], rest], 0)
        return tf.sparse.slice(tensor, start, tf.concat([[end - begin], tensor.dense_shape[1:]], 0))
    return tensor[begin:end]
