"""Reads the data of `fit`: arrays here, datasets as they are; refuses what it cannot read."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import GeneratorType
from typing import Any

import tensorflow as tf

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.training.keras.batches import (
    Batches,
    DatasetBatches,
    endless_passes,
    known_as_endless,
    order_of_pass,
    part_of_batch,
)
from tfckpt_trainer.training.keras.python_batches import (
    PyDatasetBatches,
    ReplayedGenerator,
    as_py_dataset,
)
from tfckpt_trainer.training.keras_library import (
    ArrayDataAdapter,
    PyDataset,
    Sequence,
    array_slicing,
    can_convert_arrays,
    keras,
    make_class_weight_map_fn,
    train_validation_split,
    tree,
)
from tfckpt_trainer.training.workers.worker_group import WorkerGroup

_BY_INDEX = f"keras.utils.{Sequence.__name__}"
"""The public name of the class whose batches have an index."""


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
            self._arrays = tree.traverse(_as_tensor, tree.lists_to_tuples(sliceable))

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
            return tree.traverse(lambda array: _rows(array, part), self._arrays)

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


@dataclass(frozen=True)
class FitData:
    """Data in one of the forms that `keras.Model.fit` takes.

    Attributes:
        name: Its name in messages: the argument of `fit`.
        x: Arrays, a dataset, a `keras.utils.PyDataset`, or a function.
        y: Arrays of targets, if `x` is arrays.
        sample_weight: Arrays of weights, if `x` is arrays.
    """

    name: str
    x: Any
    y: Any = None
    sample_weight: Any = None

    @property
    def are_arrays(self) -> bool:
        """Whether it consists of arrays."""
        return are_arrays(self.x, self.y, self.sample_weight)

    def split(self, fraction: float) -> tuple[FitData, FitData]:
        """Returns the data for training, and the last `fraction` of it for validation.

        Raises:
            UsageError: It is not arrays, or too small.
        """
        if not self.are_arrays:
            raise UsageError(
                f"validation_split needs arrays; {self.name} is {_kind(self.x)}. Pass the data of "
                "the validation as validation_data."
            )
        try:
            training, validation = train_validation_split(
                (self.x, self.y, self.sample_weight), validation_split=fraction
            )
        except ValueError as error:
            raise UsageError(str(error)) from None
        return FitData(self.name, *training), FitData("validation_split", *validation)


def validation_data_of(given: Any) -> FitData:
    """Returns what `validation_data` holds: data, or a tuple with targets and weights.

    Raises:
        UsageError: The tuple has another length.
    """
    try:
        return FitData("validation_data", *keras.utils.unpack_x_y_sample_weight(given))
    except ValueError:
        raise UsageError(
            f"validation_data has {len(given)} parts. Pass (x, y), (x, y, sample_weight), or a "
            "dataset."
        ) from None


def read_data(
    data: FitData,
    group: WorkerGroup,
    *,
    batch_size: int | None = None,
    steps: int | None = None,
    shuffle: bool | str = False,
    class_weight: dict[int, float] | None = None,
) -> Batches:
    """Returns the batches of this worker.

    Args:
        data: The data.
        group: The workers.
        batch_size: Examples in a batch of all replicas, from arrays.
        steps: Steps of an epoch, if they are given.
        shuffle: Whether to shuffle arrays, or the order of the batches of a `PyDataset`.
        class_weight: Weights by class.

    Raises:
        UsageError: The data cannot be read.
    """
    if data.are_arrays:
        return _read_arrays(data, group, batch_size, steps, shuffle, class_weight)
    _refuse_parts_beside(data)
    x = data.x
    if isinstance(x, PyDataset | Sequence):
        return PyDatasetBatches(as_py_dataset(x), bool(shuffle), group, class_weight)
    if isinstance(x, tf.data.Dataset) or (callable(x) and not _returns_generator(x)):
        transform = make_class_weight_map_fn(class_weight) if class_weight else None
        try:
            return DatasetBatches(x, group, transform)
        except ValueError as error:
            raise UsageError(f"class_weight: {error}") from None
    if callable(x):
        return PyDatasetBatches(
            ReplayedGenerator(_checked_generator(data.name, x)), False, group, class_weight
        )
    raise UsageError(_why_not(data.name, x))


def _read_arrays(
    data: FitData,
    group: WorkerGroup,
    batch_size: int | None,
    steps: int | None,
    shuffle: bool | str,
    class_weight: dict[int, float] | None,
) -> ArrayBatches:
    try:
        adapter = ArrayDataAdapter(
            data.x,
            data.y,
            sample_weight=data.sample_weight,
            batch_size=batch_size,
            steps=steps,
            class_weight=class_weight,
        )
    except ValueError as error:
        raise UsageError(str(error)) from None
    batches = ArrayBatches(adapter, shuffle, group)
    counts = group.all_gather(batches.examples)
    if len(set(counts)) > 1:
        raise UsageError(
            f"The workers have {counts} examples in {data.name}; each worker needs the same "
            "arrays. To give each its own data, pass a function of tf.distribute.InputContext."
        )
    return batches


def _refuse_parts_beside(data: FitData) -> None:
    """Refuses targets and weights beside something that holds them already."""
    for name, part in (("y", data.y), ("sample_weight", data.sample_weight)):
        if _is_path(part):
            raise UsageError(f"{name} is the text {str(part)!r}. Pass run_dir={str(part)!r}.")
        if part is not None and _is_known(data.x):
            raise UsageError(
                f"{name} is given together with {_kind(data.x)}, which has it. Yield (x, y) or "
                f"(x, y, sample_weight) from {data.name} instead."
            )
        if part is not None and are_arrays(data.x, None, None):
            raise UsageError(_why_not(name, part))


def _is_known(x: Any) -> bool:
    return isinstance(x, (tf.data.Dataset, PyDataset, Sequence)) or callable(x)


def _is_path(part: Any) -> bool:
    return isinstance(part, str) or hasattr(part, "__fspath__")


def _returns_generator(function: Callable[..., Any]) -> bool:
    """Whether it is a generator function, or cannot take a `tf.distribute.InputContext`."""
    return inspect.isgeneratorfunction(function) or not _takes(function, None)


def _takes(function: Callable[..., Any], *arguments: Any) -> bool:
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    except ValueError:
        # A function of another language, without a signature.
        return True
    return True


def _checked_generator(
    name: str, function: Callable[..., Iterator[Any]]
) -> Callable[[], Iterator[Any]]:
    if not _takes(function):
        raise UsageError(
            f"{name} is a function that needs arguments. Pass one without, such as "
            "functools.partial(function, argument)."
        )
    first = function()
    if not hasattr(first, "__next__"):
        raise UsageError(
            f"{name} is a function that returns {_kind(first)}. It has to return a generator of "
            "batches, or to take a tf.distribute.InputContext and return a tf.data.Dataset."
        )
    return function


def _why_not(name: str, x: Any) -> str:
    if isinstance(x, GeneratorType):
        return (
            f"{name} is a generator, which cannot go back to an earlier batch. Pass the function "
            f"that returns it: {name}={x.__name__} instead of {name}={x.__name__}(). Or pass a "
            f"{_BY_INDEX}."
        )
    if x is None:
        return f"{name} is None. Pass arrays, a tf.data.Dataset or a {_BY_INDEX}."
    if isinstance(x, (list, tuple, dict)):
        return (
            f"{name} is {_kind(x)} of values that are not arrays. Convert them with numpy.asarray."
        )
    if type(x).__name__ in {"DataLoader", "MapDataset", "IterDataset"}:
        return (
            f"{name} is {_kind(x)} of another library, whose position cannot be saved. Pass a "
            f"{_BY_INDEX} that reads a batch by its index, or a tf.data.Dataset."
        )
    if isinstance(x, tf.distribute.DistributedDataset):
        return (
            f"{name} is a distributed dataset, whose position cannot be saved. Pass the "
            "tf.data.Dataset, or the function of tf.distribute.InputContext."
        )
    return (
        f"{name} is {_kind(x)}. Pass arrays, a tf.data.Dataset, a {_BY_INDEX}, or a "
        "function that returns a generator."
    )


def _kind(thing: Any) -> str:
    if isinstance(thing, tf.data.Dataset):
        return "a tf.data.Dataset"
    name = type(thing).__name__
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"
