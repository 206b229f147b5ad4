"""The object graph of a checkpoint: saved objects, their attributes and tensors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tfckpt_trainer.bundle.index import Index, TensorEntry, read_index, shard_path
from tfckpt_trainer.bundle.tensors import read_strings
from tfckpt_trainer.bundle.wire import BYTES, VARINT, WireError, fields, signed64
from tfckpt_trainer.errors import BundleError

KEY = "_CHECKPOINTABLE_OBJECT_GRAPH"
VALUE_ATTRIBUTE = "VARIABLE_VALUE"

SIZE_LIMIT = 256 << 20
"""Largest object graph that is read, in bytes. 10,000 variables need 1 to 2 MB."""

_REGISTERED_SAVER = 4
"""Number of that field in `TrackableObject`."""

_ESCAPED = re.compile(r"(?:[^.]|\.\.|\.S)*")
_ESCAPE = re.compile(r"\.([.S])")

_Values = dict[int, tuple[int, int, bytes]]
"""The fields of a message: wire type, integer value and bytes by field number."""


def tensors_of(index: Index) -> dict[str, TensorEntry]:
    """Returns the tensors of a checkpoint by name: all entries but the object graph."""
    return {name: entry for name, entry in index.entries.items() if name != KEY}


class Attribute(msgspec.Struct, frozen=True):
    """A saved value of an object: its name, the variable's full name, and its tensor key."""

    name: str
    full_name: str
    checkpoint_key: str


class SlotVariable(msgspec.Struct, frozen=True):
    """A slot variable of an optimizer: the variable's node, the slot name, the slot's node."""

    variable_node: int
    slot_name: str
    slot_node: int


class Node(msgspec.Struct, frozen=True):
    """One saved object.

    Attributes:
        children: Node numbers of the objects that it refers to, by attribute name.
    """

    children: dict[str, int]
    attributes: tuple[Attribute, ...]
    slot_variables: tuple[SlotVariable, ...]

    @property
    def checkpoint_key(self) -> str | None:
        """Tensor key of a variable; None for other objects."""
        return self._value.checkpoint_key if self._value is not None else None

    @property
    def full_name(self) -> str:
        """Name of a variable in the program that saved it; empty for other objects."""
        return self._value.full_name if self._value is not None else ""

    @property
    def _value(self) -> Attribute | None:
        return next(
            (attribute for attribute in self.attributes if attribute.name == VALUE_ATTRIBUTE), None
        )


def read_object_graph(prefix: Path, index: Index | None = None) -> tuple[Node, ...]:
    """Reads the object graph of the checkpoint at `prefix`; node 0 is the root.

    Args:
        prefix: The checkpoint.
        index: Its index, if already read.

    Raises:
        BundleError: The graph is damaged, or the checkpoint has none (TensorFlow 1).
        FileNotFoundError: A file is missing.
    """
    index = index if index is not None else read_index(prefix)
    entry = index.entries.get(KEY)
    if entry is None:
        raise BundleError(
            f"{prefix.name}.index", None, "has no object graph; it was saved by name (TensorFlow 1)"
        )
    file = shard_path(prefix, entry.shard, index.shard_count).name
    if entry.size > SIZE_LIMIT:
        problem = f"object graph has {entry.size} bytes; at most {SIZE_LIMIT} are read"
        raise BundleError(file, entry.offset, problem)
    texts = read_strings(prefix, entry)
    try:
        nodes = tuple(
            _node(content)
            for number, kind, _, content in fields(texts[0] if texts else b"")
            if number == 1 and kind == BYTES
        )
    except (WireError, UnicodeDecodeError) as error:
        raise BundleError(file, entry.offset, f"object graph: {error}") from error
    if not nodes:
        raise BundleError(file, entry.offset, "object graph is empty")
    for node in nodes:
        for number in _references(node):
            if not 0 <= number < len(nodes):
                problem = f"object graph refers to object {number} of {len(nodes)}"
                raise BundleError(file, entry.offset, problem)
    return nodes


def escaped(name: str) -> str:
    """Returns an attribute as TensorFlow writes it in the names of tensors."""
    return name.replace(".", "..").replace("/", ".S")


def unescaped(part: str) -> str:
    """Returns the attribute that TensorFlow writes as this part of the name of a tensor."""
    if not _ESCAPED.fullmatch(part):
        return part
    return _ESCAPE.sub(lambda match: "/" if match[1] == "S" else ".", part)


def has_registered_savers(prefix: Path, index: Index) -> bool:
    """Whether an object has a saver of its own, which `Node` does not keep.

    Args:
        prefix: The checkpoint, whose object graph can be read.
        index: Its index.
    """
    return any(
        field == _REGISTERED_SAVER
        for text in read_strings(prefix, index.entries[KEY])
        for number, kind, _, content in fields(text)
        if number == 1 and kind == BYTES
        for field, *_ in fields(content)
    )


def _references(node: Node) -> Iterator[int]:
    yield from node.children.values()
    for slot in node.slot_variables:
        yield slot.variable_node
        yield slot.slot_node


def _node(data: bytes) -> Node:
    children: dict[str, int] = {}
    attributes, slots = [], []
    for number, kind, _, content in fields(data):
        if kind != BYTES:
            continue
        values = {field: (wire, value, data) for field, wire, value, data in fields(content)}
        if number == 1:
            children[_text(values, 2)] = _number(values, 1)
        elif number == 2:
            attributes.append(Attribute(_text(values, 1), _text(values, 2), _text(values, 3)))
        elif number == 3:
            slots.append(SlotVariable(_number(values, 1), _text(values, 2), _number(values, 3)))
    return Node(children, tuple(attributes), tuple(slots))


def _number(values: _Values, field: int) -> int:
    wire, value, _ = values.get(field, (VARINT, 0, b""))
    return signed64(value) if wire == VARINT else 0


def _text(values: _Values, field: int) -> str:
    wire, _, data = values.get(field, (BYTES, 0, b""))
    return data.decode("utf-8") if wire == BYTES else ""
