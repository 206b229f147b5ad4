"""The tensors of a checkpoint or a file as a tree of groups, variables and slot variables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfckpt_trainer.bundle.analysis.contents import Variable
    from tfckpt_trainer.bundle.exchange.array_file import Array


@dataclass(frozen=True)
class Tensor:
    """What the tree shows of a variable of a checkpoint, or of a tensor of a file.

    Attributes:
        name: Its unique name where it is stored.
        path: Where it is in the tree.
        size: In bytes, including all parts.
        what: Its role, or in a file the layer that it belongs to.
        shard: The number of the data file that holds it, or `parts`; empty in a file.
        slot_of: For a slot variable, the path of the variable that it belongs to.
        slot_name: For a slot variable, the name of the slot.
    """

    name: str
    path: str
    dtype: str
    shape: tuple[int, ...]
    size: int
    what: str
    shard: str = ""
    slot_of: str = ""
    slot_name: str = ""

    def matches(self, text: str) -> bool:
        """Whether a text is in its path, its name, that of its owner, or its layer."""
        layer = "" if self.shard else self.what
        return has_text(text, self.path, self.name, self.slot_of, layer)


def has_text(text: str, *names: str) -> bool:
    """Whether a text is in one of the names of a tensor, in whatever case."""
    return any(text.casefold() in name.casefold() for name in names)


def tensors_of_checkpoint(variables: Iterable[Variable]) -> list[Tensor]:
    """Returns the variables of a checkpoint as the tree shows them."""
    return [
        Tensor(
            variable.entry.name,
            variable.path,
            variable.entry.dtype,
            variable.entry.shape,
            variable.size,
            variable.role.value,
            "parts" if variable.entry.slices else str(variable.entry.shard),
            variable.slot_of,
            variable.slot_name,
        )
        for variable in variables
    ]


def tensors_of_file(arrays: Iterable[Array]) -> list[Tensor]:
    """Returns the tensors of a file as the tree shows them."""
    return [
        Tensor(array.name, array.name, array.dtype, array.shape, array.size, array.owner)
        for array in arrays
    ]


@dataclass(frozen=True)
class VariableRow:
    """One row.

    Attributes:
        key: Unique key, which stays the same across updates.
        depth: Level of indentation.
        label: Last part of the path.
        variable: The variable; None for a group.
        count: Number of variables in a group, or of slot variables of a variable.
        size: Bytes, including all rows below it.
        folded: Whether its children are hidden; None if it has none.
    """

    key: str
    depth: int
    label: str
    variable: Tensor | None
    count: int
    size: int
    folded: bool | None


@dataclass
class _Node:
    label: str
    groups: dict[str, _Node] = field(default_factory=dict)
    variables: list[Tensor] = field(default_factory=list)

    def all(self) -> list[Tensor]:
        return [*self.variables, *(v for node in self.groups.values() for v in node.all())]


class VariableTree:
    """Variables by path, with the slot variables of each below it."""

    def __init__(self, variables: Sequence[Tensor]) -> None:
        paths = {variable.path for variable in variables if not variable.slot_of}
        self._slots: dict[str, list[Tensor]] = {}
        self._root = _Node("")
        for variable in variables:
            if variable.slot_of in paths:
                self._slots.setdefault(variable.slot_of, []).append(variable)
            else:
                self._place(variable)

    def rows(self, is_folded: Callable[[str, bool], bool]) -> list[VariableRow]:
        """Returns the visible rows.

        Args:
            is_folded: Whether a row is folded, by its key and whether it is a variable.
        """
        rows: list[VariableRow] = []
        self._add(self._root, "", 0, is_folded, rows)
        return rows

    def _place(self, variable: Tensor) -> None:
        node = self._root
        parts = variable.path.split("/")
        for part in parts[:-1]:
            node = node.groups.setdefault(part, _Node(part))
        node.variables.append(variable)

    def _add(
        self,
        node: _Node,
        path: str,
        depth: int,
        is_folded: Callable[[str, bool], bool],
        rows: list[VariableRow],
    ) -> None:
        for group in node.groups.values():
            label, inner = _chain(group)
            key = f"{path}/{label}"
            below = [tensor for v in inner.all() for tensor in (v, *self._slots.get(v.path, ()))]
            folded = is_folded(key, False)
            size = sum(variable.size for variable in below)
            rows.append(VariableRow(key, depth, label, None, len(below), size, folded))
            if not folded:
                self._add(inner, key, depth + 1, is_folded, rows)
        for variable in node.variables:
            self._add_variable(variable, depth, is_folded, rows)

    def _add_variable(
        self,
        variable: Tensor,
        depth: int,
        is_folded: Callable[[str, bool], bool],
        rows: list[VariableRow],
    ) -> None:
        slots = self._slots.get(variable.path, [])
        key = variable.name
        folded = is_folded(key, True) if slots else None
        size = variable.size + (sum(slot.size for slot in slots) if folded else 0)
        label = variable.path.rpartition("/")[2]
        rows.append(VariableRow(key, depth, label, variable, len(slots), size, folded))
        if folded is False:
            for slot in slots:
                name = slot.name
                rows.append(VariableRow(name, depth + 1, slot.slot_name, slot, 0, slot.size, None))


def _chain(node: _Node) -> tuple[str, _Node]:
    """Joins groups whose only content is another group."""
    label = node.label
    while not node.variables and len(node.groups) == 1:
        node = next(iter(node.groups.values()))
        label = f"{label}/{node.label}"
    return label, node
