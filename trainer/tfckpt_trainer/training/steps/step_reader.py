"""Reads the elements of each step, and knows which step is the last of the dataset.

Workers have to learn that a dataset ends before one of them is left without a batch in a step of
all. So each element is marked with its number, and with whether the next step has elements. The
marks are part of the dataset: a saved position has exactly the elements of the steps done, with
nothing read ahead beside it.

If the number of elements is known, the marks are numbers from a range, which costs 20 µs per
element. If it is not, the dataset holds back as many elements as a step reads, which costs 150 µs.
An endless dataset needs no marks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.training.pipelines.iterators import destroy_iterator
from tfckpt_trainer.training.pipelines.pipeline import Pipeline

_OF_DATASET = (
    "_dataset",
    "_element_spec",
    "_flat_output_types",
    "_flat_output_shapes",
    "_iterator_resource",
)
"""The attributes of an iterator that belong to its dataset."""

_ENDED = (
    "The dataset ended, although TensorFlow calls it infinite: what it repeats became empty. "
    "Append `.filter(lambda *_: True)`; then its end counts as that of a dataset of unknown length."
)


class StepReader:
    """Reads a dataset in groups of one element for each replica of this worker.

    Attributes:
        iterator: The iterator, part of the worker's state.
        replicas: Number of elements that a step reads.
        element_spec: Specification of an element.
        total: Number of steps in the dataset; None if it is unknown or endless.
        steps: Number of steps read since the start of the dataset; None if unknown.
        is_last: Whether the dataset has no further step; None if unknown.
    """

    def __init__(self, dataset: tf.data.Dataset, replicas: int, *, mark: bool) -> None:
        """Creates the iterator.

        Args:
            dataset: The dataset of this worker.
            replicas: Number of elements that a step reads.
            mark: Whether to find out before the end of the dataset where it is.
        """
        self.replicas = replicas
        self._size = int(dataset.cardinality().numpy())
        self.is_endless = self._size == tf.data.INFINITE_CARDINALITY
        self.total = self._size // replicas if self._size >= 0 else None
        self._plain = dataset
        self.element_spec = dataset.element_spec
        marks = mark and not self.is_endless and not _is_on_device(dataset)
        self._marked = _with_marks(dataset, self._size, replicas) if marks else None
        self.iterator = iter(dataset if self._marked is None else self._marked)
        self._source: Iterator[Any] = self.iterator
        self._held: list[Any] | None = None
        self.steps: int | None = 0
        self.is_last: bool | None = None
        if self._marked is not None:
            self._restore_position = self.iterator._restore_from_tensors
            self.iterator._restore_from_tensors = self._restore

    def read_from(self, pipeline: Pipeline) -> None:
        """Reads the elements of `iterator` through a pipeline, which counts them."""
        self._source = pipeline
        pipeline.on_start_over = self._forget

    def _forget(self) -> None:
        self._held = self.steps = self.is_last = None

    @property
    def left(self) -> int | None:
        """Number of steps that are left to read; None if it is unknown or endless."""
        if self.total is None or self.steps is None:
            return None
        return self.total - self.steps + (self._held is not None)

    def has_next(self) -> bool:
        """Whether there are elements for one more step; reads them if it is unknown."""
        if self._held is not None:
            return True
        if self.is_last is not None:
            return not self.is_last
        try:
            self._held = self._read()
        except StopIteration:
            return False
        return True

    def read(self) -> list[Any]:
        """Returns the elements of the next step, one for each replica.

        Raises:
            StopIteration: There are not enough.
            UsageError: There are not, although the dataset says that it has no end.
        """
        held, self._held = self._held, None
        if held is not None:
            return held
        try:
            return self._read()
        except StopIteration:
            if self.is_endless:
                raise UsageError(_ENDED) from None
            raise

    def _read(self) -> list[Any]:
        elements = [next(self._source) for _ in range(self.replicas)]
        if self.iterator._dataset is not self._marked:
            self.is_last, self.steps = (False if self.is_endless else None), None
            return elements
        number, *more = (int(mark) for mark in elements[-1][1:])
        self.steps = number // self.replicas
        self.is_last = not more[0] if more else self._size - number < self.replicas
        return [element for element, *_ in elements]

    def _restore(self, tensors: Any) -> None:
        """Restores a position, also one that was saved without marks.

        Earlier versions saved none, and a run of one process needs none.
        """
        self._forget()
        try:
            self._restore_position(tensors)
        except tf.errors.NotFoundError:
            # The names of its elements are those of another pipeline: with marks, or without.
            self._exchange_dataset()
            try:
                self._restore_position(tensors)
            except tf.errors.NotFoundError:
                self._exchange_dataset()
                raise

    def _exchange_dataset(self) -> None:
        was_plain = self.iterator._dataset is self._plain
        destroy_iterator(self.iterator)
        other = iter(self._marked if was_plain and self._marked is not None else self._plain)
        for name in _OF_DATASET:
            setattr(self.iterator, name, getattr(other, name))


class NamedReaders:
    """Reads several datasets together, one element of each for each replica.

    It has the attributes and methods of a `StepReader`; elements are dictionaries by name.
    """

    def __init__(self, readers: Mapping[str, StepReader]) -> None:
        self._readers = dict(readers)
        first = next(iter(self._readers.values()))
        self.replicas = first.replicas
        self.element_spec = {name: reader.element_spec for name, reader in self._readers.items()}
        self.is_endless = all(reader.is_endless for reader in self._readers.values())

    @property
    def total(self) -> int | None:
        """Number of steps of the shortest dataset; None if it is unknown or endless."""
        limited = [reader.total for reader in self._readers.values() if not reader.is_endless]
        totals = [total for total in limited if total is not None]
        return min(totals) if totals and len(totals) == len(limited) else None

    @property
    def left(self) -> int | None:
        """Number of steps that are left to read; None if it is unknown or endless."""
        lefts = [reader.left for reader in self._readers.values() if not reader.is_endless]
        steps = [left for left in lefts if left is not None]
        return min(steps) if steps and len(steps) == len(lefts) else None

    @property
    def steps(self) -> int | None:
        """Number of steps read since the start of the datasets; None if unknown."""
        steps = [reader.steps for reader in self._readers.values() if reader.steps is not None]
        return steps[0] if steps else None

    @property
    def is_last(self) -> bool | None:
        """Whether a dataset has no further step; None if unknown."""
        answers = {reader.is_last for reader in self._readers.values()}
        if True in answers:
            return True
        return None if None in answers else False

    def has_next(self) -> bool:
        """Whether there are elements for one more step; reads them if it is unknown."""
        return all(reader.has_next() for reader in self._readers.values())

    def read(self) -> list[dict[str, Any]]:
        """Returns the elements of the next step, one for each replica.

        Raises:
            StopIteration: There are not enough.
        """
        read = {name: reader.read() for name, reader in self._readers.items()}
        return [
            {name: elements[replica] for name, elements in read.items()}
            for replica in range(self.replicas)
        ]


def _with_marks(dataset: tf.data.Dataset, size: int, ahead: int) -> tf.data.Dataset | None:
    """Returns a dataset of tuples: an element, its number from 1, and whether more follow it.

    Args:
        dataset: The dataset.
        size: Number of its elements; negative if unknown. If it is known, the third is left out.
        ahead: How many elements must follow for a further step.

    Returns:
        The dataset, or None if its elements cannot be held back.
    """
    if size >= 0:
        return tf.data.Dataset.zip((dataset, tf.data.Dataset.range(1, size + 1)))
    parts = tf.nest.flatten(dataset.element_spec, expand_composites=True)
    if not all(isinstance(part, tf.TensorSpec) for part in parts):
        return None
    return _holding_back(dataset, parts, ahead)


def _holding_back(
    dataset: tf.data.Dataset, parts: list[tf.TensorSpec], ahead: int
) -> tf.data.Dataset:
    """Marks the elements of a dataset of unknown size; reads `ahead` elements before each."""

    def hold(*element: Any) -> tf.Tensor:
        tensors = tf.nest.flatten(element, expand_composites=True)
        return tf.raw_ops.OptionalFromValue(components=tensors)

    def exchange(state: tuple[Any, ...], new: tf.Tensor) -> tuple[Any, Any]:
        number, first, *others = state
        more = tf.raw_ops.OptionalHasValue(optional=new)
        return (number + 1, *others, new), (first, number + 1, more)

    def release(held: tf.Tensor, number: tf.Tensor, more: tf.Tensor) -> tuple[Any, ...]:
        tensors = tf.raw_ops.OptionalGetValue(
            optional=held,
            output_types=[part.dtype for part in parts],
            output_shapes=[part.shape for part in parts],
        )
        spec = dataset.element_spec
        return tf.nest.pack_sequence_as(spec, tensors, expand_composites=True), number, more

    nothing = tf.data.Dataset.range(ahead).map(lambda _: tf.raw_ops.OptionalNone())
    state = (tf.constant(-ahead, tf.int64), *(tf.raw_ops.OptionalNone() for _ in range(ahead)))
    held = dataset.map(hold).concatenate(nothing).scan(state, exchange).skip(ahead)
    return held.map(release)


def _is_on_device(dataset: tf.data.Dataset) -> bool:
    """Whether `copy_to_device` ends the pipeline; nothing may follow it."""
    is_copy = type(dataset).__name__ == "_CopyToDeviceDataset"
    return is_copy or any(_is_on_device(source) for source in dataset._inputs())
