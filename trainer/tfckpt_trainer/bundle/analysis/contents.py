"""The roles of the tensors of a checkpoint: weights, slot variables, step, random state, ...

TensorFlow names a variable by the first path to it. In a compiled Keras model that path may lead
through the optimizer. So this module searches the object graph again, outside optimizers first.
A tensor that only an optimizer refers to belongs to the optimizer.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from operator import attrgetter
from pathlib import Path

import msgspec
from msgspec.structs import replace

from tfckpt_trainer.bundle.dtypes import ITEM_SIZES, is_inexact
from tfckpt_trainer.bundle.index import Index, TensorEntry
from tfckpt_trainer.bundle.object_graph import (
    KEY,
    VALUE_ATTRIBUTE,
    Node,
    escaped,
    read_object_graph,
    tensors_of,
)
from tfckpt_trainer.bundle.structure import component_keys
from tfckpt_trainer.errors import BundleError, describe_error

_SUFFIX = "/.ATTRIBUTES/"
_NUMBER = re.compile(r"([0-9]{1,18})")
_OPTIMIZER_CHILDREN = ({"_iterations", "_trainable_variables"}, {"_iterations", "_index_dict"})
"""Of optimizers of Keras 3, and of Keras 2 from TensorFlow 2.11 on, which is `tf_keras` now."""
_LISTS_OF_ALL = {"_trainable_variables", "_variables"}
_RANDOM_CHILDREN = {"_state_var", "seed_generator_state"}
_INTEGERS = {"int32", "int64", "uint32", "uint64"}
_STEP_NAMES = {"step", "global_step", "epoch", "iteration", "iterations", "steps"}
_SLOT_SUFFIXES = ("Adam", "Adam_1", "Momentum", "RMSProp", "RMSProp_1", "Adagrad", "Ftrl", "Ftrl_1")


class Role(StrEnum):
    """What a tensor is for."""

    WEIGHT = "weight"
    SLOT = "slot variable"
    OPTIMIZER = "optimizer"
    STEP = "step"
    INPUT = "input position"
    RANDOM = "random state"
    OTHER = "other"
    UNKNOWN = "unknown"


GROUPS = {Role.WEIGHT: "model", Role.SLOT: "optimizer", Role.OPTIMIZER: "optimizer"}
"""The group in which each role is totalled; other roles are in `rest`."""


class Variable(msgspec.Struct, frozen=True):
    """One tensor and its role.

    Attributes:
        path: How it is named everywhere, unique in its checkpoint and not empty: the path from the
            root object, with Keras names if the variable has them. A slot variable is named by the
            optimizer, the slot and its variable: `optimizer/momentums/model/dense/kernel`.
        object_path: Path from the root object by attributes alone; empty without an object graph.
        full_name: Name of the variable in the program that saved it.
        slot_of: For a slot variable, the path of the variable that it belongs to.
        slot_name: For a slot variable, the name of the slot, such as `momentums`.
    """

    path: str
    entry: TensorEntry
    role: Role
    full_name: str = ""
    slot_of: str = ""
    slot_name: str = ""
    object_path: str = ""

    @property
    def group(self) -> str:
        """`model`, `optimizer` or `rest`."""
        return GROUPS.get(self.role, "rest")

    @property
    def title(self) -> str:
        """Name for display: the path, or `VARIABLE (SLOT)` for a slot variable."""
        return f"{self.slot_of} ({self.slot_name})" if self.slot_of else self.path

    @property
    def size(self) -> int:
        """Size of the tensor in bytes, including all parts."""
        if not self.entry.slices:
            return self.entry.size
        return ITEM_SIZES.get(self.entry.dtype, 0) * self.entry.element_count


def describe_tensors(index: Index, nodes: Sequence[Node] | None) -> tuple[Variable, ...]:
    """Returns all tensors with their roles: model first, then optimizer, then the rest.

    Args:
        index: The index of a checkpoint.
        nodes: Its object graph, or None if it was saved by name (TensorFlow 1).
    """
    if nodes is None:
        return _in_order(_with_root_scalars(list(_named(index))))
    by_name = SavedObjects(nodes).variables(index)
    rest = [
        Variable(name.replace(_SUFFIX, "."), entry, Role.OTHER)
        for name, entry in tensors_of(index).items()
        if name not in by_name
    ]
    variables = _with_unique_paths([*by_name.values(), *rest])
    # Beside other state, such a scalar is rather a best loss; alone, it is a model that was saved.
    return _in_order(
        _with_root_scalars(variables) if all(map(_is_root_scalar, variables)) else variables
    )


def _with_unique_paths(variables: Sequence[Variable]) -> list[Variable]:
    """Gives tensors that would have the same path the path of their object, or their name."""
    for other in (attrgetter("object_path"), attrgetter("entry.name")):
        counts = Counter(variable.path for variable in variables)
        variables = [
            replace(variable, path=other(variable) or variable.path)
            if counts[variable.path] > 1
            else variable
            for variable in variables
        ]
    return list(variables)


def _with_root_scalars(variables: Sequence[Variable]) -> Sequence[Variable]:
    """Counts real scalars at the root as weights if nothing else is one, as in `a * x + b`."""
    if any(variable.role is Role.WEIGHT for variable in variables):
        return variables
    return [
        replace(variable, role=Role.WEIGHT) if _is_root_scalar(variable) else variable
        for variable in variables
    ]


def _is_root_scalar(variable: Variable) -> bool:
    entry = variable.entry
    return (
        variable.role is Role.OTHER
        and "/" not in variable.path
        and entry.shape == ()
        and is_inexact(entry.dtype)
    )


def _in_order(variables: Iterable[Variable]) -> tuple[Variable, ...]:
    places = {"model": 0, "optimizer": 1, "rest": 2}
    return tuple(sorted(variables, key=lambda v: (places[v.group], _natural(v.path))))


def _natural(path: str) -> list[str | int]:
    """Returns a sort key by which `layers/2` comes before `layers/10`."""
    return [int(part) if part.isdecimal() else part for part in _NUMBER.split(path)]


def describe_tensors_without_graph(index: Index) -> tuple[Variable, ...]:
    """Returns all tensors without roles, for a checkpoint whose object graph is unreadable."""
    return tuple(
        Variable(name.removesuffix(f"{_SUFFIX}{VALUE_ATTRIBUTE}") or name, entry, Role.UNKNOWN)
        for name, entry in sorted(tensors_of(index).items())
    )


class Contents(msgspec.Struct, frozen=True):
    """The tensors of a checkpoint and the objects that hold them.

    Attributes:
        variables: All tensors, with their roles if the object graph can be read.
        nodes: The object graph; None if there is none, or if it cannot be read.
        problem: Why the object graph cannot be read; empty if it can, or if there is none.
    """

    prefix: Path
    index: Index
    variables: tuple[Variable, ...]
    nodes: tuple[Node, ...] | None = None
    problem: str = ""


def read_contents(prefix: Path, index: Index) -> Contents:
    """Reads the object graph of a checkpoint; without one, tensors have names only."""
    if KEY not in index.entries:
        return Contents(prefix, index, describe_tensors(index, None))
    try:
        nodes = read_object_graph(prefix, index)
    except (BundleError, OSError) as error:
        variables = describe_tensors_without_graph(index)
        return Contents(prefix, index, variables, problem=describe_error(error))
    return Contents(prefix, index, describe_tensors(index, nodes), nodes)


class SavedObjects:
    """Finds the paths of objects, and which objects only an optimizer refers to.

    Attributes:
        nodes: The object graph.
        optimizers: The numbers of the nodes that are optimizers.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self.optimizers = {number for number, node in enumerate(nodes) if _is_optimizer(node)}
        self._paths: dict[int, tuple[str, ...]] = {}
        self._walk([(0, ())], enter=lambda number: number not in self.optimizers)
        self._outside = set(self._paths) - self.optimizers
        starts = [(n, self._paths[n]) for n in sorted(self.optimizers) if n in self._paths]
        self._walk(starts, enter=lambda number: True)
        self._place_slots()

    def variables(self, index: Index) -> dict[str, Variable]:
        """Returns the variables by tensor name."""
        readable, names = self._readable_paths(), sorted(index.entries)
        variables = {}
        for number, path in self._paths.items():
            for attribute in self.nodes[number].attributes:
                key = attribute.checkpoint_key
                own = [key] if key in index.entries else component_keys(key, names)
                for name in own:
                    entry = index.entries[name]
                    # Objects with several tensors, such as tables, need a suffix per tensor.
                    rest = name.removeprefix(key) if len(own) > 1 else ""
                    objects = "/".join(map(escaped, path)) + rest
                    # The root object has no path; its value is named as one without an object.
                    shown = readable.get(number, "/".join(path)) + rest or f".{attribute.name}"
                    role = self._role(number, path, attribute.name, entry)
                    variables[name] = Variable(
                        shown, entry, role, attribute.full_name, object_path=objects
                    )
        return self._with_slots(variables, readable)

    def _walk(
        self, starts: Iterable[tuple[int, tuple[str, ...]]], enter: Callable[[int], bool]
    ) -> None:
        waiting = deque(starts)
        while waiting:
            number, path = waiting.popleft()
            first_path = self._paths.setdefault(number, path)
            if first_path != path or not enter(number):
                continue
            for name, child in self.nodes[number].children.items():
                if child not in self._paths:
                    self._paths[child] = (*path, name)
                    waiting.append((child, (*path, name)))

    def _place_slots(self) -> None:
        """Gives paths to slot variables that no object refers to, as in TensorFlow 1."""
        for number in sorted(self.optimizers & self._paths.keys()):
            for slot in self.nodes[number].slot_variables:
                owner = self._paths.get(slot.variable_node)
                if owner is not None and 0 <= slot.slot_node < len(self.nodes):
                    path = (*self._paths[number], slot.slot_name, *owner)
                    self._paths.setdefault(slot.slot_node, path)

    def _readable_paths(self) -> dict[int, str]:
        """Returns paths made of full names, for root children whose variables all have one."""
        by_child: dict[str, dict[int, str]] = {}
        for number, path in self._paths.items():
            value = _value_of(self.nodes[number])
            if value is not None and number in self._outside and len(path) > 1:
                by_child.setdefault(path[0], {})[number] = value
        readable = {}
        for child, names in by_child.items():
            if len(set(names.values())) == len(names) and all("/" in n for n in names.values()):
                readable.update({number: f"{child}/{name}" for number, name in names.items()})
        return readable

    def _role(self, number: int, path: tuple[str, ...], attribute: str, entry: TensorEntry) -> Role:
        if entry.dtype == "variant" or attribute.startswith("ITERATOR"):
            return Role.INPUT
        if path and path[-1] in _RANDOM_CHILDREN:
            return Role.RANDOM
        if number not in self._outside:
            return Role.OPTIMIZER
        if attribute != VALUE_ATTRIBUTE or any("metric" in part for part in path):
            return Role.OTHER
        return _plain_role(path[-1] if path else "", entry, at_root=len(path) <= 1)

    def _with_slots(
        self, variables: dict[str, Variable], readable: dict[int, str]
    ) -> dict[str, Variable]:
        """Marks slot variables and sets their owners."""
        for optimizer, slot, variable, slot_name in self.slots():
            value = self.nodes[slot].checkpoint_key
            slot_variable = variables.get(value) if value is not None else None
            if slot_variable is not None and value is not None and variable in self._paths:
                owner = readable.get(variable, "/".join(self._paths[variable]))
                path = "/".join((*self._paths[optimizer], slot_name, owner))
                variables[value] = replace(
                    slot_variable, role=Role.SLOT, slot_of=owner, slot_name=slot_name, path=path
                )
        return variables

    def slots(self) -> Iterator[tuple[int, int, int, str]]:
        """Yields the nodes of each optimizer, slot variable and variable, and the slot's name.

        TensorFlow optimizers list their slots. Keras 3 optimizers hold one list per slot, in the
        order of their trainable variables (`keras/src/optimizers/base_optimizer.py`). Keras 2
        lists no trainable variables; the full names of slots end with those of their variables.
        """
        by_name = self._by_full_name()
        for number in sorted(self.optimizers & self._paths.keys()):
            node = self.nodes[number]
            for slot in node.slot_variables:
                if 0 <= slot.slot_node < len(self.nodes):
                    yield number, slot.slot_node, slot.variable_node, slot.slot_name
            trained = self.elements(node.children.get("_trainable_variables"))
            for name, child in node.children.items():
                slots = self.elements(child)
                if name in _LISTS_OF_ALL or (trained and len(slots) != len(trained)):
                    continue
                owners = trained or [self._owner(slot, by_name) for slot in slots]
                for slot_node, variable in zip(slots, owners, strict=True):
                    if slot_node != variable and _value_of(self.nodes[slot_node]) is not None:
                        yield number, slot_node, variable, name.strip("_")

    def _by_full_name(self) -> dict[str, int]:
        """Returns the variables outside optimizers whose full name no other one has."""
        names = {number: _value_of(self.nodes[number]) for number in self._outside}
        counts = Counter(names.values())
        return {name: number for number, name in names.items() if name and counts[name] == 1}

    def _owner(self, slot: int, by_name: Mapping[str, int]) -> int:
        """Returns the variable `dense/kernel` of `Adam/m/dense/kernel`, or the slot itself.

        A slot that `build` created is `m/dense/kernel`.
        """
        built = (_value_of(self.nodes[slot]) or "").partition("/")[2]
        return by_name.get(built.partition("/")[2], by_name.get(built, slot))

    def elements(self, number: int | None) -> list[int]:
        """Returns the elements of a tracked list; empty for other objects."""
        children = self.nodes[number].children if number is not None else {}
        places = [children.get(str(place)) for place in range(len(children))]
        return [place for place in places if place is not None] if None not in places else []


