"""Looks into the graphs of a run's steps for state that no checkpoint holds."""

from __future__ import annotations

import gc
import re
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow.python.framework.func_graph import FuncGraph

from tfckpt_trainer.errors import UsageError, describe_error
from tfckpt_trainer.rundir.records.check import StateKind
from tfckpt_trainer.rundir.records.exactness import NO_STEP, StepFacts, merge_steps
from tfckpt_trainer.training.check.untracked import (
    Untracked,
    find_untracked,
    how_to_pass,
    order_of_creation,
)
from tfckpt_trainer.training.draws.stateless_twins import has_twin
from tfckpt_trainer.training.graphs.calls import TABLE_OPERATION, Capture, find_captures
from tfckpt_trainer.training.graphs.stateful_operations import find_stateful_operations
from tfckpt_trainer.training.state.late_variables import late_variables_error
from tfckpt_trainer.training.state.variables import components, exempt_variables, is_variable

_TABLE = Untracked(StateKind.TABLE, "", "", ())
"""A table that the script has no name for, or that nothing can change."""

_OWN_LOOP = "the loop does not use run.function, so what it runs outside a tf.function is not known"
_WAITS = "a step function has not run yet"
_DRAW = (
    "raw from a tf.random.Generator that you pass in extra={…}, from keras.random with a "
    "SeedGenerator that the model holds, or from tf.random.stateless_…."
)
_DRAW_WITHOUT_SEED = f"D{_DRAW}"
_DRAW_OR_SEED = f"Pass random_seed to TrainingRun. Or d{_DRAW}"
_SYNCHRONOUSLY = (
    "Leave asynchronous=True out if the script passes it: then the chief applies gradients, in the "
    "order of the workers."
)
_IN_ORDER = (
    "Train with one worker, or with MultiWorkerMirroredStrategy, where each worker has such state "
    "of its own."
)
_DRAW_BY_KERAS = (
    "Pass `seed=keras.random.SeedGenerator(…)` to the functions of keras.random, and pass that "
    "generator in extra={…}."
)


class TracedSteps:
    """The graphs of the step functions of a run, and what was found in them.

    Each graph is looked into once, after it was traced.
    """

    def __init__(
        self,
        saved: Callable[[], Iterable[tuple[str, Any]]],
        tables: Callable[[], Iterable[Any]] = lambda: (),
        *,
        shares_variables: bool,
        is_asynchronous: bool,
        can_seed: bool,
    ) -> None:
        """Creates it without steps.

        Args:
            saved: Returns path and object of all that a save stores.
            tables: Returns the static lookup tables that a save stores.
            shares_variables: Whether several workers change the same variables.
            is_asynchronous: Whether each worker applies its gradients when they are ready.
            can_seed: Whether to advise a seed of the run.
        """
        self._saved = saved
        self._tables = tables
        self._shares_variables = shares_variables
        self._is_asynchronous = is_asynchronous
        self._can_seed = can_seed
        self._was_traced: list[bool] = []
        self._new: list[Any] = []
        self._found = StepFacts()
        self._has_stepped = False
        self._created_before = 0
        self._traced_before: weakref.WeakSet[Any] = weakref.WeakSet()

    def add_function(self, *, is_step: bool = True) -> Callable[[], None]:
        """Adds a function whose graphs are looked into.

        Args:
            is_step: Whether every run calls it, unlike a validation.

        Returns:
            What the function has to call while it is traced.
        """
        number = len(self._was_traced)
        self._was_traced.append(not is_step)

        def tracing() -> None:
            self._was_traced[number] = True
            self._new.append(tf.compat.v1.get_default_graph())

        # AutoGraph would look into it for each function.
        unconverted: Callable[[], None] = tf.autograph.experimental.do_not_convert(tracing)
        return unconverted

    def opened(self) -> None:
        """Takes note of what exists before the first step."""
        self._created_before = ops.uid()
        if not self._was_traced:
            # Also those within another one, which may be gone by then.
            self._traced_before.update(_live_graphs())

    def first_step_done(self) -> None:
        """Takes the graphs of a loop that runs its own functions."""
        self._has_stepped = True
        if not self._was_traced:
            graphs = [
                graph
                for graph in live_graphs()
                if graph not in self._traced_before and not is_of_dataset(graph)
            ]
            self._found = merge_steps([self._found, *map(self._operations_of, graphs)])
            self._traced_before.clear()

    def facts(self) -> StepFacts:
        """Looks into graphs that were traced since the last call; returns what all have.

        Raises:
            UsageError: A step created variables that no checkpoint holds.
        """
        if not self._has_stepped:
            return NO_STEP
        graphs, self._new = self._new, []
        self._found = merge_steps([self._found, *map(self._facts_of, graphs)])
        waits = [_WAITS] * (not all(self._was_traced))
        own = [_OWN_LOOP] * (not self._was_traced)
        return merge_steps([self._found, StepFacts(unseen=waits or own)])

    def _facts_of(self, graph: Any) -> StepFacts:
        try:
            return merge_steps(
                [self._operations_of(graph), self._changes_of(graph), self._shared_by(graph)]
            )
        except UsageError:
            raise
        except Exception as error:
            # It relies on private parts of TensorFlow; training does not depend on it.
            return StepFacts(unseen=[f"its graph cannot be read: {describe_error(error)}"])

    def _operations_of(self, graph: Any) -> StepFacts:
        return operations_of(graph, can_seed=self._can_seed)

    def _shared_by(self, graph: Any) -> StepFacts:
        """Returns which saved state a graph changes that several workers run at the same time."""
        if not self._shares_variables:
            return StepFacts()
        names = {id(handle): name for name, thing in self._saved() for handle in _handles([thing])}
        shared = [
            _at(names[id(capture.handle)], capture.user.place)
            for capture in find_captures(graph, ())
            if capture.changed and id(capture.handle) in names
        ]
        remedies = [_SYNCHRONOUSLY, _IN_ORDER] if self._is_asynchronous else [_IN_ORDER]
        return StepFacts(unordered=shared, remedies=remedies if shared else [])

    def _changes_of(self, graph: Any) -> StepFacts:
        """Returns which objects a graph changes or reads that no checkpoint holds.

        Raises:
            UsageError: Some were created in the step.
        """
        saved = [thing for _, thing in self._saved()]
        known = _handles([*saved, *self._tables(), *exempt_variables()])
        captures = list(find_captures(graph, {*map(id, known)}))
        variables = {id(variable.handle): variable for variable in graph.variables}
        late = {
            id(capture.handle)
            for capture in captures
            if id(capture.handle) in variables
            and order_of_creation(variables[id(capture.handle)]) > self._created_before
        }
        if not captures:
            return StepFacts()
        owners = {
            id(handle): untracked
            for untracked in find_untracked(saved)
            for handle in _handles(untracked.things)
        }
        owners |= {
            id(c.handle): _TABLE
            for c in captures
            if id(c.handle) not in owners and re.match(TABLE_OPERATION, c.user.operation.type)
        }
        owned = [(c, owners[id(c.handle)]) for c in captures if id(c.handle) in owners]
        _refuse([(c, owner) for c, owner in owned if id(c.handle) in late and _is_state(owner)])
        changed = _once((capture, owner) for capture, owner in owned if capture.changed)
        named = {id(owner) for _, owner in changed}
        read = _once((capture, owner) for capture, owner in owned if id(owner) not in named)
        return StepFacts(
            changes=[_at(str(owner), capture.user.place) for capture, owner in changed],
            reads=[_at(str(owner), capture.user.place) for capture, owner in read],
            remedies=[_remedy(owner) for _, owner in (*changed, *read)],
        )


