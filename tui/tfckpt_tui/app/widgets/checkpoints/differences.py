"""The differences between the tensors of two checkpoints."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec.structs import replace
from rich.cells import cell_len

from tfckpt_trainer.bundle.analysis.compare import TensorChange, TensorComparison, TensorDifference
from tfckpt_trainer.bundle.dtypes import format_tensor
from tfckpt_trainer.bundle.index import TensorEntry
from tfckpt_tui.app.widgets.base.columns import GAP, Column, Layout, choose
from tfckpt_tui.app.widgets.base.list_pane import ListPane
from tfckpt_tui.app.widgets.base.styled_text import Span, shorten_middle
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.services.checkpoints.compare import Measured, worst_first

_COLUMNS = (
    Column("sign", "", 1, align="<"),
    Column("name", "tensor", 24, align="<"),
    Column("difference", "difference", 11, align="<"),
    Column("change", "change", 10),
    Column("norms", "norm", 19, rank=3),
    Column("what", "type and shape", 14, rank=2, align="<", stretch=1),
)
_FIXED = sum(column.width + GAP for column in _COLUMNS if not column.rank and column.key != "name")
_SIGNS: Mapping[TensorDifference, tuple[str, str, str]] = {
    TensorDifference.ADDED: ("+", "good", "added"),
    TensorDifference.REMOVED: ("−", "bad", "removed"),
    TensorDifference.SHAPE: ("≠", "warn", "other shape"),
    TensorDifference.DTYPE: ("≠", "warn", "other type"),
    TensorDifference.CHANGED: ("~", "calm", "changed"),
    TensorDifference.EQUAL: ("=", "muted", "equal"),
}


class Differences(ListPane[TensorComparison]):
    """Tensors that differ, the largest change first once changes are measured."""

    title = "tensors"
    columns = _COLUMNS

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._tensors: Sequence[TensorComparison] = ()
        self._titles: Mapping[str, str] = {}
        self._damage: Mapping[str, str] = {}
        self._longest = 0
        self._changes: Mapping[str, TensorChange] = {}
        self._everything = False
        self._is_read = False

    def show_tensors(
        self,
        tensors: Sequence[TensorComparison],
        titles: Mapping[str, str],
        damage: Mapping[str, str],
    ) -> None:
        """Shows the tensors of both checkpoints.

        Args:
            tensors: The compared tensors.
            titles: Paths of variables, by the name of their tensor.
            damage: Problems of tensors, by name.
        """
        self._tensors, self._titles, self._is_read = tensors, titles, True
        self._damage = damage
        self._update_rows()

    def show_measured(self, measured: Sequence[Measured]) -> None:
        """Shows how much tensors changed, as far as they were measured."""
        changes = {tensor.name: tensor.change for tensor in measured if tensor.change is not None}
        unread = {tensor.name: tensor.problem for tensor in measured if tensor.problem}
        if len(changes) != len(self._changes) or not unread.keys() <= self._damage.keys():
            self._changes, self._damage = changes, {**self._damage, **unread}
            self._update_rows()

    def toggle_equal(self) -> None:
        """Shows or hides equal tensors."""
        self._everything = not self._everything
        self._update_rows()

    def note(self) -> Sequence[Span]:
        """Returns the number of visible tensors."""
        return ((f"{self.row_count():,} of {len(self._tensors):,}", "label"),)

    def row_key(self, row: int) -> str:
        """Returns the name of the tensor."""
        return self.rows[row].name

    def why_empty(self) -> str:
        """Returns a message if there are no rows."""
        return "all tensors are equal; press a to show them" if self._is_read else "reading…"

    def cells(self, row: TensorComparison, layout: Layout) -> Mapping[str, Sequence[Span]]:
        """Returns one tensor."""
        name = shorten_middle(self._path(row), layout.width_of("name"))
        cells = _cells(row, name, self._changes.get(row.name))
        if row.name in self._damage:
            cells["difference"] = (("damaged", "bad"),)
        return cells

    def _path(self, row: TensorComparison) -> str:
        return clean(self._titles.get(row.name, row.name))

    def column_layout(self, width: int) -> Layout:
        """Returns the columns, with names as wide as they need: cut ones look the same."""
        sign, name, *others = self.columns
        needed = max(name.width, min(self._longest, width - _FIXED))
        return choose((sign, replace(name, width=needed), *others), width)

    def _update_rows(self) -> None:
        shown = [
            tensor
            for tensor in self._tensors
            if self._everything
            or tensor.difference is not TensorDifference.EQUAL
            or tensor.name in self._damage
        ]
        if self._changes or self._damage:
            shown.sort(key=lambda tensor: worst_first(self._damage, self._changes, tensor))
        self._longest = max((cell_len(self._path(tensor)) for tensor in shown), default=0)
        self.show_rows(shown)


def _cells(
    tensor: TensorComparison, name: str, change: TensorChange | None
) -> dict[str, Sequence[Span]]:
    sign, style, word = _SIGNS[tensor.difference]
    cells: dict[str, Sequence[Span]] = {
        "sign": ((sign, style),),
        "name": ((name, "value"),),
        "difference": ((word + ("?" if tensor.unknown else ""), style),),
        "what": ((_what(tensor.before, tensor.after), "muted"),),
    }
    if change is not None:
        percent = f"{100 * change.relative:.3g} %" if math.isfinite(change.relative) else "from 0"
        moved = "not finite" if change.not_finite else percent
        before, after = units.metric(change.norm_before), units.metric(change.norm_after)
        cells["change"] = ((moved, "bad" if change.not_finite else "strong"),)
        cells["norms"] = ((f"{before} → {after}", "muted"),)
        if change.not_finite:
            cells["norms"] = ((f"{change.not_finite:,} not finite", "bad"),)
    return cells


def _what(before: TensorEntry | None, after: TensorEntry | None) -> str:
    sides = [
        format_tensor(entry.dtype, entry.shape) for entry in (before, after) if entry is not None
    ]
    return " → ".join(dict.fromkeys(sides))
