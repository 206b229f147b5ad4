"""Leaves a worker without data out of a step: its gradients, metrics and statistics.

All workers must run every collective of a step. So a worker whose dataset has ended repeats its
last batch, and contributes zeros.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.training.keras_library import OPTIMIZERS, variables_of
from tfckpt_trainer.training.state.variables import (
    components,
    is_read_by_all,
    raw_variable,
)


def mask(value: Any, has_data: tf.Tensor) -> Any:
    """Returns the value on a worker with data, and zeros on another; also for NaN.

    Args:
        value: A tensor, or sparse gradients.
        has_data: A scalar of the graph; 0 leaves this worker out.
    """
    if isinstance(value, tf.IndexedSlices):
        return tf.IndexedSlices(mask(value.values, has_data), value.indices, value.dense_shape)
    return tf.where(has_data > 0, value, tf.zeros_like(value))


class LeftOut:
    """Traces a step so that `has_data` decides whether this worker contributes to it.

    Attributes:
        statistics: Variables that the step updates on each worker by itself, such as moving
            statistics and metrics; known once the step is traced.
    """

    def __init__(self, variables: Callable[[], Iterable[Any]]) -> None:
        """Creates it.

        Args:
            variables: Returns all variables of the run, of TensorFlow or Keras.
        """
        self._variables = variables
        self.statistics: tuple[tf.Variable, ...] = ()

    @contextmanager
    def tracing(self, has_data: tf.Tensor) -> Iterator[None]:
        """Masks the gradients that Keras optimizers apply within the block.

        Args:
            has_data: As for `mask`.

        Raises:
            UsageError: None applied any.
        """
        updates = _Updates(has_data)
        with ExitStack() as stack:
            for kind, name, masking in _methods():
                masked = masking(getattr(kind, name), updates)
                stack.enter_context(_replaced(kind, name, masked))
            yield
        optimizers = updates.optimizers
        if not optimizers or updates.are_summed:
            summed = ", which sums the gradients of all workers itself" if optimizers else ""
            raise UsageError(
                'on_dataset_end="wait" needs a step that updates the model by a Keras optimizer'
                f"{summed}: other gradients of a worker without data cannot be left out. Use "
                'on_dataset_end="stop".'
            )
        own = {id(raw_variable(v)) for optimizer in optimizers for v in variables_of(optimizer)}
        used = {id(handle) for handle, _ in tf.compat.v1.get_default_graph().captures}
        self.statistics = tuple(
            component
            for variable in self._variables()
            if id(raw_variable(variable)) not in own and _is_updated_alone(variable)
            for component in components(variable)
            if id(component.handle) in used
        )

    @contextmanager
    def unchanged_statistics(self) -> Iterator[None]:
        """Puts the statistics of this worker back to what they were before the block."""
        before = [(variable, variable.read_value()) for variable in self.statistics]
        yield
        for variable, value in before:
            variable.assign(value)


@dataclass
class _Updates:
    """What the optimizers of a step do while it is traced.

    Attributes:
        has_data: As for `mask`.
        optimizers: Those that update variables.
        are_summed: Whether the script has summed the gradients of all workers before it gives them
            to one.
        under_way: Calls that have not returned.
    """

    has_data: tf.Tensor
    optimizers: list[Any] = field(default_factory=list)
    are_summed: bool = False
    under_way: int = 0

    def masked(self, gradient: Any) -> Any:
        """Returns a gradient, or None, as `mask` does."""
        return None if gradient is None else mask(gradient, self.has_data)


_Masking = Callable[[Callable[..., Any], _Updates], Callable[..., Any]]


def _methods() -> Iterator[tuple[type[Any], str, _Masking]]:
    """Yields the methods by which optimizers update variables, and what masks their gradients.

    In Keras 3, all others call `apply`. In Keras 2, they call `apply_gradients`, which sums the
    gradients of all workers; that of a script may do so before it calls that of Keras.
    """
    for kind in OPTIMIZERS:
        if hasattr(kind, "apply"):
            yield kind, "apply", _masking
            continue
        for defining in {kind, *_subclasses(kind)}:
            if "apply_gradients" in vars(defining):
                yield defining, "apply_gradients", _masking_pairs


def _subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    for derived in kind.__subclasses__():
        yield derived
        yield from _subclasses(derived)


def _masking(apply: Callable[..., None], updates: _Updates) -> Callable[..., None]:
    def masked(
        optimizer: Any, grads: Iterable[Any], trainable_variables: Any = None, **options: Any
    ) -> None:
        updates.optimizers.append(optimizer)
        apply(optimizer, list(map(updates.masked, grads)), trainable_variables, **options)

    return masked


def _masking_pairs(apply: Callable[..., Any], updates: _Updates) -> Callable[..., Any]:
    def masked(optimizer: Any, grads_and_vars: Iterable[Any], *args: Any, **options: Any) -> Any:
        given = inspect.signature(apply).bind(optimizer, grads_and_vars, *args, **options).arguments
        given |= given.get("kwargs", {})
        updates.optimizers.append(optimizer)
        if given.get("skip_gradients_aggregation", False) or not given.get(
            "experimental_aggregate_gradients", True
        ):
            updates.are_summed |= not updates.under_way
        else:
            grads_and_vars = [(updates.masked(g), variable) for g, variable in grads_and_vars]
        updates.under_way += 1
        try:
            return apply(optimizer, grads_and_vars, *args, **options)
        finally:
            updates.under_way -= 1

    return masked


@contextmanager
def _replaced(kind: type[Any], name: str, method: Callable[..., Any]) -> Iterator[None]:
    """Replaces a method of a class, which may have inherited it."""
    own = vars(kind).get(name)
    setattr(kind, name, method)
    try:
        yield
    finally:
        delattr(kind, name)
        if own is not None:
            setattr(kind, name, own)


def _is_updated_alone(variable: Any) -> bool:
    """Whether workers update a variable without each other.

    A variable that is not distributed may be a counter of the script, which all must count.
    """
    raw = raw_variable(variable)
    if not hasattr(raw, "values") or variable.trainable:
        return False
    return is_read_by_all(raw) or bool(raw.aggregation == tf.VariableAggregation.NONE)
