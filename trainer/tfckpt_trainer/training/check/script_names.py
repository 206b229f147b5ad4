"""Finds the names by which a script knows its objects."""

from __future__ import annotations

import functools
import sys
import types
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfckpt_trainer.training.graphs.places import is_of_script

LARGEST_WALK = 20_000
"""How many objects are looked at."""

_DEEPEST = 4
_COMPILED = type(tf.function(lambda: None))
_OF_TENSORFLOW = "_self_"
"""How the attributes begin that TensorFlow adds to what it tracks, such as a count of updates."""

_PLAIN = (bool, int, float, complex, np.generic)


class ScriptNames:
    """The names and numbers that the running script can see, at one moment."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._kept: list[Any] = []
        self.values: dict[str, str] = {}
        self._walk(_namespaces())

    def of(self, thing: Any) -> str:
        """Returns how the script can write it, such as `trainer.noise`; empty if it cannot."""
        return self._names.get(id(thing), "")

    def named(self, kinds: tuple[type, ...]) -> Iterator[tuple[str, Any]]:
        """Yields name and object of all objects of these types."""
        for thing in self._kept:
            if issubclass(type(thing), kinds):
                yield self.of(thing), thing

    def _walk(self, namespaces: Iterable[Mapping[str, Any]]) -> None:
        waiting: deque[tuple[str, Any, int]] = deque()
        for namespace in namespaces:
            for name, thing in namespace.items():
                if not name.startswith("_"):
                    waiting.append((name, thing, 0))
        while waiting and len(self._kept) < LARGEST_WALK:
            name, thing, depth = waiting.popleft()
            if issubclass(type(thing), _PLAIN):
                self.values.setdefault(name, str(thing))
                continue
            if id(thing) in self._names or isinstance(thing, types.ModuleType):
                continue
            self._names[id(thing)] = name
            self._kept.append(thing)
            if depth < _DEEPEST:
                waiting.extend((child, value, depth + 1) for child, value in _children(name, thing))


def _namespaces() -> Iterator[Mapping[str, Any]]:
    """Yields the variables of the script: of its functions that run now, and of its modules."""
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        if is_of_script(frame.f_code.co_filename):
            yield dict(frame.f_locals)
            yield dict(frame.f_globals)
        frame = frame.f_back
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name == "__main__" or (isinstance(file, str) and is_of_script(file)):
            yield dict(vars(module))


def _children(name: str, thing: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(thing, dict):
        for key, value in list(thing.items()):
            yield f"{name}[{key!r}]", value
    elif isinstance(thing, list | tuple):
        for number, value in enumerate(thing):
            yield f"{name}[{number}]", value
    elif isinstance(thing, functools.partial):
        yield from _children(name, [thing.func, *thing.args])
    elif isinstance(thing, types.MethodType):
        yield name, thing.__self__
    elif isinstance(thing, _COMPILED):
        yield name, thing.python_function
    elif isinstance(thing, types.FunctionType):
        yield from _closure(thing)
    elif _is_script_object(thing):
        for attribute, value in list(vars(thing).items()):
            if not attribute.startswith(_OF_TENSORFLOW):
                yield f"{name}.{attribute}", value


def _closure(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yields variables of a function that has returned, which a function defined in it uses."""
    if is_of_script(function.__code__.co_filename):
        names, cells = function.__code__.co_freevars, function.__closure__ or ()
        for name, cell in zip(names, cells, strict=True):
            if cell != types.CellType():
                yield name, cell.cell_contents


def _is_script_object(thing: Any) -> bool:
    kind = type(thing)
    if not hasattr(thing, "__dict__") or isinstance(thing, type):
        return False
    if kind.__name__ in {"SimpleNamespace", "ExponentialMovingAverage"}:
        return True
    module = sys.modules.get(kind.__module__)
    file = getattr(module, "__file__", None)
    return kind.__module__ == "__main__" or (isinstance(file, str) and is_of_script(file))
