"""The input pipeline of one worker, with a position that can be saved."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.training.iterators import destroy_iterator
from tfckpt_trainer.training.loop.step_reader import StepReader
from tfckpt_trainer.training.worker_group import WorkerGroup, uses_parameter_servers

DatasetFunction = Callable[[tf.distribute.InputContext], tf.data.Dataset]


class Inputs:
    """Reads the batches of one worker with a plain iterator.

    A distributed iterator cannot be saved; a plain one can, with the content of its shuffle
    buffers. Each element of the dataset is the batch of one replica, and a step reads as many
    elements as the worker has replicas.

    Attributes:
        reader: Reads the elements, and knows which are the last.
        iterator: The iterator, part of the worker's state.
        examples: Size of the first dimension of one replica's batch; None before the first batch.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        group: WorkerGroup,
        dataset: tf.data.Dataset | DatasetFunction,
    ) -> None:
        self._strategy = strategy
        self.reader = StepReader(
            worker_dataset(dataset, group), group.local_replicas, mark=group.size > 1
        )
        self.iterator = self.reader.iterator
        self.examples: int | None = None

    def next(self) -> tuple[Any, float]:
        """Returns the input of one step, and how many seconds it took to read.

        Raises:
            StopIteration: The dataset has ended.
        """
        began = time.perf_counter()
        elements = self.reader.read()
        if self.examples is None:
            self.examples = _leading_dimension(elements[0])
        batch = batch_of_replicas(self._strategy, elements)
        return batch, time.perf_counter() - began

    def blank(self) -> Any:
        """Returns an input of zeros, in the shape of that of a step.

        Raises:
            UsageError: The elements have parts that are not tensors.
        """
        element = tf.nest.map_structure(_blank, self.reader.element_spec)
        return batch_of_replicas(self._strategy, [element] * self.reader.replicas)

    def close(self) -> None:
        """Destroys the iterator, without waiting for it."""
        destroy_iterator(self.iterator)


def worker_dataset(
    dataset: tf.data.Dataset | DatasetFunction, group: WorkerGroup
) -> tf.data.Dataset:
    """Returns the dataset of this worker; calls the function if `dataset` is one.

    Raises:
        UsageError: The result is not a dataset.
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
    """Returns the input of a step function: one element for each replica of this worker."""
    if uses_parameter_servers(strategy):
        return elements
    if len(elements) == 1:
        return elements[0]
    calls = itertools.count()
    return strategy.experimental_distribute_values_from_function(lambda _: elements[next(calls)])


def _blank(spec: Any) -> tf.Tensor:
    if not isinstance(spec, tf.TensorSpec):
        raise UsageError(
            'on_dataset_end="wait" cannot start without a batch on a worker if batches have '
            f'parts of type {type(spec).__name__}. Use on_dataset_end="stop".'
        )
    return tf.zeros([length or 1 for length in spec.shape], spec.dtype)


def _leading_dimension(element: Any) -> int | None:
    for tensor in tf.nest.flatten(element):
        if tensor.shape.rank:
            return int(tensor.shape[0])
    return None
