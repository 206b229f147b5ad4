"""Finds all state that is reachable from objects of a script, to any depth.

`tf.train.Checkpoint` tracks models, layers, modules and optimizers. It does not track Keras
metrics, seeds of Keras layers, or what a module keeps in objects of other kinds. So the walk goes
along TensorFlow's own dependencies first, and then through the attributes of the objects.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import tensorflow as tf

from tfckpt_trainer.training.keras_library import OPTIMIZERS, SeedGenerator, keras
from tfckpt_trainer.training.state.adapted import Adapted, find_adapted
from tfckpt_trainer.training.state.variables import (
    ReplicaRule,
    components,
    has_slots,
    is_partitioned,
    is_variable,
    raw_variable,
    rule_of,
    slot_variables,
)

_Trackable = tf.__internal__.tracking.Trackable
_WALKED = (
    tf.Module,
    keras.layers.Layer,
    *OPTIMIZERS,
    keras.metrics.Metric,
    keras.losses.Loss,
    SeedGenerator,
)
"""Kinds of TensorFlow and Keras whose attributes may hold state."""

_ATOMS = frozenset({bool, int, float, complex, str, bytes, type(None), np.ndarray})
_LIBRARIES = sys.stdlib_module_names | {
    "keras",
    "numpy",
    "tensorflow",
    "tf_keras",
    "tfckpt_trainer",
}
_SKIPPED = frozenset({"_tracker", "_inbound_nodes", "_outbound_nodes", "_nodes"})
"""Attributes of Keras that lead to objects found otherwise, on long ways."""

_GENERATORS = (SeedGenerator, tf.random.Generator)


@dataclass(frozen=True)
class Found:
    """A variable, or another object that has a value of its own.

    Attributes:
        path: Names of the attributes that lead to it, from the name under which it was passed.
        thing: The object; a variable of TensorFlow or of Keras for the rules of variables.
        rule: How its values on several replicas relate.
        tracked: Whether a `tf.train.Checkpoint` of what was passed stores it.
        is_seed: Whether it is the state of a random generator.
        is_metric: Whether it belongs to a Keras metric.
    """

    path: str
    thing: Any
    rule: ReplicaRule
    tracked: bool
    is_seed: bool = False
    is_metric: bool = False


class FoundState(tuple[Found, ...]):
    """Everything with a value that was found.

    Attributes:
        structure: Equal to that of a later search if all objects that the checkpoint tracks refer
            to each other as they did, and its variables are the same ones. Keep them alive until
            then: it holds only their identities.
        adapted: Layers and tables with values that the script made before it trains.
    """

    structure: tuple[Any, ...] = ()
    adapted: tuple[Adapted, ...] = ()


def find_state(checkpoint: tf.train.Checkpoint, passed: Mapping[str, Any]) -> FoundState:
    """Returns everything with a value that is reachable from `checkpoint` and `passed`, once.

    Args:
        checkpoint: Tracks of `passed` what TensorFlow can track, under the same names.
        passed: All objects of the script, by name.

    Returns:
        What `checkpoint` stores first. The order is the same in all processes that run the same
        script.
    """
    walk = _Walk(checkpoint)
    walk.follow_dependencies([("", checkpoint, None)], tracked=True)
    walk.add_slots()
    structure = walk.structure()
    walk.follow_attributes(passed)
    found = FoundState(walk.found)
    found.structure, found.adapted = structure, find_adapted(walk.visited)
    return found


class _Walk:
    """One walk.

    Attributes:
        found: What was found so far.
        visited: Path and object of all that was visited; None for a variable.
    """

    def __init__(self, root: Any) -> None:
        self._view = tf.train.TrackableView(root)
        self._seen: set[int] = set()
        self._paths: set[str] = set()
        # Objects that are made during the walk must live, or another would get their identity.
        self.visited: list[tuple[str, Any]] = []
        self._references: list[tuple[int, str, int]] = []
        self.found: list[Found] = []

    def structure(self) -> tuple[Any, ...]:
        """Returns how the objects visited so far refer to each other, and their variables."""
        numbers: dict[int, int] = {}
        references = [
            (numbers.setdefault(owner, len(numbers)), name, numbers.setdefault(child, len(numbers)))
            for owner, name, child in self._references
        ]
        return references, [id(raw_variable(one.thing)) for one in self.found]

    def follow_dependencies(self, start: Iterable[tuple[str, Any, Any]], *, tracked: bool) -> None:
        """Goes along TensorFlow's dependencies, breadth first."""
        waiting = deque(start)
        while waiting:
            path, thing, owner = waiting.popleft()
            if self._visit(path, thing, owner, tracked=tracked) and isinstance(thing, _Trackable):
                children = self._view.children(thing)
                if tracked:
                    number = id(thing)
                    self._references += [(number, name, id(c)) for name, c in children.items()]
                waiting.extend(
                    (_join(path, name), child, thing) for name, child in children.items()
                )

    def add_slots(self) -> None:
        """Adds the slot variables of legacy optimizers, which TensorFlow saves and none tracks."""
        optimizers = [(path, thing) for path, thing in self.visited if has_slots(thing)]
        variables = [(one.path, one.thing) for one in self.found if one.rule.is_variable]
        slots = slot_variables(optimizers, variables)
        self.follow_dependencies(((path, slot, None) for path, slot in slots), tracked=True)

    def follow_attributes(self, passed: Mapping[str, Any]) -> None:
        """Goes through the attributes of all objects that were visited or passed."""
        self.follow_dependencies(
            ((name, thing, None) for name, thing in passed.items()), tracked=False
        )
        self._follow(self.visited, _attributes)
        # Last, so that only metrics that nothing else holds are found here.
        number = len(self.visited)
        self._follow(list(self.visited), _metrics)
        self._follow(islice(self.visited, number, None), _attributes)

    def _follow(
        self, kept: Iterable[tuple[str, Any]], parts: Callable[[Any], Iterable[tuple[str, Any]]]
    ) -> None:
        # Visiting appends to the list; so this reaches any depth, breadth first.
        for path, thing in kept:
            self.follow_dependencies(
                ((_join(path, name), child, thing) for name, child in parts(thing)), tracked=False
            )

    def _visit(self, path: str, thing: Any, owner: Any, *, tracked: bool) -> bool:
        """Notes an object; returns whether what it holds is to be visited."""
        variable = is_variable(thing)
        number = id(raw_variable(thing)) if variable else id(thing)
        if number in self._seen:
            return False
        self._seen.add(number)
        if variable and is_partitioned(thing):
            # Keras 2 lists the partitions of a layer too.
            self._seen.update(map(id, components(thing)))
        self.visited.append((path, None if variable else thing))
        rule = rule_of(thing) if variable or isinstance(thing, _Trackable) else None
        if rule is None:
            return True
        # A name with a slash can make the path of another object.
        while path in self._paths:
            path += "'"
        self._paths.add(path)
        is_seed, is_metric = isinstance(owner, _GENERATORS), isinstance(owner, keras.metrics.Metric)
        self.found.append(Found(path, thing, rule, tracked, is_seed, is_metric))
        return not variable


