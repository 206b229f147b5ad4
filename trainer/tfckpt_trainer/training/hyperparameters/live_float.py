"""A float that is a variable in graphs.

Optimizers keep options such as `weight_decay` and `beta_1` as numbers of Python, which become
constants of a graph. A `LiveFloat` in their place lets the graph read a variable instead.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable
from typing import Any

import tensorflow as tf

from tfckpt_trainer.training.state.variables import exempt

_CACHE = "_tfckpt_live_floats"
"""Attribute of a graph: its tensors by expression and type."""


class LiveFloat(float):
    """A number of Python that becomes the value of a variable where a tensor is made of it.

    Python's comparisons see the number: whether an optimizer has momentum at all, for example, is
    decided when a step is traced. Arithmetic with numbers of Python is done in 64 bits and rounded
    at the end, as Python and TensorFlow do it for constants. Each graph does it once.

    Attributes:
        dtype: Keras asks numbers for it; a number of Python takes the type of what it meets.
        variables: The variables that it depends on.
        initial: Its first value.
    """

    dtype = float
    variables: tuple[tf.Variable, ...]
    initial: float
    _evaluate: Callable[[], tf.Tensor]
    _key: Hashable

    def __new__(
        cls,
        value: float,
        variables: tuple[tf.Variable, ...],
        evaluate: Callable[[], tf.Tensor],
        key: Hashable,
    ) -> LiveFloat:
        """Creates it.

        Args:
            value: The number that Python sees.
            variables: The variables that it depends on.
            evaluate: Returns its value in a graph, of 64 bits.
            key: Equal for the same arithmetic with the same variables.
        """
        self = super().__new__(cls, value)
        self.variables = variables
        self.initial = value
        self._evaluate = evaluate
        self._key = key
        return self

    def with_value(self, value: float) -> LiveFloat:
        """Returns the number to keep once the variable has another value."""
        changed = LiveFloat(value, self.variables, self._evaluate, self._key)
        changed.initial = self.initial
        return changed

    def __tf_tensor__(self, dtype: Any = None, name: str | None = None) -> tf.Tensor:
        """Returns the value of the variable; TensorFlow calls this."""
        del name
        kind = tf.as_dtype(dtype or tf.float32)
        if tf.executing_eagerly():
            return tf.cast(self._evaluate(), kind)
        graph = tf.compat.v1.get_default_graph()
        cache: dict[Hashable, tf.Tensor] | None = getattr(graph, _CACHE, None)
        if cache is None:
            cache = {}
            setattr(graph, _CACHE, cache)
        key = (self._key, tuple(map(_copy, self.variables)), kind)
        if key not in cache:
            cache[key] = tf.cast(self._evaluate(), kind)
        return cache[key]

    def __reduce__(self) -> tuple[type[float], tuple[float]]:
        """Is copied and pickled as a number."""
        return float, (float(self),)

    def __deepcopy__(self, memo: Any) -> float:
        """Is copied as a number."""
        return float(self)

    def __neg__(self) -> LiveFloat:
        """Returns the negative number."""
        negative: LiveFloat = self * -1.0  # type: ignore[assignment]
        return negative


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
        left, right = (other, self) if reverse else (self, other)
        both = [number for number in (left, right) if isinstance(number, LiveFloat)]
        return LiveFloat(
            act(float(left), float(right)),
            tuple(variable for number in both for variable in number.variables),
            lambda: act(_evaluated(left), _evaluated(right)),
            (act, _key_of(left), _key_of(right)),
        )

    return method


def _evaluated(number: float) -> tf.Tensor:
    if isinstance(number, LiveFloat):
        return number._evaluate()
    return tf.constant(float(number), tf.float64)


def _key_of(number: float) -> Hashable:
    return number._key if isinstance(number, LiveFloat) else float(number)


for _act in (operator.add, operator.sub, operator.mul, operator.truediv, operator.pow):
    setattr(LiveFloat, f"__{_act.__name__}__", _arithmetic(_act, reverse=False))
    setattr(LiveFloat, f"__r{_act.__name__}__", _arithmetic(_act, reverse=True))


def live_float(value: float, strategy: tf.distribute.Strategy) -> LiveFloat:
    """Returns a number that graphs read from a variable.

    All workers call it together: the variable has a copy on each device of the strategy.
    """
    with strategy.scope():
        variable = exempt(
            tf.Variable(value, dtype=tf.float64, trainable=False, name="hyperparameter")
        )
    return LiveFloat(value, (variable,), variable.read_value, ("variable", id(variable)))
