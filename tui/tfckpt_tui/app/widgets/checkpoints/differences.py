"""The differences between the tensors of two checkpoints."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rich.cells import cell_len

from tfckpt_trainer.bundle.analysis.compare import Difference, TensorChange, TensorComparison
from tfckpt_trainer.bundle.dtypes import format_tensor
from tfckpt_trainer.bundle.index import TensorEntry
from tfckpt_tui.app.widgets.base.columns import GAP, Column, Layout, choose
from tfckpt_tui.app.widgets.base.list_pane import ListPane
from tfckpt_tui.app.widgets.base.styled_text import Line, Span, line, shorten, shorten_middle
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.services.checkpoints.compare import Measured, worst_first

_SIGN = Column("sign", "", 1, align="<")
_NAME = Column("name", "tensor", 24, align="<")
_DIFFERENCE = Column("difference", "difference", 11, align="<")
_CHANGE = Column("change", "change", 10)
_NORMS = Column("norms", "norm", 19, rank=3)
_WHAT = Column("what", "type and shape", 14, rank=2, align="<", stretch=1)
_FIXED = sum(column.width + GAP for column in (_SIGN, _DIFFERENCE, _CHANGE))
_SIGNS: Mapping[Difference, tuple[str, str, str]] = {
    Difference.ADDED: ("+", "good", "added"),
    Difference.REMOVED: ("−", "bad", "removed"),
    Difference.SHAPE: ("≠", "warn", "other shape"),
    Difference.DTYPE: ("≠", "warn", "other type"),
    Difference.CHANGED: ("~", "calm", "changed"),
    Difference.EQUAL: ("=", "muted", "equal"),
}


class Differences(ListPane):
    """Tensors that differ, the largest change first once changes are measured."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._tensors: Sequence[TensorComparison] = ()
        self._titles: Mapping[str, str] = {}
        self._damage: Mapping[str, str] = {}
        self._longest = 0
        self._changes: Mapping[str, TensorChange] = {}
        self._shown: list[TensorComparison] = []
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
        changes = {one.name: one.change for one in measured if one.change is not None}
        unread = {one.name: one.problem for one in measured if one.problem}
        if len(changes) != len(self._changes) or not unread.keys() <= self._damage.keys():
            self._changes, self._damage = changes, {**self._damage, **unread}
            self._update_rows()

    def toggle_equal(self) -> None:
        """Shows or hides equal tensors."""
        self._everything = not self._everything
        self._update_rows()

    def heading(self) -> Sequence[Span]:
        """Returns the title."""
        return (("tensors", "title"),)

    def note(self) -> Sequence[Span]:
        """Returns the number of visible tensors."""
        return ((f"{len(self._shown):,} of {len(self._tensors):,}", "label"),)

    def row_count(self) -> int:
        """Returns the number of visible tensors."""
        return len(self._shown)

    def row_key(self, row: int) -> str:
        """Returns the name of the tensor."""
        return self._shown[row].name

    def head_lines(self, width: int) -> Sequence[Line]:
        """Returns the headings of the columns."""
        return (self._layout(width).head(),) if self._shown else ()

    def empty_lines(self, width: int) -> Sequence[Line]:
        """Returns a message if there are no rows."""
        words = "all tensors are equal; press a to show them" if self._is_read else "reading…"
        return (line((shorten(words, width), "muted")),)

    def row_line(self, row: int, width: int) -> Line:
        """Returns one tensor."""
        layout = self._layout(width)
        room = next(size for column, size in layout.columns if column.key == "name")
        one = self._shown[row]
        cells = _cells(one, shorten_middle(self._title(one), room), self._changes.get(one.name))
        if one.name in self._damage:
            cells["difference"] = (("damaged", "bad"),)
        return layout.row(cells)

    def _title(self, one: TensorComparison) -> str:
        return clean(self._titles.get(one.name, one.name))

    def _layout(self, width: int) -> Layout:
        """Returns the columns, with names as wide as they need: cut ones look the same."""
        needed = max(_NAME.width, min(self._longest, width - _FIXED))
        name = replace(_NAME, width=needed)
        return choose((_SIGN, name, _DIFFERENCE, _CHANGE, _NORMS, _WHAT), width)

    def _update_rows(self) -> None:
        shown = [
            one
            for one in self._tensors
            if self._everything
            or one.difference is not Difference.EQUAL
            or one.name in self._damage
        ]
        if self._changes or self._damage:
            shown.sort(key=lambda one: worst_first(self._damage, self._changes, one))
        self._shown = shown
        self._longest = max((cell_len(self._title(one)) for one in shown), default=0)
        self.rows_changed()
        self.repaint()


def _cells(
    one: TensorComparison, name: str, change: TensorChange | None
) -> dict[str, Sequence[Span]]:
    sign, style, word = _SIGNS[one.difference]
    cells: dict[str, Sequence[Span]] = {
        "sign": ((sign, style),),
        "name": ((name, "value"),),
        "difference": ((word + ("?" if one.unknown else ""), style),),
        "what": ((_what(one.before, one.after), "muted"),),
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
