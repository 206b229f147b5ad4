"""Batches from Python code: a `keras.utils.PyDataset` or `Sequence`, or a generator function."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.training.keras.batches import (
    divided,
    endless_passes,
    known_as_endless,
    order_of_pass,
)
from tfckpt_trainer.training.keras.callback_state import has_state
from tfckpt_trainer.training.keras_library import (
    PyDataset,
    PyDatasetAdapter,
    Sequence,
    get_tensor_spec,
    keras,
    tree,
)
from tfckpt_trainer.training.pipelines.obstacles import Obstacle, ReadsInPython
from tfckpt_trainer.training.workers.worker_group import WorkerGroup

_LONGEST_PASS = 2**62
_READ_AHEAD = 2
_GIVE_STATE = "Give it the methods state_dict and load_state_dict."
_DRAW_BY_INDEX = (
    "Draw its random numbers from a generator of the index of the batch, such as "
    "`np.random.default_rng([seed, index])`."
)
_SEED_AT_START = (
    "Create the generator of its random numbers in the function, such as "
    "`np.random.default_rng(seed)`."
)


class PyDatasetBatches(ReadsInPython):
    """Batches of a `keras.utils.PyDataset`, divided among all replicas.

    The position is the index of the next batch. TensorFlow considers each call of Python code as
    stateful, so the policy of the dataset ignores that. Whether a batch depends on its index alone
    is tried: the first is read twice.
    """

    def __init__(
        self,
        dataset: PyDataset,
        shuffle: bool,
        group: WorkerGroup,
        class_weight: dict[int, float] | None = None,
    ) -> None:
        """Reads up to two batches, to learn their types, and the first again.

        Args:
            dataset: The dataset; it is called from threads, also with `use_multiprocessing`.
            shuffle: Whether to shuffle the order of the batches before each pass.
            group: The workers.
            class_weight: Weights by class, instead of weights in the batches.

        Raises:
            UsageError: It has no batches, or batches that are not dense arrays.
        """
        self._dataset = dataset
        self._group = group
        # It is not used to read: its own threads would hide the position.
        self._adapter = PyDatasetAdapter(dataset, class_weight=class_weight)
        self.steps: int | None = dataset.num_batches
        self._shuffle = shuffle and self.steps is not None
        if self.steps == 0:
            raise UsageError(f"{type(dataset).__name__} has no batches: its length is 0.")
        samples = [self._batch(number) for number in range(min(2, self.steps or 2))]
        try:
            self._spec = tree.lists_to_tuples(get_tensor_spec(samples))
        except ValueError as error:
            raise UsageError(f"The batches of {type(dataset).__name__}: {error}") from None
        self._leaves = tree.flatten(self._spec)
        if not all(isinstance(leaf, tf.TensorSpec) for leaf in self._leaves):
            raise UsageError(
                f"The batches of {type(dataset).__name__} are not all dense arrays. Make them "
                "dense, or pass a tf.data.Dataset."
            )
        self.obstacle = self._find_obstacle(samples[0])

    @property
    def changes(self) -> bool:
        """Whether code of its own runs between epochs or keeps a state, and may change batches."""
        own, base = type(self._dataset), PyDataset
        return self.has_state or any(
            getattr(own, name) is not getattr(base, name)
            for name in ("on_epoch_begin", "on_epoch_end")
        )

    @property
    def has_state(self) -> bool:
        """Whether it can save and restore its state."""
        return has_state(self._dataset)

    def callback(self, epochs: int) -> keras.callbacks.Callback:
        """Returns a callback that tells the dataset of epochs, and has its state."""
        return _EpochsOfPyDataset(self._dataset, epochs)

    def once(self) -> tf.data.Dataset:
        """Returns one pass over the data, in order."""
        return self._finished(self._pass(tf.zeros(2, tf.int64), shuffle=False))

    def endless(self, seed: int, steps: int | None) -> tf.data.Dataset:
        """Returns endless passes over the data; each ends with the data."""
        del steps
        passes = endless_passes(seed, lambda number: self._pass(number, shuffle=self._shuffle))
        return known_as_endless(self._finished(passes), self._group)

    def _pass(self, seed_and_pass: tf.Tensor, *, shuffle: bool) -> tf.data.Dataset:
        if self.steps is None:
            numbers = tf.data.Dataset.range(_LONGEST_PASS)
        else:
            order = order_of_pass(self.steps, seed_and_pass, shuffled=shuffle)
            numbers = tf.data.Dataset.from_tensor_slices(order)
        workers = self._dataset.workers
        # Threads read ahead, into the next epoch.
        if workers > 1 and not self.changes:
            return numbers.map(self._read, num_parallel_calls=workers, deterministic=True)
        return numbers.map(self._read)

    def _finished(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        dataset = divided(dataset, self._group)
        if not self.changes:
            dataset = dataset.prefetch(_READ_AHEAD)
        options = tf.data.Options()
        options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.IGNORE
        options.experimental_optimization.inject_prefetch = False
        return dataset.with_options(options)

    def _read(self, number: tf.Tensor) -> Any:
        types = [leaf.dtype for leaf in self._leaves]
        tensors = tf.numpy_function(self._arrays, [number], types)
        for tensor, leaf in zip(tensors, self._leaves, strict=True):
            tensor.set_shape(leaf.shape)
        return tree.pack_sequence_as(self._spec, tensors)

    def _arrays(self, number: np.int64) -> list[np.ndarray[Any, Any]]:
        batch = tree.flatten(self._batch(int(number)))
        return [
            np.asarray(part, leaf.dtype.as_numpy_dtype)
            for part, leaf in zip(batch, self._leaves, strict=True)
        ]

    def _batch(self, number: int) -> Any:
        return self._adapter._standardize_batch(self._dataset[number])

    def _find_obstacle(self, first: Any) -> Obstacle | None:
        """Returns why a restore does not read the same batches; `first` is the first batch."""
        if self.has_state:
            return None
        name = f"the {Sequence.__name__} {type(self._dataset).__name__}"
        if self.changes:
            return Obstacle(f"{name}, which has code between epochs and no state_dict", _GIVE_STATE)
        again = tree.flatten(self._batch(0))
        if all(map(_is_same, tree.flatten(first), again)):
            return None
        if isinstance(self._dataset, ReplayedGenerator):
            cause = "a generator function whose batches differ in each call"
            return Obstacle(cause, _SEED_AT_START)
        return Obstacle(f"{name}, whose batches differ in each read", _DRAW_BY_INDEX)


def _is_same(first: Any, second: Any) -> bool:
    """Whether two arrays are equal bit for bit."""
    array, other = np.asarray(first), np.asarray(second)
    return array.shape == other.shape and array.tobytes() == other.tobytes()


class _EpochsOfPyDataset(keras.callbacks.Callback):  # type: ignore[misc]
    """Tells a `PyDataset` of the epochs. The first batch of an epoch is read before it begins."""

    def __init__(self, dataset: PyDataset, epochs: int) -> None:
        super().__init__()
        self._dataset = dataset
        self._epochs = epochs
        if has_state(dataset):
            self.state_dict = dataset.state_dict
            self.load_state_dict = dataset.load_state_dict
        dataset.on_epoch_begin()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Ends an epoch of the dataset, and begins the next."""
        del logs
        self._dataset.on_epoch_end()
        if epoch + 1 < self._epochs:
            self._dataset.on_epoch_begin()