def _attributes(thing: Any) -> Iterator[tuple[str, Any]]:
    """Yields what an object holds and what may hold state, by name."""
    if isinstance(thing, dict):
        named: Iterable[tuple[str, Any]] = ((str(key), value) for key, value in thing.items())
    elif isinstance(thing, (list, tuple)):
        named = ((str(number), value) for number, value in enumerate(thing))
    elif isinstance(thing, (set, frozenset)):
        by_name = sorted(thing, key=lambda member: str(getattr(member, "name", "")))
        named = ((str(number), value) for number, value in enumerate(by_name))
    elif isinstance(thing, _WALKED) or _is_of_script(thing):
        # Public names first: they make the paths that people know.
        own = _own_attributes(thing)
        named = [(name, own[name]) for name in sorted(own, key=lambda name: name.startswith("_"))]
    else:
        return
    for name, value in named:
        if _may_hold_state(value) and name not in _SKIPPED and not name.startswith("_self_"):
            yield name, value


def _metrics(thing: Any) -> Iterator[tuple[str, Any]]:
    """Yields what the property `metrics` of a layer returns, which a script may override."""
    if isinstance(thing, keras.layers.Layer):
        # It is code of the script, and may need what only a compiled model has.
        with suppress(Exception):
            yield from ((f"metrics/{metric.name}", metric) for metric in list(thing.metrics))


def _may_hold_state(thing: Any) -> bool:
    if type(thing) in _ATOMS:
        return False
    if isinstance(thing, (dict, list, tuple, set, frozenset, _Trackable, *_WALKED)):
        return True
    return is_variable(thing) or _is_of_script(thing)


def _is_of_script(thing: Any) -> bool:
    """Whether it is an object of a class that the script or a package of its own defines."""
    return str(type(thing).__module__).partition(".")[0] not in _LIBRARIES


def _own_attributes(thing: Any) -> dict[str, Any]:
    own = dict(getattr(thing, "__dict__", {}))
    for kind in type(thing).__mro__:
        slots = vars(kind).get("__slots__", ())
        names = [slots] if isinstance(slots, str) else slots
        own.update((name, getattr(thing, name)) for name in names if hasattr(thing, name))
    return own


def _join(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name
