"""Walks through a traced graph and the functions that it calls; finds what they capture."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from tfckpt_trainer.training.graphs.places import place_of

_FIRST_ARGUMENT = {"If": 1, "StatelessIf": 1, "Case": 1, "StatelessCase": 1}
"""Number of inputs of an operation before the arguments of the functions that it calls."""

TABLE_OPERATION = r"(\w+>)?\w*Table"
"""How operations on lookup tables begin, such as `LookupTableFind`, also those of packages."""

_CHANGING = re.compile(
    r"Assign(Add|Sub)?VariableOp|Resource(Sparse)?Apply|ResourceScatter|ResourceStridedSliceAssign"
    r"|ResourceCountUpTo|Rng(ReadAnd)?Skip|Stateful(Uniform|StandardNormal|TruncatedNormal|Random)"
    rf"|{TABLE_OPERATION}(Insert|Remove|Import|Accum|Clear)|IteratorGetNext"
)
"""Operations that change the variable, table or iterator that they take."""


class Reached(NamedTuple):
    """An operation in a graph, or in a function that it calls.

    Attributes:
        operation: The operation.
        callers: The operations that lead to its function, the innermost first.
    """

    operation: Any
    callers: tuple[Any, ...] = ()

    @property
    def place(self) -> str:
        """The line of the script, such as `train.py:12`; empty if none is known.

        Functions of a SavedModel have none; then it is the line that called it.
        """
        return next(filter(None, map(place_of, (self.operation, *self.callers))), "")


def reached_operations(graph: Any) -> Iterator[Reached]:
    """Yields each operation of a graph and of all functions that it calls."""
    waiting: list[tuple[Any, tuple[Any, ...]]] = [(graph, ())]
    seen = {id(graph)}
    while waiting:
        inner, callers = waiting.pop()
        for operation in inner.get_operations():
            yield Reached(operation, callers)
            for called in called_functions(operation):
                if id(called) not in seen:
                    seen.add(id(called))
                    waiting.append((called, (operation, *callers)))


def called_functions(operation: Any) -> list[Any]:
    """Returns the graphs of the functions that an operation calls."""
    names: list[str] = []
    for attribute in _function_attributes(operation.type):
        value = operation.get_attr(attribute)
        names += [reference.name for reference in (value if isinstance(value, list) else [value])]
    if not names:
        return []
    functions = [operation.graph._get_function(name) for name in names]
    return [function.graph for function in functions if function is not None]


@functools.cache
def _function_attributes(kind: str) -> tuple[str, ...]:
    definition = op_def_registry.get(kind)
    attributes = definition.attr if definition is not None else ()
    return tuple(
        attribute.name for attribute in attributes if attribute.type in {"func", "list(func)"}
    )


def passed_arguments(operation: Any, tensor: Any) -> Iterator[Any]:
    """Yields what a tensor is within the functions that an operation passes it to."""
    first = _FIRST_ARGUMENT.get(operation.type, 0)
    for called in called_functions(operation):
        for argument, given in zip(called.inputs, list(operation.inputs)[first:], strict=False):
            if given is tensor:
                yield argument


class Capture(NamedTuple):
    """A variable, table or iterator that a graph uses.

    Attributes:
        handle: Its handle, a tensor outside the graph.
        user: An operation that changes it or, if none does, one that uses it.
        changed: Whether the graph changes it.
    """

    handle: Any
    user: Reached
    changed: bool


def find_captures(graph: Any, excluded: Collection[int]) -> Iterator[Capture]:
    """Yields what a graph and the functions that it calls use of the world outside.

    Args:
        graph: The graph, which no other graph calls.
        excluded: Identities of handles to leave out.
    """
    for handle, argument in graph.captures:
        if handle.dtype != tf.resource or id(handle) in excluded:
            continue
        users = list(_users(argument, ()))
        changing = [user for user in users if _CHANGING.match(user.operation.type)]
        if users:
            yield Capture(handle, (changing or users)[0], bool(changing))


def _users(tensor: Any, callers: tuple[Any, ...]) -> Iterator[Reached]:
    """Yields the operations that take a tensor, within the functions that it is passed to."""
    for operation in tensor.consumers():
        if called_functions(operation):
            for argument in passed_arguments(operation, tensor):
                yield from _users(argument, (operation, *callers))
        else:
            yield Reached(operation, callers)
            if operation.type == "Identity":
                yield from _users(operation.outputs[0], callers)
