"""Training steps on all replicas, with one all-reduce for metrics and the flags of workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.autograph.core.ag_ctx import ControlStatusCtx, Status
from tensorflow.python.autograph.impl.api import convert
from tensorflow.python.eager.polymorphic_function.function_context import make_function_context

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.training.draws.by_step import next_step_of_draws
from tfckpt_trainer.training.state.variables import exempt
from tfckpt_trainer.training.steps.inputs import batch_of_replicas
from tfckpt_trainer.training.steps.left_out import LeftOut, mask

ReplicaStep = Callable[[Any], Any]
OnResult = Callable[[Sequence[Mapping[str, float]], "StepFlags"], None]
"""Takes the means of the metrics of each step of a call, and the flags of all workers."""


StepsLeft = Callable[[int], int | None]
"""Takes the steps done; returns after how many more the run has to act, or None if never."""


class CompiledStep:
    """A `tf.function` that remembers the graph of its last two calls, if both were alike.

    In every call, `tf.function` describes the input, and searches for its graph. That takes longer
    than all that the library does in a step. The same graph is called here, as long as input and
    context are what TensorFlow would search by.
    """

    def __init__(self, function: Callable[[Any], Any], *, inline: bool = True) -> None:
        """Takes it.

        Args:
            function: The function; nothing is traced yet. AutoGraph converts nothing of it but
                what is `of_script`.
            inline: Whether a graph that calls it holds a copy of its operations.
        """
        # Copies of a large step take long to optimize, and compute no faster.
        attributes = None if inline else {"_noinline": True}
        self._function = tf.function(
            function, reduce_retracing=True, autograph=False, experimental_attributes=attributes
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


class CallLength:
    """Decides how many steps the next call runs, equally on all workers.

    Within a call nothing can be saved, restored, or decided. So it ends where any of that is due.

    Attributes:
        most: How many steps a call runs if nothing is due before.
    """

    def __init__(self, limits: Sequence[StepsLeft]) -> None:
        """Takes who has to act between steps; each knows when by itself."""
        self.most = 1
        self._limits = limits

    def after(self, step: int) -> int:
        """Returns the steps of the call that follows so many steps."""
        if self.most == 1:
            return 1
        left = [limit(step) for limit in self._limits]
        return max(1, min([self.most, *(steps for steps in left if steps is not None)]))


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


@dataclass(frozen=True)
class StepHooks:
    """What connects a step function with its run.

    Attributes:
        flags: Returns the flags of this worker for the next step.
        on_result: Takes the result of each call.
        tracing: Called while the graph is made.
        computed: Takes the device of each step that a worker computed for this process.
    """

    flags: Callable[[], StepFlags]
    on_result: OnResult
    tracing: Callable[[], None]
    computed: Callable[[str], None]


def of_script(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns a function of the script as AutoGraph converts it, unless it runs eagerly.

    The functions of the library look at no value of a tensor. To convert them too takes a tenth of
    a second at the start of each worker. Those of Keras are left as they are, as in `tf.function`.
    """
    if tf.executing_eagerly():
        return function
    # `tf.function` has turned it off for what is around the function.
    enabled = ControlStatusCtx(Status.ENABLED)
    decorator = convert(recursive=True, user_requested=False, conversion_ctx=enabled)
    converted: Callable[[Any], Any] = decorator(function)
    return converted


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
            kind = f"a {type(value).__name__}" if value is not None else "None"
            subject = "The step returned" if value is reported else f"The step returned {name!r} as"
            raise UsageError(
                f"{subject} {kind}; expected its loss, or a dictionary of scalars by name, such "
                "as {'loss': loss, 'accuracy': accuracy}."
            )
    return {
        str(name): tf.cast(tf.reduce_mean(value), tf.float32) for name, value in metrics.items()
    }


class CallResult:
    """What a call returned, which may not be computed yet."""

    def __init__(self, names: Sequence[str], packed: Sequence[Any]) -> None:
        """Takes it.

        Args:
            names: Names of the metrics.
            packed: A vector for each step, or one matrix with a row for each: the sums over all
                replicas of the metrics, then of the flags. Their method `numpy` waits for them.
        """
        self.names = names
        self._packed = packed
        self._read: list[list[float]] | None = None

    def wait(self) -> list[list[float]]:
        """Waits for the call; returns the sums over all replicas of each step."""
        read = self._read
        if read is None:
            # Two threads may come here: callbacks of Keras run in others. Both read the same.
            values = [part.numpy().tolist() for part in self._packed]
            read = self._read = values if isinstance(values[0][0], float) else values[0]
        return read


