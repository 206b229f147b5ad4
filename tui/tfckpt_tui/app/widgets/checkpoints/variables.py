"""The variables of a checkpoint or a file, as a tree with a cursor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from types import MappingProxyType
from typing import ClassVar

from textual.binding import Binding, BindingType

from tfckpt_trainer.bundle.analysis.contents import Role
from tfckpt_trainer.bundle.dtypes import format_shape
from tfckpt_tui.app.widgets.base.columns import Column, Layout
from tfckpt_tui.app.widgets.base.list_pane import ListPane, match_note
from tfckpt_tui.app.widgets.base.styled_text import Span, shorten, shorten_middle
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.formats.variable_tree import Tensor, VariableRow, VariableTree

COLUMNS = (
    Column("name", "variable", 24, align="<", stretch=3),
    Column("dtype", "type", 9, rank=1, align="<"),
    Column("shape", "shape", 14, rank=2),
    Column("size", "size", 8),
    Column("shard", "shard", 5, rank=4),
    Column("role", "what", 14, rank=3, align="<", stretch=1),
)

FILE_COLUMNS = (
    *(column for column in COLUMNS if column.key not in {"shard", "role"}),
    Column("role", "layer", 14, rank=3, align="<", stretch=2),
)
"""The columns of a file, which has no shards and no roles."""

_OPEN_AT_FIRST = 400
"""With more variables, groups are folded at first."""


class Variables(ListPane[VariableRow]):
    """The tree of variables. Folded rows are stored by key."""

    title = "variables"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,l", "fold(False)", "Open", show=False),
        Binding("left,h", "fold(True)", "Close", show=False),
    ]

    def __init__(
        self,
        columns: Sequence[Column] = COLUMNS,
        *,
        id: str | None = None,  # noqa: A002
    ) -> None:
        super().__init__(id=id)
        self.columns = columns
        self._all: tuple[Tensor, ...] = ()
        self._damage: Mapping[str, str] = {}
        self._slot_damage: Set[str] = frozenset()
        self._why_none = "reading…"
        self._tree = VariableTree(())
        self._changed: dict[str, bool] = {}
        self._needle = ""
        self._shown = 0

    @property
    def selected_variable(self) -> Tensor | None:
        """The variable under the cursor; None on a group."""
        return self.selected.variable if self.selected is not None else None

    @property
    def needle(self) -> str:
        """The search text, which the paths of all visible variables contain."""
        return self._needle

    def show_variables(
        self, variables: Sequence[Tensor], damage: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Shows the variables of a checkpoint or a file.

        Args:
            variables: All variables.
            damage: Problems of tensors, by name.
        """
        self._all, self._damage = tuple(variables), damage
        self._slot_damage = {v.slot_of for v in variables if v.slot_of and v.name in damage}
        self._why_none = "it has no variables"
        self.search(self._needle)

    def show_failure(self, what: str) -> None:
        """Shows that the checkpoint or the file cannot be read, because `what` cannot."""
        self._why_none = f"contents unknown: {what} cannot be read"
        self.repaint()

    def search(self, text: str) -> None:
        """Shows only variables with `text` in their path."""
        self._needle = text
        matches = [variable for variable in self._all if variable.matches(text)]
        self._shown = len(matches)
        self._tree = VariableTree(matches)
        self._update_rows()

    def note(self) -> Sequence[Span]:
        """Returns the number of variables, or of matches."""
        if not self._needle:
            return ((f"{len(self._all):,}", "value"),)
        return match_note(self._shown, len(self._all), self._needle)

    def row_key(self, row: int) -> str:
        """Returns the key of the row."""
        return self.rows[row].key

    def why_empty(self) -> str:
        """Returns a message if there are no rows."""
        return "nothing matches" if self._needle and self._all else self._why_none

    def cells(self, row: VariableRow, layout: Layout) -> Mapping[str, Sequence[Span]]:
        """Returns a group or a variable."""
        cells = _cells(row, layout.width_of("name"))
        damaged = self._damaged_part(row)
        if damaged:
            cells["name"] = (*cells["name"][:-1], (cells["name"][-1][0], "bad"))
            cells["role"] = ((damaged, "bad"),)
        return cells

    def _damaged_part(self, row: VariableRow) -> str:
        variable = row.variable
        if variable is None:
            return ""
        if variable.name in self._damage:
            return "damaged"
        return "slot damaged" if row.folded and variable.path in self._slot_damage else ""

    def action_fold(self, folded: bool) -> None:
        """Folds or unfolds the selected row; folding a leaf moves to its group."""
        row = self.selected
        if row is None:
            return
        if row.folded is not None and row.folded is not folded:
            self._changed[row.key] = folded
            self._update_rows()
        elif folded:
            above = [r for r in range(self.cursor) if self.rows[r].depth < row.depth]
            if above:
                self.move_to(above[-1])

    def toggle(self) -> bool:
        """Folds or unfolds the selected group; returns whether a group is selected."""
        row = self.selected
        if row is None or row.variable is not None or row.folded is None:
            return False
        self.action_fold(not row.folded)
        return True

    def _update_rows(self) -> None:
        many = self._shown > _OPEN_AT_FIRST

        def is_folded(key: str, is_variable: bool) -> bool:
            at_first = not self._needle and (is_variable or (many and key.count("/") > 1))
            return self._changed.get(key, at_first)

        self.show_rows(self._tree.rows(is_folded))


def _cells(row: VariableRow, room: int) -> dict[str, Sequence[Span]]:
    fold = "  " if row.folded is None else ("▸ " if row.folded else "▾ ")
    indent = "  " * row.depth
    label = shorten_middle(clean(row.label), max(4, room - len(indent) - 2))
    name: list[Span] = [(indent + fold, "label")]
    size = (units.size(row.size), "value")
    if row.variable is None:
        count = units.count(row.count, "variable")
        return {
            "name": (*name, (label, "title")),
            "size": (size,),
            "role": ((count, "muted"),),
        }
    tensor = row.variable
    return {
        "name": (*name, (label, "value")),
        "dtype": ((tensor.dtype, "label"),),
        "shape": ((shorten(format_shape(tensor.shape), 14), "value"),),
        "size": (size,),
        "shard": ((tensor.shard, "muted"),),
        "role": ((_role(row), _STYLES.get(tensor.what, "muted")),),
    }


_STYLES: Mapping[str, str] = {
    Role.WEIGHT: "calm",
    Role.STEP: "good",
    Role.INPUT: "accent",
    Role.RANDOM: "accent",
}


def _role(row: VariableRow) -> str:
    assert row.variable is not None
    if row.folded:
        return f"{row.variable.what}, {units.count(row.count, 'slot')}"
    return clean(row.variable.what)
