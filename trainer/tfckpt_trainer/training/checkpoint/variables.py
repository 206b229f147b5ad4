"""Finds the variables that trackable objects hold, and their values on this worker."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf


def is_variable(thing: Any) -> bool:
    """Whether it is a variable of TensorFlow or of Keras."""
    return isinstance(thing, (tf.Variable, keras.Variable))


def raw_variable(variable: Any) -> Any:
    """Returns the TensorFlow variable of a Keras variable, or the variable itself."""
    return variable.value if isinstance(variable, keras.Variable) else variable


def components(variable: Any) -> tuple[Any, ...]:
    """Returns the variables that hold the value on this worker, one per replica."""
    raw = raw_variable(variable)
    return tuple(getattr(raw, "values", (raw,)))


def is_read_by_all(variable: Any) -> bool:
    """Whether reading it is a collective, because it is synchronised on read."""
    synchronization = getattr(raw_variable(variable), "synchronization", None)
    return bool(synchronization == tf.VariableSynchronization.ON_READ)


def byte_size(variable: Any) -> int:
    """Returns its size in a checkpoint, in bytes; strings count as 0."""
    raw = raw_variable(variable)
    return int(raw.shape.num_elements() or 0) * int(raw.dtype.size or 0)


def live_objects(root: Any) -> Iterator[tuple[str, Any]]:
    """Yields path and object of all that `root` tracks, breadth first, each object once."""
    view = tf.train.TrackableView(root)
    seen: set[int] = set()
    waiting: deque[tuple[str, Any]] = deque([("", root)])
    while waiting:
        path, thing = waiting.popleft()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        yield path, thing
        for name, child in view.children(thing).items():
            waiting.append((f"{path}/{name}" if path else name, child))


def live_variables(root: Any) -> Iterator[tuple[str, Any]]:
    """Yields path and variable of all variables that `root` tracks."""
    return ((path, thing) for path, thing in live_objects(root) if is_variable(thing))
