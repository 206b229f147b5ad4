"""A training step on all replicas, with one all-reduce for metrics and the flags of workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.training.loop.inputs import batch_of_replicas
from tfckpt_trainer.training.loop.left_out import LeftOut, mask

ReplicaStep = Callable[[Any], Any]


class StepFlags(NamedTuple):
    """What workers tell each other in every step; each is set if it is set on any worker.

    Attributes:
        needs_sync: Whether it asks for a synchronization after this step.
        may_end: Whether it may have no input for the next step.
        has_data: Whether it has input for this step; if not, it is left out.
    """

    needs_sync: bool
    may_end: bool
    has_data: bool = True


def scalars_of(reported: Any) -> dict[str, tf.Tensor]:
    """Returns the metrics that a step returned, as a scalar for each name.

    Args:
        reported: A scalar, which is named `loss`, a dictionary of scalars, or None.

    Raises:
        UsageError: It is something else.
    """
    metrics = {"loss": reported} if not isinstance(reported, Mapping) else reported
    if reported is None:
        return {}
    for name, value in metrics.items():
        if value is None or isinstance(value, Mapping | tuple | list):
            found = f"a {type(value).__name__}" if value is not None else "None"
            subject = "The step returned" if value is reported else f"The step returned {name!r} as"
            raise UsageError(
                f"{subject} {found}; expected its loss, or a dictionary of scalars by name, such "
                "as {'loss': loss, 'accuracy': accuracy}."
            )
    return {
        str(name): tf.cast(tf.reduce_mean(value), tf.float32) for name, value in metrics.items()
    }


class StepResult(Mapping[str, float]):
    """The metrics of a step by name. The first look at a value waits for the device."""

    def __init__(self, names: Sequence[str], packed: tf.Tensor) -> None:
        """Takes what a step returned, which may not be computed yet.

        Args:
            names: Names of the metrics.
            packed: Sums over all replicas: the metrics, then the flags of the workers.
        """
        self._names = names
        self._packed = packed
        self._read: list[float] | None = None

    def __getitem__(self, name: str) -> float:
        if name not in self._names:
            raise KeyError(name)
        sums = self.wait()
        return sums[self._names.index(name)] / sums[-1]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return repr(dict(self))

    def wait(self) -> list[float]:
        """Waits for the step; returns the sums over all replicas: metrics, then flags."""
        read = self._read
        if read is None:
            # Two threads may come here: callbacks of Keras run in others. Both read the same.
            read = self._read = self._packed.numpy().tolist()
        return read


class StepFunction:
    """Runs a function on every replica and reduces its metrics, in one `tf.function`.

    The metrics and the flags share a single all-reduce. All workers see a flag that one of them
    sets at the end of the same step. A loop that reduces its loss anyway needs no further
    collective for that.

    One worker knows the flags without asking the device. Then a call waits for the step before,
    so that the device always has a step to compute while Python prepares the next.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        replica_step: ReplicaStep,
        flags: Callable[[], StepFlags],
        on_result: Callable[[Mapping[str, float], StepFlags], None],
        tracing: Callable[[], None],
        *,
        runs_ahead: bool = False,
        variables: Callable[[], Iterable[Any]] | None = None,
        run_eagerly: bool = False,
    ) -> None:
        """Creates the step.

        Args:
            strategy: The strategy.
            replica_step: The function of one replica.
            flags: Returns the flags of this worker for the next step.
            on_result: Takes the means of the metrics, and the flags of all workers.
            tracing: Called while the graph is made.
            runs_ahead: Whether this is the only worker, so that no step has to be waited for.
            variables: If workers may have no data, returns all variables of the run.
            run_eagerly: Whether not to compile it.
        """
        self._strategy = strategy
        self._replica_step = replica_step
        self._flags = flags
        self._on_result = on_result
        self._tracing = tracing
        self._runs_ahead = runs_ahead
        self._before: StepResult | None = None
        self._names: tuple[str, ...] = ()
        self._compiled = _compiled(self._distributed, run_eagerly=run_eagerly)
        # A variable, not an argument: one more argument costs 20 µs in every step. It is read
        # outside of the replicas, because a TPU reaches no variable that is not its own.
        self._sent = StepFlags(needs_sync=False, may_end=False, has_data=True)
        self._variable = tf.Variable(_as_floats(self._sent), trainable=False, name="flags")
        self._left_out = None if variables is None else LeftOut(variables)

    def __call__(self, batch: Any) -> StepResult:
        """Runs one step.

        Args:
            batch: The input of the step, as iterating over the run yields it.

        Returns:
            The mean of each metric over all replicas with data; a single scalar is named `loss`.

        Raises:
            UsageError: The step returned something else than metrics.
        """
        flags = self._flags()
        if flags != self._sent:
            self._variable.assign(_as_floats(flags))
            self._sent = flags
        packed = self._run(batch, flags)
        # The first call has just found the names.
        result = StepResult(self._names, packed)
        if not self._runs_ahead:
            of_all = result.wait()[-len(flags) :]
            self._on_result(dict(result), StepFlags(*(total > 0 for total in of_all)))
            return result
        before, self._before = self._before, result
        if before is not None:
            before.wait()
        self._on_result(result, flags)
        return result

    def _run(self, batch: Any, flags: StepFlags) -> tf.Tensor:
        if self._left_out is None or flags.has_data:
            return self._compiled(batch)
        with self._left_out.unchanged_statistics():
            return self._compiled(batch)

    def _distributed(self, batch: Any) -> tf.Tensor:
        if not tf.executing_eagerly():
            self._tracing()
        flags = tf.convert_to_tensor(self._variable)
        if self._left_out is None:
            return self._reduced(batch, flags)
        with self._left_out.tracing(has_data=flags[-1]):
            return self._reduced(batch, flags)

    def _reduced(self, batch: Any, flags: tf.Tensor) -> tf.Tensor:
        packed = self._strategy.run(self._on_replica, args=(batch, flags))
        return self._strategy.reduce(tf.distribute.ReduceOp.SUM, packed, axis=None)

    def _on_replica(self, batch: Any, flags: tf.Tensor) -> tf.Tensor:
        metrics = scalars_of(self._replica_step(batch))
        self._names = tuple(metrics)
        scalars = list(metrics.values())
        if self._left_out is not None:
            scalars = [mask(scalar, flags[-1]) for scalar in scalars]
        return tf.concat([scalars, flags], axis=0)


