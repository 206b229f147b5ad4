"""The input of one worker: batches for its replicas, and a position that can be saved."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.training.loop.iterators import drop
from tfckpt_trainer.training.loop.worker_group import WorkerGroup, uses_parameter_servers

DatasetFunction = Callable[[tf.distribute.InputContext], tf.data.Dataset]


class Inputs:
    """Feeds one worker. A distributed iterator cannot be saved; a plain one can, exactly.

    Each element of the dataset is the batch of one replica; a step takes as many elements as
    the worker has replicas. The position, with the content of shuffle buffers, belongs to the
    state of the worker.

    Attributes:
        iterator: What the worker's checkpoint tracks.
        examples: Examples in the first dimension of one replica's batch; None before the first.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        group: WorkerGroup,
        dataset: tf.data.Dataset | DatasetFunction,
    ) -> None:
        self._strategy = strategy
        self._local_replicas = group.local_replicas
        self.iterator = iter(made_for_worker(dataset, group))
        self.examples: int | None = None

    def next(self) -> tuple[Any, float]:
        """Returns the input of one step and how many seconds it took to come.

        Raises:
            StopIteration: The dataset is at its end.
        """
        began = time.perf_counter()
        elements = [next(self.iterator) for _ in range(self._local_replicas)]
        if self.examples is None:
            self.examples = _leading_dimension(elements[0])
        batch = batch_of_replicas(self._strategy, elements)
        return batch, time.perf_counter() - began

    def close(self) -> None:
        """Destroys the iterator, without waiting for it."""
        drop(self.iterator)


def made_for_worker(
    dataset: tf.data.Dataset | DatasetFunction, group: WorkerGroup
) -> tf.data.Dataset:
    """Returns the dataset of this worker, having called the function that makes it.

    Raises:
        UsageError: It is no dataset.
    """
    if not isinstance(dataset, tf.data.Dataset):
        dataset = dataset(
            tf.distribute.InputContext(
                num_input_pipelines=group.size,
                input_pipeline_id=group.index,
                num_replicas_in_sync=group.replicas,
            )
        )
    if not isinstance(dataset, tf.data.Dataset):
        raise UsageError(
            f"dataset is a {type(dataset).__name__}; expected a tf.data.Dataset of this "
            "worker's batches, or a function of tf.distribute.InputContext that returns one."
        )
    return dataset


def batch_of_replicas(strategy: tf.distribute.Strategy, elements: list[Any]) -> Any:
    """Returns what a step takes: one element for each replica of this worker."""
    if uses_parameter_servers(strategy):
        return elements
    if len(elements) == 1:
        return elements[0]
    calls = itertools.count()
    return strategy.experimental_distribute_values_from_function(lambda _: elements[next(calls)])


def _leading_dimension(element: Any) -> int | None:
    for tensor in tf.nest.flatten(element):
        if tensor.shape.rank:
            return int(tensor.shape[0])
    return None
