"""Training steps with parameter servers: applied by the chief, or by each worker on its own.

If workers apply their gradients by themselves, they lose updates: the optimizers of Keras 3 read a
variable and then write it, and other workers write in between. So the workers only compute
gradients in a `ParameterServerStep`, each for the batch of one replica. The chief adds them in the
order of the workers and applies the sum once. The result is that of a `MirroredStrategy` with as
many replicas.

The optimizers of Keras 2 add to a variable in one operation. With them, an `AsynchronousStep` is
computed and applied by one worker, while others do the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import tensorflow as tf

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.training.keras_library import (
    adds_repeated_rows,
    apply_gradients,
    applying_method,
)
from tfckpt_trainer.training.process.signals_and_exit import PEER_ERRORS
from tfckpt_trainer.training.steps.step_functions import (
    CallResult,
    ReplicaStep,
    StepHooks,
    StepResult,
    of_script,
    scalars_of,
    several,
)

_Sent: TypeAlias = tf.Tensor | tuple[tf.Tensor, tf.Tensor]
"""The gradient of a variable, or some of its rows with their numbers."""


class ParameterServerStep:
    """Runs `replica_step` on every worker, and applies the sum of their gradients."""

    def __init__(
        self,
        strategy: tf.distribute.ParameterServerStrategy,
        optimizer: Any,
        replica_step: ReplicaStep,
        hooks: StepHooks,
    ) -> None:
        self._strategy = strategy
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        self._optimizer = optimizer
        self._replica_step = replica_step
        self._hooks = hooks
        self._names: tuple[str, ...] = ()
        self._variables: list[Any] = []
        self._compute = tf.function(self._on_worker, reduce_retracing=True, autograph=False)
        self._update = tf.function(self._apply, reduce_retracing=True, autograph=False)

    def __call__(self, elements: Sequence[Any]) -> dict[str, float]:
        """Runs one step.

        Args:
            elements: One batch for each worker, as iterating over the run yields them.

        Returns:
            The mean of each metric over all workers; a single scalar is named `loss`.
        """
        scheduled = [
            self._coordinator.schedule(self._compute, args=(element,)) for element in elements
        ]
        results = [fetched(self._coordinator, result) for result in scheduled]
        for result in scheduled:
            self._hooks.computed(device_of(result))
        if self._variables:
            gradients = [of_worker for _, of_worker in results]
            # Not by a worker: if it died meanwhile, TensorFlow would have another one begin again.
            self._update(gradients)
        means = sum(packed for packed, _ in results) / len(results)
        metrics = {name: float(value) for name, value in zip(self._names, means, strict=True)}
        self._hooks.on_result([dict(metrics)], self._hooks.flags())
        return metrics

    def _on_worker(self, element: Any) -> tuple[tf.Tensor, list[_Sent]]:
        self._hooks.tracing()
        packed, gradients = self._strategy.run(self._on_replica, args=(element,))
        return packed, gradients

    def _on_replica(self, element: Any) -> tuple[tf.Tensor, list[_Sent]]:
        with recorded(self._optimizer) as applied:
            reported = of_script(self._replica_step)(element)
        if len(applied) > 1:
            raise UsageError(
                f"A step applied gradients {len(applied)} times. With parameter servers, apply "
                "them once per step."
            )
        pairs = applied[0] if applied else []
        self._variables = [variable for _, variable in pairs]
        metrics = scalars_of(reported)
        self._names = tuple(metrics)
        packed = tf.stack([*metrics.values()]) if metrics else tf.zeros([0])
        in_rows = adds_repeated_rows(self._optimizer)
        return packed, [_sent(gradient, in_rows=in_rows) for gradient, _ in pairs]

    def _apply(self, gradients: Sequence[Sequence[_Sent]]) -> None:
        # Keras reduces gradients to their device, so they need one.
        with tf.device("/CPU:0"):
            together = zip(zip(*gradients, strict=True), self._variables, strict=True)
            sums = [_sum(of_workers, variable.shape) for of_workers, variable in together]
        with as_scheduled(self._strategy):
            self._strategy.run(
                partial(apply_gradients, self._optimizer), args=(sums, self._variables)
            )


def _sent(gradient: Any, *, in_rows: bool) -> _Sent:
    """Returns a gradient as a worker sends it.

    Args:
        gradient: A tensor; of what was looked up in an embedding, `tf.IndexedSlices`.
        in_rows: Whether to send the rows of such a one, and not zeros for all others.
    """
    if in_rows and isinstance(gradient, tf.IndexedSlices):
        return gradient.values, gradient.indices
    return tf.convert_to_tensor(gradient)


def _sum(of_workers: Sequence[_Sent], shape: tf.TensorShape) -> Any:
    """Returns the sum of what the workers sent; rows come in their order, and may be repeated."""
    if isinstance(of_workers[0], tf.Tensor):
        return tf.identity(tf.add_n(list(of_workers)))
    values, indices = zip(*of_workers, strict=True)
    rows = tf.concat(indices, 0)
    whole = tf.constant(shape.as_list(), rows.dtype) if shape.is_fully_defined() else None
    return tf.IndexedSlices(tf.concat(values, 0), rows, whole)


@contextmanager
def as_scheduled(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Lets a strategy run without the warning that the chief computes, as the coordinator does."""
    extended = strategy.extended
    before = getattr(extended, "_being_scheduled", False)
    extended._being_scheduled = True
    try:
        yield
    finally:
        extended._being_scheduled = before