def _as_floats(flags: StepFlags) -> list[float]:
    return [float(flag) for flag in flags]


def _compiled(step: Callable[[Any], Any], *, run_eagerly: bool) -> Callable[[Any], Any]:
    return step if run_eagerly else tf.function(step, reduce_retracing=True)


def mean_over_replicas(
    strategy: tf.distribute.Strategy,
    replica_step: ReplicaStep,
    tracing: Callable[[], None],
    *,
    run_eagerly: bool = False,
) -> Callable[[list[Any]], dict[str, float]]:
    """Returns a function that runs `replica_step` on all replicas, such as for validation.

    Args:
        strategy: The strategy.
        replica_step: Takes a batch on one replica and returns a dictionary of metrics.
        tracing: Called while the graph is made.
        run_eagerly: Whether not to compile it.

    Returns:
        A function that takes one element for each replica of this worker, and returns the means
        over all replicas. All workers call it together.
    """
    names: list[str] = []

    def on_replica(batch: Any) -> tf.Tensor:
        metrics = scalars_of(replica_step(batch))
        names[:] = metrics
        return tf.stack(list(metrics.values()))

    def step(batch: Any) -> tf.Tensor:
        if not tf.executing_eagerly():
            tracing()
        packed = strategy.run(on_replica, args=(batch,))
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, packed, axis=None)

    compiled = _compiled(step, run_eagerly=run_eagerly)

    def run(elements: list[Any]) -> dict[str, float]:
        values = compiled(batch_of_replicas(strategy, elements)).numpy().tolist()
        return dict(zip(names, values, strict=True))

    return run