def operations_of(graph: Any, *, can_seed: bool = False) -> StepFacts:
    """Returns the random operations of a graph and of what it calls, and its calls of Python.

    Args:
        graph: The graph.
        can_seed: Whether to advise a seed of the run where one applies.
    """
    operations = list(find_stateful_operations(graph))
    draws = [operation for operation in operations if not operation.is_python]
    remedies = [
        _DRAW_OR_SEED if can_seed and has_twin(draw.kind) else _DRAW_WITHOUT_SEED for draw in draws
    ]
    return StepFacts(
        draws=[_at(draw.name, draw.place) for draw in draws],
        python=[
            _at(operation.name, operation.place) for operation in operations if operation.is_python
        ],
        remedies=list(dict.fromkeys(remedies)),
    )


def _refuse(late: list[tuple[Capture, Untracked]]) -> None:
    if late:
        objects = _once(late)
        raise late_variables_error(
            sum(len(owner.things) for _, owner in objects),
            [_at(str(owner), capture.user.place) for capture, owner in objects],
            " ".join(_remedy(owner) for _, owner in objects),
        )


def _is_state(owner: Untracked) -> bool:
    """Whether it has to be restored before the first step; a metric starts over."""
    return not owner.by_keras and owner.kind is not StateKind.METRIC


def _once(owned: Iterable[tuple[Capture, Untracked]]) -> list[tuple[Capture, Untracked]]:
    """Returns the first capture of each object."""
    return list({id(owner): (capture, owner) for capture, owner in reversed(list(owned))}.values())


def _remedy(owner: Untracked) -> str:
    if owner.by_keras:
        return _DRAW_BY_KERAS
    advice = how_to_pass(owner)
    return f"{advice[0].upper()}{advice[1:]}."


def _at(name: str, place: str) -> str:
    return f"{name} at {place}" if place else name


def _handles(things: Iterable[Any]) -> Iterator[Any]:
    """Yields the handles of variables, tables and iterators, of each replica."""
    for thing in things:
        if is_variable(thing):
            yield from (part.handle for part in components(thing))
        else:
            for name in ("resource_handle", "_iterator_resource"):
                if hasattr(thing, name):
                    yield getattr(thing, name)


def live_graphs() -> list[Any]:
    """Returns all graphs of this process that were not made within another one."""
    return [graph for graph in _live_graphs() if not isinstance(graph.outer_graph, FuncGraph)]


def _live_graphs() -> list[Any]:
    return [thing for thing in gc.get_objects() if issubclass(type(thing), FuncGraph)]


def is_of_dataset(graph: Any) -> bool:
    """Whether a graph is a function of a dataset, such as that of a `map`."""
    return str(graph.name).startswith("Dataset")
