"""Finds what a traced graph captures from outside and changes, such as variables."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import tensorflow as tf

from tfckpt_trainer.training.graphs.calls import Reached, called_functions, passed_arguments

_CHANGING = re.compile(
    r"Assign(Add|Sub)?VariableOp|Resource(Sparse)?Apply|ResourceScatter|ResourceStridedSliceAssign"
    r"|ResourceCountUpTo|Rng(ReadAnd)?Skip|Stateful(Uniform|StandardNormal|TruncatedNormal|Random)"
    r"|LookupTable(Insert|Remove|Import)|IteratorGetNext"
)
"""Operations that change the variable, table or iterator that they take."""


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


def find_captures(graph: Any, known: Collection[int]) -> Iterator[Capture]:
    """Yields what a graph and the functions that it calls use of the world outside.

    Args:
        graph: The graph, which no other graph calls.
        known: Identities of handles to leave out.
    """
    for handle, argument in graph.captures:
        if handle.dtype != tf.resource or id(handle) in known:
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
