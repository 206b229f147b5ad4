"""Compiles a function to graphs, and calls that of the last input without a search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function.function_context import make_function_context


class CompiledStep:
    """A `tf.function` that remembers the graph of its last two calls, if both were alike.

    In every call, `tf.function` describes the input, and searches for its graph. That takes longer
    than all that the library does in a step. The same graph is called here, as long as input and
    context are what TensorFlow would search by.
    """

    def __init__(self, function: Callable[[Any], Any], *, inline: bool = True) -> None:
        """Takes it.

        Args:
            function: The function; nothing is traced yet.
            inline: Whether a graph that calls it holds a copy of its operations.
        """
        # Copies of a large step take long to optimize, and compute no faster.
        attributes = None if inline else {"_noinline": True}
        self._function = tf.function(
            function, reduce_retracing=True, experimental_attributes=attributes
        )
        self._called_with: Any = None
        self._graph: Callable[[Any], Any] | None = None

    def __call__(self, batch: Any) -> Any:
        """Calls the graph for such a batch; traces it if there is none."""
        if not tf.executing_eagerly() or tf.config.functions_run_eagerly():
            return self._function(batch)
        called_with = (_type_of(batch), make_function_context())
        if called_with == self._called_with:
            if self._graph is None:
                self._graph = self._function.get_concrete_function(batch)
            return self._graph(batch)
        self._graph = None
        self._called_with = called_with if _is_described(batch) else None
        return self._function(batch)

    def get_concrete_function(self, batch: Any) -> Any:
        """Returns the graph for such a batch, or for such a type; traces it if there is none."""
        return self._function.get_concrete_function(batch)


def _type_of(value: Any) -> Any:
    """Returns what decides about the graph for a value that `_is_described`."""
    if isinstance(value, tf.Tensor):
        return value.dtype, value._shape_tuple()
    if isinstance(value, dict):
        return {name: _type_of(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return type(value), [_type_of(part) for part in value]
    return type(value)


def _is_described(value: Any) -> bool:
    """Whether `_type_of` says all of a value that decides about its graph."""
    if isinstance(value, tf.Tensor):
        # Of those, TensorFlow also looks at what they refer to.
        return value.dtype not in (tf.resource, tf.variant)
    if type(value) is dict:
        return all(map(_is_described, value.values()))
    if type(value) in (tuple, list):
        return all(map(_is_described, value))
    return value is None
