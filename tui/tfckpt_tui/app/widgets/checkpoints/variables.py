"""The variables of a checkpoint, as a tree with a cursor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import ClassVar

from textual.binding import Binding, BindingType

from tfckpt_trainer.bundle.analysis.contents import Role, Variable
from tfckpt_trainer.bundle.dtypes import format_shape
from tfckpt_tui.app.widgets.base.columns import Column, choose
from tfckpt_tui.app.widgets.base.list_pane import ListPane
from tfckpt_tui.app.widgets.base.styled_text import Line, Span, line, shorten, shorten_middle
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.formats.variable_tree import VariableRow, VariableTree
from tfckpt_tui.services.inspect import matching

_COLUMNS = (
    Column("name", "variable", 24, align="<", stretch=3),
    Column("dtype", "type", 9, rank=1, align="<"),
    Column("shape", "shape", 14, rank=2),
    Column("size", "size", 8),
    Column("shard", "shard", 5, rank=4),
    Column("role", "what", 14, rank=3, align="<", stretch=1),
)

_OPEN_AT_FIRST = 400
"""With more variables, groups are folded at first."""


class Variables(ListPane):
    """The tree of variables. Folded rows are stored by key."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,l", "fold(False)", "Open", show=False),
        Binding("left,h", "fold(True)", "Close", show=False),
    ]

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._all: tuple[Variable, ...] = ()
        self._damage: Mapping[str, str] = {}
        self._slot_damage: Set[str] = frozenset()
        self._why_none = "reading…"
        self._tree = VariableTree(())
        self._rows: list[VariableRow] = []
        self._changed: dict[str, bool] = {}
        self._needle = ""
        self._shown = 0

    @property
    def selected(self) -> Variable | None:
        """The variable under the cursor; None on a group."""
        return self._rows[self.cursor].variable if self._rows else None

    @property
    def needle(self) -> str:
        """The search text, which the paths of all visible variables contain."""
        return self._needle

    def show_variables(self, variables: Sequence[Variable], damage: Mapping[str, str]) -> None:
        """Shows the variables of a checkpoint.

        Args:
            variables: All variables.
            damage: Problems of tensors, by name.
        """
        self._all, self._damage = tuple(variables), damage
        self._slot_damage = {v.slot_of for v in variables if v.slot_of and v.entry.name in damage}
        self._why_none = "the checkpoint has no variables"
        self.search(self._needle)

    def show_failure(self) -> None:
        """Shows that the checkpoint cannot be read."""
        self._why_none = "contents unknown: the index cannot be read"
        self.repaint()

    def search(self, text: str) -> None:
        """Shows only variables with `text` in their path."""
        self._needle = text
        found = matching(self._all, text) if text else self._all
        self._shown = len(found)
        self._tree = VariableTree(found)
        self._update_rows()

    def heading(self) -> Sequence[Span]:
        """Returns the title."""
        return (("variables", "title"),)

    def note(self) -> Sequence[Span]:
        """Returns the number of variables, or of matches."""
        if not self._needle:
            return ((f"{len(self._all):,}", "value"),)
        found = f"{self._shown:,} of {len(self._all):,} match "
        return ((found, "label"), (clean(self._needle), "accent"))

    def row_count(self) -> int:
        """Returns the number of visible rows."""
        return len(self._rows)

    def row_key(self, row: int) -> str:
        """Returns the key of the row."""
        return self._rows[row].key

    def head_lines(self, width: int) -> Sequence[Line]:
        """Returns the headings of the columns."""
        return (choose(_COLUMNS, width).head(),) if self._rows else ()

    def empty_lines(self, width: int) -> Sequence[Line]:
        """Returns a message if there are no rows."""
        words = "nothing matches" if self._needle and self._all else self._why_none
        return (line((shorten(words, width), "muted")),)

    def row_line(self, row: int, width: int) -> Line:
        """Returns a group or a variable."""
        layout = choose(_COLUMNS, width)
        shown = self._rows[row]
        room = next(size for column, size in layout.columns if column.key == "name")
        cells = _cells(shown, room)
        damaged = self._damaged_part(shown)
        if damaged:
            cells["name"] = (*cells["name"][:-1], (cells["name"][-1][0], "bad"))
            cells["role"] = ((damaged, "bad"),)
        return layout.row(cells)

    def _damaged_part(self, row: VariableRow) -> str:
        variable = row.variable
        if variable is None:
            return ""
        if variable.entry.name in self._damage:
            return "damaged"
        return "slot damaged" if row.folded and variable.path in self._slot_damage else ""

    def action_fold(self, folded: bool) -> None:
        """Folds or unfolds the selected row; folding a leaf moves to its group."""
        if not self._rows:
            return
        row = self._rows[self.cursor]
        if row.folded is not None and row.folded is not folded:
            self._changed[row.key] = folded
            self._update_rows()
        elif folded:
            above = [r for r in range(self.cursor) if self._rows[r].depth < row.depth]
            if above:
                self.move_to(above[-1])

    def toggle(self) -> bool:
        """Folds or unfolds the selected group; returns whether a group is selected."""
        row = self._rows[self.cursor] if self._rows else None
        if row is None or row.variable is not None or row.folded is None:
            return False
        self.action_fold(not row.folded)
        return True

    def _update_rows(self) -> None:
        many = self._shown > _OPEN_AT_FIRST

        def is_folded(key: str, is_variable: bool) -> bool:
            at_first = not self._needle and (is_variable or (many and key.count("/") > 1))
            return self._changed.get(key, at_first)

        self._rows = self._tree.rows(is_folded)
        self.rows_changed()
        self.repaint()


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
    entry = row.variable.entry
    return {
        "name": (*name, (label, "value")),
        "dtype": ((entry.dtype, "label"),),
        "shape": ((shorten(format_shape(entry.shape), 14), "value"),),
        "size": (size,),
        "shard": (("parts" if entry.slices else str(entry.shard), "muted"),),
        "role": ((_role(row), _STYLES.get(row.variable.role, "muted")),),
    }


_STYLES = {Role.WEIGHT: "calm", Role.STEP: "good", Role.INPUT: "accent", Role.RANDOM: "accent"}


def _role(row: VariableRow) -> str:
    assert row.variable is not None
    if row.folded:
        return f"{row.variable.role.value}, {units.count(row.count, 'slot')}"
    return row.variable.role.value