def _is_optimizer(node: Node) -> bool:
    keras = any(node.children.keys() >= names for names in _OPTIMIZER_CHILDREN)
    return bool(node.slot_variables) or keras


def _value_of(node: Node) -> str | None:
    """Returns the full name of a variable; None for other objects."""
    for attribute in node.attributes:
        if attribute.name == VALUE_ATTRIBUTE:
            return attribute.full_name
    return None


def _plain_role(name: str, entry: TensorEntry, *, at_root: bool) -> Role:
    if entry.dtype not in ITEM_SIZES:
        return Role.OTHER
    if at_root and entry.shape == ():
        is_step = entry.dtype in _INTEGERS and name in _STEP_NAMES
        return Role.STEP if is_step else Role.OTHER
    return Role.WEIGHT


def _named(index: Index) -> Iterator[Variable]:
    """Guesses roles from TensorFlow 1 names, such as `layer/kernel/Adam`."""
    for name, entry in sorted(index.entries.items()):
        owner, _, last = name.rpartition("/")
        if owner in index.entries and last in _SLOT_SUFFIXES:
            yield Variable(name, entry, Role.SLOT, slot_of=owner, slot_name=last)
        elif last in {"beta1_power", "beta2_power"}:
            yield Variable(name, entry, Role.OPTIMIZER)
        else:
            yield Variable(name, entry, _plain_role(last, entry, at_root=not owner))
