"""A float that is a variable in graphs.

Optimizers keep options such as `weight_decay` and `beta_1` as numbers of Python, which become
constants of a graph. A `LiveFloat` in their place lets the graph read a variable instead.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

_CACHE = "_tfckpt_live_floats"
"""Attribute of a graph: its tensors by variable, arithmetic and type."""


class _Step(NamedTuple):
    """Arithmetic with a number of Python, such as `1 - x`."""

    act: Callable[[Any, Any], Any]
    number: float
    is_first: bool

    def apply(self, value: Any) -> Any:
        return self.act(self.number, value) if self.is_first else self.act(value, self.number)


class LiveFloat(float):
    """A number of Python that becomes the value of a variable where a tensor is made of it.

    Python's comparisons see the number: whether an optimizer has momentum at all, for example, is
    decided when a step is traced. Arithmetic with numbers of Python is done in 64 bits and rounded
    at the end, as Python and TensorFlow do it for constants. Each graph does it once.

    Attributes:
        dtype: Keras asks numbers for it; a number of Python takes the type of what it meets.
    """

    dtype = float
    _variable: tf.Variable
    _steps: tuple[_Step, ...]

    def __new__(
        cls, value: float, variable: tf.Variable, steps: tuple[_Step, ...] = ()
    ) -> LiveFloat:
        """Takes the present value.

        Args:
            value: The number that Python sees.
            variable: What graphs read, of 64 bits.
            steps: What is done with what they read.
        """
        self = super().__new__(cls, value)
        self._variable = variable
        self._steps = steps
        return self

    def with_value(self, value: float) -> LiveFloat:
        """Returns the number to keep once the variable has another value."""
        return LiveFloat(value, self._variable, self._steps)

    def __tf_tensor__(self, dtype: Any = None, name: str | None = None) -> tf.Tensor:
        """Returns the value of the variable; TensorFlow calls this."""
        del name
        kind = tf.as_dtype(dtype or tf.float32)
        if tf.executing_eagerly():
            return self._tensor(kind)
        graph = tf.compat.v1.get_default_graph()
        cache: dict[Any, tf.Tensor] | None = getattr(graph, _CACHE, None)
        if cache is None:
            cache = {}
            setattr(graph, _CACHE, cache)
        key = (id(self._variable), _copy(self._variable), self._steps, kind)
        if key not in cache:
            cache[key] = self._tensor(kind)
        return cache[key]

    def _tensor(self, kind: tf.DType) -> tf.Tensor:
        value = self._variable.read_value()
        for step in self._steps:
            value = step.apply(value)
        return tf.cast(value, kind)

    def __reduce__(self) -> tuple[type[float], tuple[float]]:
        """Is copied and pickled as a number."""
        return float, (float(self),)

    def __deepcopy__(self, memo: Any) -> float:
        """Is copied as a number."""
        return float(self)

    def __neg__(self) -> LiveFloat:
        """Returns the negative number."""
        return self * -1.0  # type: ignore[return-value]


def _copy(variable: tf.Variable) -> int | None:
    """Returns what tells the copies of a variable apart; None outside of all replicas."""
    try:
        return id(variable.handle)
    except ValueError:
        return None


def _arithmetic(act: Callable[[Any, Any], Any], *, reverse: bool) -> Callable[[Any, Any], Any]:
    def method(self: LiveFloat, other: Any) -> Any:
        if not isinstance(other, int | float):
            return NotImplemented
        if isinstance(other, LiveFloat):
            pair = (other, self) if reverse else (self, other)
            return act(*map(tf.convert_to_tensor, pair))
        step = _Step(act, float(other), reverse)
        return LiveFloat(step.apply(float(self)), self._variable, (*self._steps, step))

    return method


for _act in (operator.add, operator.sub, operator.mul, operator.truediv, operator.pow):
    setattr(LiveFloat, f"__{_act.__name__}__", _arithmetic(_act, reverse=False))
    setattr(LiveFloat, f"__r{_act.__name__}__", _arithmetic(_act, reverse=True))


def live_float(value: float, strategy: tf.distribute.Strategy) -> tuple[LiveFloat, tf.Variable]:
    """Returns a number, and the variable whose value it has in graphs.

    All workers call it together: the variable has a copy on each device of the strategy.
    """
    with strategy.scope():
        variable = tf.Variable(value, dtype=tf.float64, trainable=False, name="hyperparameter")
    return LiveFloat(value, variable), variable
