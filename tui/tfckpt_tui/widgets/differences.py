"""The tensors of two checkpoints: how each differs, and by how much where that was read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tfckpt_trainer.bundle.compare import Change, Compared, Difference
from tfckpt_trainer.bundle.index import TensorEntry
from tfckpt_tui import humane
from tfckpt_tui.text import clean
from tfckpt_tui.widgets.columns import Column, choose
from tfckpt_tui.widgets.listing import Listing
from tfckpt_tui.widgets.painting import Line, Span, line, shorten, shorten_middle

_COLUMNS = (
    Column("sign", "", 1, align="<"),
    Column("name", "tensor", 24, align="<", stretch=3),
    Column("difference", "difference", 11, align="<"),
    Column("change", "change", 9),
    Column("norms", "norm", 19, rank=3),
    Column("what", "type and shape", 20, rank=2, align="<", stretch=1),
)
_SIGNS: Mapping[Difference, tuple[str, str, str]] = {
    Difference.ADDED: ("+", "good", "added"),
    Difference.REMOVED: ("−", "bad", "removed"),
    Difference.SHAPE: ("≠", "warn", "other shape"),
    Difference.DTYPE: ("≠", "warn", "other type"),
    Difference.CHANGED: ("~", "calm", "changed"),
    Difference.EQUAL: ("=", "muted", "equal"),
}


class Differences(Listing):
    """What differs; the largest change first as soon as changes are known."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._tensors: Sequence[Compared] = ()
        self._titles: Mapping[str, str] = {}
        self._changes: Mapping[str, Change] = {}
        self._shown: list[Compared] = []
        self._everything = False
        self._is_read = False

    def show_tensors(self, tensors: Sequence[Compared], titles: Mapping[str, str]) -> None:
        """Takes the tensors of both checkpoints, and what people call them."""
        self._tensors, self._titles, self._is_read = tensors, titles, True
        self._update_rows()

    def show_changes(self, changes: Mapping[str, Change]) -> None:
        """Takes how much tensors changed, as far as it is known."""
        if len(changes) != len(self._changes):
            self._changes = changes
            self._update_rows()

    def turn_everything(self) -> None:
        """Shows equal tensors too, or hides them again."""
        self._everything = not self._everything
        self._update_rows()

    def heading(self) -> Sequence[Span]:
        """Returns the title."""
        return (("tensors", "title"),)

    def note(self) -> Sequence[Span]:
        """Returns how many are shown."""
        return ((f"{len(self._shown):,} of {len(self._tensors):,}", "label"),)

    def row_count(self) -> int:
        """Returns how many tensors are shown."""
        return len(self._shown)

    def row_key(self, row: int) -> str:
        """Returns the name of the tensor."""
        return self._shown[row].name

    def head_lines(self, width: int) -> Sequence[Line]:
        """Returns the titles of the columns."""
        return (choose(_COLUMNS, width).head(),) if self._shown else ()

    def empty_lines(self, width: int) -> Sequence[Line]:
        """Returns what stands there while nothing is shown."""
        words = "every tensor is equal; a shows them" if self._is_read else "reading…"
        return (line((shorten(words, width), "muted")),)

    def row_line(self, row: int, width: int) -> Line:
        """Returns one tensor."""
        layout = choose(_COLUMNS, width)
        room = next(size for column, size in layout.columns if column.key == "name")
        one = self._shown[row]
        name = shorten_middle(clean(self._titles.get(one.name, one.name)), room)
        return layout.row(_cells(one, name, self._changes.get(one.name)))

    def _update_rows(self) -> None:
        shown = [
            one
            for one in self._tensors
            if self._everything or one.difference is not Difference.EQUAL
        ]
        if self._changes:
            shown.sort(key=self._place)
        self._shown = shown
        self.rows_changed()
        self.repaint()

    def _place(self, one: Compared) -> tuple[bool, float]:
        change = self._changes.get(one.name)
        if change is None:
            return True, 0.0
        return False, -change.relative if not math.isnan(change.relative) else -math.inf


def _cells(one: Compared, name: str, change: Change | None) -> dict[str, Sequence[Span]]:
    sign, style, word = _SIGNS[one.difference]
    cells: dict[str, Sequence[Span]] = {
        "sign": ((sign, style),),
        "name": ((name, "value"),),
        "difference": ((word + ("?" if one.unknown else ""), style),),
        "what": ((_what(one.before, one.after), "muted"),),
    }
    if change is not None:
        percent = f"{100 * change.relative:.3g} %" if math.isfinite(change.relative) else "from 0"
        before, after = humane.metric(change.norm_before), humane.metric(change.norm_after)
        cells["change"] = ((percent, "bad" if change.not_finite else "strong"),)
        cells["norms"] = ((f"{before} → {after}", "muted"),)
        if change.not_finite:
            cells["norms"] = ((f"{change.not_finite:,} not finite", "bad"),)
    return cells


def _what(before: TensorEntry | None, after: TensorEntry | None) -> str:
    sides = []
    for entry in (before, after):
        if entry is not None:
            shape = "×".join(map(str, entry.shape)) or "scalar"
            sides.append(f"{entry.dtype} {shape}")
    return " → ".join(dict.fromkeys(sides))