class AsynchronousStep:
    """Schedules steps, each for whichever worker is free, and waits for those of the call before.

    So the chief reads the input of a call while the workers compute another. `WorkerGroup.join`
    waits for all.
    """

    def __init__(
        self,
        strategy: tf.distribute.ParameterServerStrategy,
        replica_step: ReplicaStep,
        hooks: StepHooks,
        *,
        takes_list: bool,
    ) -> None:
        """Creates the step; the arguments are those of `StepFunction`."""
        self._strategy = strategy
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        self._replica_step = replica_step
        self._hooks = hooks
        self._takes_list = takes_list
        self._names: tuple[str, ...] = ()
        self._before: CallResult | None = None
        self._compute = tf.function(self._on_worker, reduce_retracing=True, autograph=False)

    def __call__(self, batch: Any) -> StepResult:
        """Schedules one step, or several.

        Args:
            batch: The input of the call, as iterating over the run yields it.

        Returns:
            The metrics of the last step; a single scalar is named `loss`. The first look at one of
            them waits for the step.
        """
        flags = self._hooks.flags()
        batches = several(batch) if self._takes_list else [batch]
        rows = [
            _ScheduledRow(
                self._coordinator,
                self._coordinator.schedule(self._compute, elements),
                self._hooks.computed,
            )
            for elements in batches
        ]
        # To schedule the first has traced it, which found the names.
        call = CallResult(self._names, rows)
        results = [StepResult(call, number) for number in range(len(rows))]
        before, self._before = self._before, call
        if before is not None:
            before.wait()
        self._hooks.on_result(results, flags)
        return results[-1]

    def _on_worker(self, element: Any) -> tf.Tensor:
        self._hooks.tracing()
        return self._strategy.run(self._on_replica, args=(element,))

    def _on_replica(self, element: Any) -> tf.Tensor:
        metrics = scalars_of(of_script(self._replica_step)(element))
        self._names = tuple(metrics)
        # A sum over one replica, and the number of replicas.
        return tf.stack([*metrics.values(), 1.0])


def device_of(result: tf.distribute.coordinator.RemoteValue) -> str:
    """Returns the device on which a step was computed. There is no public way to ask."""
    device: str = tf.nest.flatten(result._values)[0].device
    return device


def mean_over_workers(
    strategy: tf.distribute.ParameterServerStrategy,
    replica_step: ReplicaStep,
    tracing: Callable[[], None],
) -> Callable[[list[Any]], dict[str, float]]:
    """Returns a function that runs `replica_step` on workers; see `mean_over_replicas`."""
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    names: list[str] = []

    def on_replica(element: Any) -> tf.Tensor:
        metrics = scalars_of(of_script(replica_step)(element))
        names[:] = metrics
        return tf.stack([*metrics.values()])

    def on_worker(element: Any) -> tf.Tensor:
        tracing()
        return strategy.run(on_replica, args=(element,))

    compute = tf.function(on_worker, reduce_retracing=True, autograph=False)

    def run(elements: list[Any]) -> dict[str, float]:
        scheduled = [coordinator.schedule(compute, args=(element,)) for element in elements]
        rows = [fetched(coordinator, result) for result in scheduled]
        means = sum(rows) / len(rows)
        return dict(zip(names, means.tolist(), strict=True))

    return run


class _ScheduledRow:
    """What a scheduled step returns, in the form of a tensor."""

    def __init__(
        self,
        coordinator: tf.distribute.coordinator.ClusterCoordinator,
        result: tf.distribute.coordinator.RemoteValue,
        computed: Callable[[str], None],
    ) -> None:
        self._coordinator = coordinator
        self._result = result
        self._computed = computed

    def numpy(self) -> Any:
        """Waits for the step, and returns its value."""
        value = fetched(self._coordinator, self._result)
        self._computed(device_of(self._result))
        return value


def fetched(
    coordinator: tf.distribute.coordinator.ClusterCoordinator,
    result: tf.distribute.coordinator.RemoteValue,
) -> Any:
    """Waits for a scheduled step, and returns its value.

    Raises:
        Exception: A step failed: this one, or another one that cancelled it.
        tf.errors.OpError: A parameter server is gone.
    """
    try:
        return result.fetch()
    except PEER_ERRORS:
        # A value is announced before the chief has a copy. If its worker dies in between,
        # another one computes the step again; the chief waits for that here.
        coordinator.join()
        return result.fetch()


@contextmanager
def recorded(optimizer: Any) -> Iterator[list[list[tuple[tf.Tensor, Any]]]]:
    """Has an optimizer record gradients instead of applying them."""
    applied: list[list[tuple[tf.Tensor, Any]]] = []
    if optimizer is None:
        yield applied
        return

    def record(gradients: Iterable[Any], variables: Iterable[Any]) -> None:
        pairs = zip(gradients, variables, strict=True)
        applied.append([(gradient, v) for gradient, v in pairs if gradient is not None])

    with applying_method(optimizer, record):
        yield applied