class StepResult(Mapping[str, float]):
    """The metrics of a step by name. The first look at a value waits for the device."""

    def __init__(self, call: CallResult, number: int) -> None:
        """Takes the call, and the number of the step in it."""
        self._call = call
        self._number = number

    def __getitem__(self, name: str) -> float:
        if name not in self._call.names:
            raise KeyError(name)
        sums = self._call.wait()[self._number]
        return sums[self._call.names.index(name)] / sums[-1]

    def __iter__(self) -> Iterator[str]:
        return iter(self._call.names)

    def keys(self) -> KeysView[str]:
        """Returns the names."""
        # That of `Mapping` calls `__iter__` in a generator, and every step looks at its metrics.
        return dict.fromkeys(self._call.names).keys()

    def __len__(self) -> int:
        return len(self._call.names)

    def __repr__(self) -> str:
        return repr(dict(self))


class StepFunction:
    """Runs a function on every replica and reduces its metrics, in one `tf.function`.

    The metrics and the flags share a single all-reduce. All workers see a flag that one of them
    sets at the end of the same step. A loop that reduces its loss anyway needs no further
    collective for that.

    One worker knows the flags without asking the device. Then a call waits for the one before,
    so that the device always has a step to compute while Python prepares the next.

    A call may run several steps. On one device, they are a graph that calls the graph of one step
    in turn. Otherwise Python starts one after the other and waits for the last only. One graph
    cannot run the collectives of several steps: a worker that traces it anew, because its last
    batch is smaller, gives them other keys than the others, and waits forever.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        replica_step: ReplicaStep,
        hooks: StepHooks,
        *,
        takes_list: bool = False,
        runs_ahead: bool = False,
        variables: Callable[[], Iterable[Any]] | None = None,
        run_eagerly: bool = False,
        of_type: Any = None,
    ) -> None:
        """Creates the step.

        Args:
            strategy: The strategy.
            replica_step: The function of one replica.
            hooks: What connects it with the run.
            takes_list: Whether a call takes a list of the inputs of several steps.
            runs_ahead: Whether this is the only worker, so that no step has to be waited for.
            variables: If workers may have no data, returns all variables of the run.
            run_eagerly: Whether not to compile it.
            of_type: The type of all inputs of a step, for which it is traced. By default it is
                traced for the sizes of the first input, and for others when they come.
        """
        self._strategy = strategy
        self._replica_step = replica_step
        self._hooks = hooks
        self._runs_ahead = runs_ahead
        self._before: CallResult | None = None
        self._names: tuple[str, ...] = ()
        self._takes_list = takes_list
        in_graph = takes_list and strategy.num_replicas_in_sync == 1 and not run_eagerly
        self._one = _compiled(self._distributed, run_eagerly=run_eagerly, inline=not in_graph)
        self._graph = _compiled(self._in_one_graph, run_eagerly=False) if in_graph else None
        self._longest = 0
        self._type = None if run_eagerly else of_type
        # A variable, not an argument: one more argument costs 20 µs in every step. It is read
        # outside of the replicas, because a TPU reaches no variable that is not its own.
        self._sent = StepFlags(needs_sync=False, may_end=False, has_data=True)
        self._variable = exempt(tf.Variable(_as_floats(self._sent), trainable=False, name="flags"))
        self._left_out = None if variables is None else LeftOut(variables)

    def __call__(self, batch: Any) -> StepResult:
        """Runs one step, or several.

        Args:
            batch: The input of the call, as iterating over the run yields it.

        Returns:
            The mean of each metric over all replicas with data, in the last step; a single scalar
            is named `loss`.

        Raises:
            UsageError: The step returned something else than metrics.
        """
        flags = self._hooks.flags()
        if flags != self._sent:
            self._variable.assign(_as_floats(flags))
            self._sent = flags
        batches = several(batch) if self._takes_list else [batch]
        if self._type is not None:
            self._one.get_concrete_function(self._type)
            self._type = None
        packed = self._run(batches, flags)
        # The first call has just found the names.
        call = CallResult(self._names, packed)
        results = [StepResult(call, number) for number in range(len(batches))]
        if not self._runs_ahead:
            of_all = call.wait()[-1][-len(flags) :]
            of_any = StepFlags(*(total > 0 for total in of_all))
            self._hooks.on_result([dict(result) for result in results], of_any)
            return results[-1]
        before, self._before = self._before, call
        if before is not None:
            before.wait()
        self._hooks.on_result(results, flags)
        return results[-1]

    def _run(self, batches: Sequence[Any], flags: StepFlags) -> Sequence[tf.Tensor]:
        if len(batches) > 1:
            return self._run_several(batches)
        if self._left_out is None or flags.has_data:
            return [self._one(batches[0])]
        # What a step updates is known once it is traced. After a restart, this may be its first.
        self._one.get_concrete_function(batches[0])
        with self._left_out.unchanged_statistics():
            return [self._one(batches[0])]

    def _run_several(self, batches: Sequence[Any]) -> Sequence[tf.Tensor]:
        # Only calls of full length have a graph: each other length would be traced too.
        self._longest = max(self._longest, len(batches))
        if self._graph is None or len(batches) < self._longest:
            return self._in_turn(batches)
        packed: list[tf.Tensor] = self._graph(batches)
        return packed

    def _in_one_graph(self, batches: Sequence[Any]) -> list[tf.Tensor]:
        for batch in batches:
            # All steps are traced before the first is called, so that all their draws are known.
            self._one.get_concrete_function(batch)
        return [tf.stack(self._in_turn(batches))]

    def _in_turn(self, batches: Sequence[Any]) -> list[tf.Tensor]:
        packed = []
        for number, batch in enumerate(batches):
            if number:
                next_step_of_draws()
            packed.append(self._one(batch))
        return packed

    def _distributed(self, batch: Any) -> tf.Tensor:
        if not tf.executing_eagerly():
            self._hooks.tracing()
        flags = tf.convert_to_tensor(self._variable)
        if self._left_out is None:
            return self._reduced(batch, flags)
        with self._left_out.tracing(has_data=flags[-1]):
            return self._reduced(batch, flags)

    def _reduced(self, batch: Any, flags: tf.Tensor) -> tf.Tensor:
        packed = self._strategy.run(self._on_replica, args=(batch, flags))
        return self._strategy.reduce(tf.distribute.ReduceOp.SUM, packed, axis=None)

    def _on_replica(self, batch: Any, flags: tf.Tensor) -> tf.Tensor:
        metrics = scalars_of(of_script(self._replica_step)(batch))
        self._names = tuple(metrics)
        scalars = list(metrics.values())
        if self._left_out is not None:
            scalars = [mask(scalar, flags[-1]) for scalar in scalars]
        return tf.concat([scalars, flags], axis=0)


def _as_floats(flags: StepFlags) -> list[float]:
    return [float(flag) for flag in flags]


def several(batches: Any) -> list[Any]:
    """Returns the inputs of a call of several steps.

    Raises:
        UsageError: It is not a list of them.
    """
    if not isinstance(batches, list) or not batches:
        raise UsageError(
            f"The step function was called with {type(batches).__name__}; with steps_per_call, it "
            "takes the list that iterating over the run yields."
        )
    return batches


def _compiled(step: Callable[[Any], Any], *, run_eagerly: bool, inline: bool = True) -> Any:
    if run_eagerly:
        return step
    return CompiledStep(step, inline=inline)


def mean_over_replicas(
    strategy: tf.distribute.Strategy,
    replica_step: ReplicaStep,
    tracing: Callable[[], None],
    *,
    run_eagerly: bool = False,
    of_type: Any = None,
) -> Callable[[list[Any]], dict[str, float]]:
    """Returns a function that runs `replica_step` on all replicas, such as for validation.

    Args:
        strategy: The strategy.
        replica_step: Takes a batch on one replica and returns a dictionary of metrics.
        tracing: Called while the graph is made.
        run_eagerly: Whether not to compile it.
        of_type: The type of all inputs, for which it is traced; see `StepFunction`.

    Returns:
        A function that takes one element for each replica of this worker, and returns the means
        over all replicas. All workers call it together.
    """
    names: list[str] = []

    def on_replica(batch: Any) -> tf.Tensor:
        metrics = scalars_of(of_script(replica_step)(batch))
        names[:] = metrics
        return tf.stack(list(metrics.values()))

    def step(batch: Any) -> tf.Tensor:
        if not tf.executing_eagerly():
            tracing()
        packed = strategy.run(on_replica, args=(batch,))
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, packed, axis=None)

    compiled = _compiled(step, run_eagerly=run_eagerly)
    to_trace = [of_type] if of_type is not None and not run_eagerly else []

    def run(elements: list[Any]) -> dict[str, float]:
        if to_trace:
            compiled.get_concrete_function(to_trace.pop())
        values = compiled(batch_of_replicas(strategy, elements)).numpy().tolist()
        return dict(zip(names, values, strict=True))

    return run
