"""Leaves a worker without data out of a step: its gradients, metrics and statistics.

All workers must run every collective of a step. So a worker whose dataset has ended repeats its
last batch, and contributes zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import tensorflow as tf

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.training.keras_library import OPTIMIZERS
from tfckpt_trainer.training.state.variables import (
    components,
    is_read_by_all,
    raw_variable,
)

"""The classes that define `apply`, which every method of a Keras optimizer calls."""


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
        optimizers: list[Any] = []
        with ExitStack() as stack:
            # Those of Keras 2 have no `apply`, and cannot leave out a worker.
            for kind in (one for one in OPTIMIZERS if hasattr(one, "apply")):
                stack.enter_context(_replaced(kind, _masking(kind.apply, has_data, optimizers)))
            yield
        if not optimizers:
            raise UsageError(
                'on_dataset_end="wait" needs a step that updates the model by a Keras optimizer: '
                "other gradients of a worker without data cannot be left out. Use "
                'on_dataset_end="stop".'
            )
        own = {id(raw_variable(v)) for optimizer in optimizers for v in optimizer.variables}
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


def _masking(
    apply: Callable[..., None], has_data: tf.Tensor, optimizers: list[Any]
) -> Callable[..., None]:
    def masked(
        optimizer: Any, grads: Iterable[Any], trainable_variables: Any = None, **options: Any
    ) -> None:
        optimizers.append(optimizer)
        masks = [None if gradient is None else mask(gradient, has_data) for gradient in grads]
        apply(optimizer, masks, trainable_variables, **options)

    return masked


@contextmanager
def _replaced(kind: type[Any], apply: Callable[..., None]) -> Iterator[None]:
    """Replaces the method `apply` of a class, which may have inherited it."""
    own = vars(kind).get("apply")
    kind.apply = apply
    try:
        yield
    finally:
        del kind.apply
        if own is not None:
            kind.apply = own


def _is_updated_alone(variable: Any) -> bool:
    """Whether workers update a variable without each other.

    A variable that is not distributed may be a counter of the script, which all must count.
    """
    raw = raw_variable(variable)
    if not hasattr(raw, "values") or variable.trainable:
        return False
    return is_read_by_all(raw) or bool(raw.aggregation == tf.VariableAggregation.NONE)
