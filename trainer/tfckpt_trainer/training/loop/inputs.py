"""Reads the input of each step from the input pipelines of one worker."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import tensorflow as tf

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.training.loop.step_reader import NamedReaders, StepReader
from tfckpt_trainer.training.pipelines.input_state import InputState
from tfckpt_trainer.training.pipelines.pipeline import Pipeline
from tfckpt_trainer.training.worker_group import WorkerGroup, uses_parameter_servers

DatasetFunction = Callable[[tf.distribute.InputContext], tf.data.Dataset]
InputDataset: TypeAlias = (
    tf.data.Dataset | DatasetFunction | Mapping[str, tf.data.Dataset | DatasetFunction]
)


class Inputs:
    """Reads the batches of one worker with plain iterators.

    A distributed iterator cannot be saved; a plain one can, with the content of its shuffle
    buffers. Each element of the dataset is the batch of one replica, and a step reads as many
    elements as the worker has replicas.

    Attributes:
        state: The positions of the pipelines, part of the worker's state.
        reader: Reads the elements, and knows which are the last.
        examples: Size of the first dimension of one replica's batch; None before the first batch.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        group: WorkerGroup,
        dataset: InputDataset,
        *,
        skips: bool = False,
    ) -> None:
        """Creates the iterators.

        Args:
            strategy: The strategy.
            group: The workers.
            dataset: One dataset, or several by name.
            skips: See `SaveOptions.skip_input`.

        Raises:
            UsageError: It is not a dataset.
        """
        self._strategy = strategy
        self._named = isinstance(dataset, Mapping)
        datasets = dataset if isinstance(dataset, Mapping) else {"dataset": dataset}
        if not datasets:
            raise UsageError("dataset is an empty dictionary; expected a dataset by name, or None.")
        readers = {
            str(name): StepReader(
                worker_dataset(one, group), group.local_replicas, mark=group.size > 1
            )
            for name, one in datasets.items()
        }
        self._pipelines = {
            name: Pipeline(name, reader.iterator, skips=skips) for name, reader in readers.items()
        }
        for name, pipeline in self._pipelines.items():
            readers[name].read_from(pipeline)
        self.reader = NamedReaders(readers) if self._named else readers["dataset"]
        self.state = InputState(self._pipelines, named=self._named)
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

    def first_element(self) -> Any:
        """Returns the next batch of one replica; None if the dataset has ended."""
        try:
            return self.reader.read()[0]
        except StopIteration:
            return None

    def blank(self) -> Any:
        """Returns an input of zeros, in the shape of that of a step.

        Raises:
            UsageError: The elements have parts that are not tensors.
        """
        element = tf.nest.map_structure(_blank, self.reader.element_spec)
        return batch_of_replicas(self._strategy, [element] * self.reader.replicas)

    def close(self) -> None:
        """Destroys the iterators, without waiting for them."""
        for pipeline in self._pipelines.values():
            pipeline.close()


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
