"""Objects that a script passes, such as rules and triggers: their names and texts in messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

ObjectT = TypeVar("ObjectT")

_LONGEST = 200
"""Characters of a text of a script in a document."""


def objects_with(method: str, given: Iterable[ObjectT], option: str) -> tuple[ObjectT, ...]:
    """Returns objects that a script passed.

    Args:
        method: The method that each needs, with its arguments.
        given: The objects.
        option: How the script passed them, for the message.

    Raises:
        TypeError: One is a class, or has no such method.
    """
    name, _, _ = method.partition("(")
    objects = tuple(given)
    for thing in objects:
        if isinstance(thing, type) or not callable(getattr(thing, name, None)):
            raise TypeError(f"{option} got {thing!r}; expected objects with a method {method}.")
    return objects


def name_of(thing: object) -> str:
    """Returns the name of an object for messages: its class, or what its own `__str__` says."""
    kind = type(thing)
    return kind.__name__ if kind.__str__ is object.__str__ else one_line(str(thing))


def one_line(text: object) -> str:
    """Returns a text as one line that a document can hold."""
    return " ".join(str(text).encode(errors="replace").decode().split())[:_LONGEST]