def as_py_dataset(sequence: Sequence) -> PyDataset:
    """Returns a `Sequence` of Keras 2 as a `PyDataset` of the same name.

    Args:
        sequence: The sequence; a `PyDataset` is returned as it is.
    """
    if isinstance(sequence, PyDataset):
        return sequence
    kind = type(sequence)
    members: dict[str, Any] = {
        "__len__": lambda _: len(sequence),
        "__getitem__": lambda _, index: sequence[index],
    }
    if kind.on_epoch_end is not Sequence.on_epoch_end:
        members["on_epoch_end"] = lambda _: sequence.on_epoch_end()
    if has_state(sequence):
        members["state_dict"] = lambda _: sequence.state_dict()
        members["load_state_dict"] = lambda _, state: sequence.load_state_dict(state)
    return type(kind.__name__, (PyDataset,), members)()


class ReplayedGenerator(PyDataset):  # type: ignore[misc]
    """Gives a generator function an index: to go back, it calls the function again and skips.

    A function that ends is called again for the next pass.
    """

    def __init__(self, function: Callable[[], Iterator[Any]]) -> None:
        super().__init__()
        self._function = function
        self._lock = threading.Lock()
        self._generator: Iterator[Any] = iter(())
        self._position: float = float("inf")

    @property
    def num_batches(self) -> None:
        """None: a generator does not know its length."""
        return

    def __getitem__(self, index: int) -> Any:
        """Returns a batch, by its number over all passes.

        Raises:
            UsageError: The generator yields nothing.
        """
        with self._lock:
            if index < self._position:
                self._generator, self._position = iter(self._function()), 0
            while True:
                batch = self._next()
                self._position += 1
                if self._position > index:
                    return batch

    def _next(self) -> Any:
        for batch in self._generator:
            return batch
        self._generator = iter(self._function())
        for batch in self._generator:
            return batch
        raise UsageError("The generator yields no batch.")
