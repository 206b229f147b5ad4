"""Changes an object graph along with the names of the tensors that it refers to."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec.structs import replace

from tfckpt_trainer.bundle.object_graph import (
    VALUE_ATTRIBUTE,
    Attribute,
    Node,
    SlotVariable,
    unescaped,
)
from tfckpt_trainer.errors import RefusedError, UsageError


class GraphEditor:
    """A copy of an object graph that can be changed; node 0 is the root."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = [replace(node, children=dict(node.children)) for node in nodes]

    def has(self, path: str) -> bool:
        """Whether an object is at this path from the root."""
        return self._find(path) is not None

    @property
    def attribute_keys(self) -> set[str]:
        """The tensors that objects refer to; a table refers to the start of several names."""
        return {attribute.checkpoint_key for node in self._nodes for attribute in node.attributes}

    def move(self, old: str, new: str) -> None:
        """Gives the object at path `old`, with all below it, the path `new`.

        Raises:
            UsageError: There is no object at `old`.
            RefusedError: There is one at `new`, or none to hold it.
        """
        child = self._find(old)
        if child is None or not old:
            raise UsageError(f"There is no object at {old}.")
        if new.startswith(f"{old}/"):
            raise RefusedError(f"{old} cannot be moved into itself, to {new}.")
        parent, name = self._free_place(new)
        before, _, last = old.rpartition("/")
        origin = self._find(before)
        assert origin is not None
        del self._nodes[origin].children[unescaped(last)]
        self._nodes[parent].children[name] = child

    def rename_tensors(self, renamed: Callable[[str], str]) -> None:
        """Replaces the names of tensors."""
        for number, node in enumerate(self._nodes):
            attributes = tuple(
                replace(attribute, checkpoint_key=renamed(attribute.checkpoint_key))
                for attribute in node.attributes
            )
            self._nodes[number] = replace(node, attributes=attributes)

    def rename_variables(self, names: Mapping[str, str]) -> None:
        """Gives variables other names in the program that saved them.

        Args:
            names: The new full names, by the names of their tensors.
        """
        for number, node in enumerate(self._nodes):
            attributes = tuple(
                replace(
                    attribute, full_name=names.get(attribute.checkpoint_key, attribute.full_name)
                )
                for attribute in node.attributes
            )
            self._nodes[number] = replace(node, attributes=attributes)

    def add(self, path: str, key: str) -> None:
        """Adds a variable.

        Raises:
            RefusedError: There is an object at `path`, or none to hold it.
        """
        parent, name = self._free_place(path)
        self._nodes[parent].children[name] = len(self._nodes)
        self._nodes.append(Node({}, (Attribute(VALUE_ATTRIBUTE, name, key),), ()))

    def drop_tensors(self, dropped: Collection[str]) -> None:
        """Removes tensors, and the objects that had nothing else."""
        emptied = set()
        for number, node in enumerate(self._nodes):
            left = tuple(
                attribute
                for attribute in node.attributes
                if attribute.checkpoint_key not in dropped
            )
            if len(left) < len(node.attributes):
                self._nodes[number] = replace(node, attributes=left)
                if not left and not node.children and not node.slot_variables:
                    emptied.add(number)
        for number, node in enumerate(self._nodes):
            children = {name: n for name, n in node.children.items() if n not in emptied}
            slots = tuple(slot for slot in node.slot_variables if not _uses(slot, emptied))
            self._nodes[number] = replace(node, children=children, slot_variables=slots)

    def result(self) -> tuple[Node, ...]:
        """Returns the graph, without objects that nothing refers to."""
        order, waiting = {0: 0}, deque([0])
        while waiting:
            node = self._nodes[waiting.popleft()]
            slots = (
                n for slot in node.slot_variables for n in (slot.variable_node, slot.slot_node)
            )
            for number in (*node.children.values(), *slots):
                if number not in order:
                    order[number] = len(order)
                    waiting.append(number)
        return tuple(
            Node(
                {name: order[n] for name, n in self._nodes[number].children.items()},
                self._nodes[number].attributes,
                tuple(
                    replace(
                        slot,
                        variable_node=order[slot.variable_node],
                        slot_node=order[slot.slot_node],
                    )
                    for slot in self._nodes[number].slot_variables
                ),
            )
            for number in order
        )

    def _find(self, path: str) -> int | None:
        number: int | None = 0
        for part in path.split("/") if path else ():
            number = None if number is None else self._nodes[number].children.get(unescaped(part))
        return number

    def _free_place(self, path: str) -> tuple[int, str]:
        """Returns the node that holds an object at `path`, and the name of that object in it."""
        before, _, last = path.rpartition("/")
        parent, name = self._find(before), unescaped(last)
        if parent is None:
            raise RefusedError(
                f"There is no object at {before} to hold {name}; only objects that were saved can."
            )
        if not name or name in self._nodes[parent].children:
            raise RefusedError(f"There is an object at {path} already.")
        return parent, name


def _uses(slot: SlotVariable, gone: Collection[int]) -> bool:
    return slot.variable_node in gone or slot.slot_node in gone
