"""Finds the variables that trackable objects hold, and their values on this worker."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any

import tensorflow as tf
from tensorflow.python.ops.lookup_ops import LookupInterface

from tfckpt_trainer.training.keras_library import Variable

_DELEGATING = tf.__internal__.tracking.DelegatingTrackableMixin
"""What saves as another object does, such as the optimizer that scales the loss in Keras 2."""

HOST = "/CPU:0"
"""The device of main memory.

An operation without a device runs on a GPU, if there is one, and copies its inputs there. Values
in main memory may be larger than the memory of the GPU, such as those of an embedding table.
"""

_PARTITIONED = tf.__internal__.distribute.ShardedVariable
"""A variable whose rows a strategy with a partitioner divides among parameter servers."""

_SAVEABLES = "_gather_saveables_for_checkpoint"

_exempt: weakref.WeakValueDictionary[int, tf.Variable] = weakref.WeakValueDictionary()


class MutableTable(ABC):
    """A lookup table that training may change, of TensorFlow or of a package."""

    @abstractmethod
    def insert(self, keys: Any, values: Any) -> Any:
        """Sets the values of keys."""

    @abstractmethod
    def export(self) -> Any:
        """Returns all keys and values."""

    @classmethod
    def __subclasshook__(cls, kind: type) -> bool:
        return issubclass(kind, LookupInterface) and all(
            hasattr(kind, name) for name in cls.__abstractmethods__
        )


class ReplicaRule(StrEnum):
    """How the values of one object on several replicas relate.

    Whether the replicas of a `MIRRORED` variable are equal is measured at each save.
    """

    MIRRORED = "mirrored"
    ON_READ_SUM = "on-read sum"
    ON_READ_MEAN = "on-read mean"
    ITERATOR = "iterator"
    OTHER = "value outside variables"

    @property
    def is_on_read(self) -> bool:
        """Whether each replica has a value of its own, and a read combines them."""
        return self in {ReplicaRule.ON_READ_SUM, ReplicaRule.ON_READ_MEAN}

    @property
    def is_variable(self) -> bool:
        """Whether it is the rule of a variable."""
        return self not in {ReplicaRule.ITERATOR, ReplicaRule.OTHER}


def rule_of(thing: Any) -> ReplicaRule | None:
    """Returns the rule of an object; None if it has no value of its own."""
    if is_variable(thing):
        aggregation = getattr(raw_variable(thing), "aggregation", None)
        if not is_read_by_all(thing) or aggregation == tf.VariableAggregation.NONE:
            return ReplicaRule.MIRRORED
        is_sum = aggregation == tf.VariableAggregation.SUM
        return ReplicaRule.ON_READ_SUM if is_sum else ReplicaRule.ON_READ_MEAN
    if isinstance(thing, tf.data.Iterator):
        return ReplicaRule.ITERATOR
    return ReplicaRule.OTHER if has_value_outside_variables(thing) else None


def has_value_outside_variables(thing: Any) -> bool:
    """Whether it has a value and is no variable, such as a lookup table.

    TensorFlow has no public way to ask.
    """
    if isinstance(thing, _DELEGATING):
        return has_value_outside_variables(thing._trackable)
    if saves_nothing(thing):
        return False
    return any(_overrides(thing, hook) for hook in ("_serialize_to_tensors", _SAVEABLES))


def _overrides(thing: Any, hook: str) -> bool:
    return getattr(type(thing), hook, None) is not getattr(tf.Module, hook, None)


def saves_nothing(thing: Any) -> bool:
    """Whether it is a table that was made to be in no checkpoint, as packages allow."""
    if not isinstance(thing, MutableTable) or not _overrides(thing, _SAVEABLES):
        return False
    return not getattr(thing, _SAVEABLES)()


def exempt(variable: tf.Variable) -> tf.Variable:
    """Exempts a variable from what a script has to pass to a run, and returns it.

    The library creates it, or brings its value back by itself.
    """
    _exempt[id(variable)] = variable
    return variable


def exempt_variables() -> list[tf.Variable]:
    """Returns the live variables that no script has to pass to a run."""
    return list(_exempt.values())


def is_variable(thing: Any) -> bool:
    """Whether it is a variable of TensorFlow or of Keras, in one or in several partitions."""
    return isinstance(thing, (tf.Variable, Variable, _PARTITIONED))


def is_partitioned(variable: Any) -> bool:
    """Whether several variables hold the rows of its value, one range each."""
    return isinstance(raw_variable(variable), _PARTITIONED)


def raw_variable(variable: Any) -> Any:
    """Returns the TensorFlow variable of a Keras variable, or the variable itself."""
    return variable.value if isinstance(variable, Variable) else variable


def variable_name(variable: Any) -> str:
    """Returns the name of a variable in its program, such as `adam/dense_kernel_velocity`."""
    name = variable.path if isinstance(variable, Variable) else variable.name
    return str(name).removesuffix(":0")


def components(variable: Any) -> tuple[Any, ...]:
    """Returns the variables that hold the value on this worker, one per replica or partition."""
    raw = raw_variable(variable)
    return tuple(raw.variables if is_partitioned(raw) else getattr(raw, "values", (raw,)))


def bytes_by_device(variables: Iterable[Any]) -> dict[str, int]:
    """Returns the size of variables by the device that holds them."""
    sizes: Counter[str] = Counter()
    for variable in variables:
        for part in components(variable):
            sizes[part.device] += part.dtype.size * (part.shape.num_elements() or 0)
    return sizes


def replicas_of(variable: Any) -> tuple[Any, ...]:
    """Returns what holds the whole value on this worker, once per replica."""
    raw = raw_variable(variable)
    return (raw,) if is_partitioned(raw) else components(raw)


def is_read_by_all(variable: Any) -> bool:
    """Whether reading it is a collective, because it is synchronised on read.

    The parts of such a variable say the same of themselves, but are read one by one.
    """
    raw = raw_variable(variable)
    synchronization = getattr(raw, "synchronization", None)
    return hasattr(raw, "values") and synchronization == tf.VariableSynchronization.ON_READ


def byte_size(variable: Any) -> int:
    """Returns its size in a checkpoint, in bytes; strings count as 0."""
    raw = raw_variable(variable)
    return int(raw.shape.num_elements() or 0) * int(raw.dtype.size or 0)


def live_objects(root: Any) -> Iterator[tuple[str, Any]]:
    """Yields path and object of all that `root` tracks, breadth first, each object once.

    Last come the slot variables of legacy optimizers, which TensorFlow saves and no object tracks.
    """
    view = tf.train.TrackableView(root)
    seen: set[int] = set()
    variables, legacy = [], []
    waiting: deque[tuple[str, Any]] = deque([("", root)])
    while waiting:
        path, thing = waiting.popleft()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        yield path, thing
        if is_variable(thing):
            variables.append((path, thing))
        elif has_slots(thing):
            legacy.append((path, thing))
        for name, child in view.children(thing).items():
            waiting.append((f"{path}/{name}" if path else name, child))
    yield from slot_variables(legacy, variables)


def slot_variables(
    optimizers: Iterable[tuple[str, Any]], variables: Sequence[tuple[str, Any]]
) -> Iterator[tuple[str, Any]]:
    """Yields path and slot variable of legacy optimizers.

    Args:
        optimizers: Path and object of those for which `has_slots` is true.
        variables: Path and variable of what they may train.
    """
    for owner, optimizer in optimizers:
        for path, variable in variables:
            for name in optimizer.get_slot_names():
                slot = slot_of(optimizer, variable, name)
                if slot is not None:
                    yield slot_path(path, owner, name), slot


def has_slots(thing: Any) -> bool:
    """Whether it is an optimizer whose slot variables TensorFlow saves beside their variables."""
    return hasattr(thing, "_create_or_restore_slot_variable") and hasattr(thing, "get_slot_names")


def slot_path(variable: str, optimizer: str, name: str) -> str:
    """Returns the path of a slot variable, as TensorFlow names it in a checkpoint.

    Args:
        variable: The path of the variable that it belongs to.
        optimizer: The path of its optimizer.
        name: What it is, such as `momentum`.
    """
    return f"{variable}/.OPTIMIZER_SLOT/{optimizer}/{name}"


def slot_of(optimizer: Any, variable: Any, name: str) -> Any:
    """Returns a slot variable of a legacy optimizer; None if it has none for this variable."""
    with suppress(AttributeError, KeyError):
        return optimizer.get_slot(variable, name)
    return None


def live_variables(root: Any) -> Iterator[tuple[str, Any]]:
    """Yields path and variable of all variables that `root` tracks."""
    return ((path, thing) for path, thing in live_objects(root) if is_variable(thing))
