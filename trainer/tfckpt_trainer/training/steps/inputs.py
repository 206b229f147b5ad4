"""Reads the input of each step from the input pipelines of one worker."""

from __future__ import annotations

import inspect
import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute.values import PerReplicaSpec

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.training.pipelines.input_state import InputState
from tfckpt_trainer.training.pipelines.pipeline import Pipeline
from tfckpt_trainer.training.steps.step_reader import NamedReaders, StepReader
from tfckpt_trainer.training.workers.worker_group import WorkerGroup, uses_parameter_servers

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
                worker_dataset(source, group), group.local_replicas, mark=group.size > 1
            )
            for name, source in datasets.items()
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
    made = dataset
    if callable(dataset) and not isinstance(dataset, tf.data.Dataset):
        context = tf.distribute.InputContext(
            num_input_pipelines=group.size,
            input_pipeline_id=group.index,
            num_replicas_in_sync=group.replicas,
        )
        _check_takes_context(dataset)
        made = dataset(context)
    if not isinstance(made, tf.data.Dataset):
        subject = "dataset is" if made is dataset else "The function passed as dataset returned"
        raise UsageError(
            f"{subject} {_kind(made)}; expected a tf.data.Dataset of this worker's batches, or a "
            f"function of tf.distribute.InputContext that returns one.{_instead_of(made)}"
        )
    return made


def _check_takes_context(function: Callable[..., Any]) -> None:
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        name = getattr(function, "__name__", "it")
        raise UsageError(
            f"The function {name} passed as dataset does not take one argument; expected a "
            f"function of tf.distribute.InputContext. Call it: dataset={name}()."
        ) from None
    except ValueError:
        return  # A function of C, without a signature.


def _kind(value: Any) -> str:
    """Returns the type of what the script passed, with its article."""
    name = type(value).__name__.lstrip("_")
    return "None" if value is None else f"{'an' if name[:1] in 'AEIOUaeiou' else 'a'} {name}"


def _instead_of(value: Any) -> str:
    """Returns what to pass in place of something that is no dataset, as a sentence."""
    if isinstance(value, tf.data.Iterator):
        return " Pass the dataset itself, not iter(dataset): the run saves its position."
    if isinstance(value, tf.distribute.DistributedDataset | tf.distribute.DistributedIterator):
        return " Pass the dataset from which it was made: each worker reads its own batches."
    parts = tf.nest.flatten(value) if isinstance(value, list | tuple) else []
    if parts and all(isinstance(part, tf.data.Dataset) for part in parts):
        return (
            " Pass several by name: dataset={'train': …, 'other': …}. To read them in step, use "
            "tf.data.Dataset.zip."
        )
    if isinstance(value, list | tuple | np.ndarray | tf.Tensor):
        return " Make one of arrays: tf.data.Dataset.from_tensor_slices(…).batch(…)."
    return ""


def batch_of_replicas(strategy: tf.distribute.Strategy, elements: list[Any]) -> Any:
    """Returns the input of a step function: one element for each replica of this worker."""
    if uses_parameter_servers(strategy):
        return elements
    if len(elements) == 1:
        return elements[0]
    calls = itertools.count()
    return strategy.experimental_distribute_values_from_function(lambda _: elements[next(calls)])


def input_type(specification: Any, replicas: int) -> Any:
    """Returns the type of what `batch_of_replicas` returns for the elements of a dataset.

    Args:
        specification: The `element_spec` of the dataset.
        replicas: Replicas of this worker.
    """
    if replicas == 1:
        return specification
    return tf.nest.map_structure(lambda spec: PerReplicaSpec(*[spec] * replicas), specification)


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
