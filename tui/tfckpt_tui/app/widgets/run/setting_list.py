"""The list of settings: value, choices, and whether the file sets it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len

from tfckpt_tui.app.widgets.base.columns import GAP, Column, Layout, choose
from tfckpt_tui.app.widgets.base.list_pane import ListPane
from tfckpt_tui.app.widgets.base.styled_text import Span
from tfckpt_tui.formats.text import clean

_VALUE_WIDTH, _SOURCE_WIDTH = 23, 8


@dataclass(frozen=True)
class Setting:
    """One row.

    Attributes:
        section: The section of the file.
        name: The name in this section.
        title: What it does.
        values: All possible values; a single one cannot be changed.
        value: The current value.
        is_own: Whether the file sets it.
    """

    section: str
    name: str
    title: str
    values: tuple[object, ...]
    value: object
    is_own: bool = False

    @property
    def key(self) -> str:
        """A key that is unique for each setting."""
        return f"{self.section}.{self.name}"

    def turned(self, places: int) -> object:
        """Returns the value `places` further; wraps around at the end."""
        place = self.values.index(self.value) if self.value in self.values else 0
        return self.values[(place + places) % len(self.values)]


class SettingList(ListPane[Setting]):
    """All settings, with a cursor."""

    title = "settings"
    columns = (
        Column("title", "setting", 1, align="<"),
        Column("value", "value", _VALUE_WIDTH, align="<"),
        Column("source", "from", _SOURCE_WIDTH, rank=1, align="<"),
    )

    def row_key(self, row: int) -> str:
        """Returns the key of the setting."""
        return self.rows[row].key

    def column_layout(self, width: int) -> Layout:
        """Returns the columns; the values are beside the longest label."""
        longest = max((cell_len(setting.title) for setting in self.rows), default=0)
        room = width - _VALUE_WIDTH - GAP
        if room - GAP - _SOURCE_WIDTH >= longest:
            room -= GAP + _SOURCE_WIDTH
        title, *others = self.columns
        return choose((replace(title, width=max(1, min(longest, room))), *others), width)

    def cells(self, row: Setting, layout: Layout) -> Mapping[str, Sequence[Span]]:
        """Returns one setting."""
        del layout
        can_change = len(row.values) > 1
        value = clean(_in_words(row.value))
        shown = f"◂ {value} ▸" if can_change else f"  {value}"
        return {
            "title": ((clean(row.title), "value"),),
            "value": ((shown, "strong" if can_change else "muted"),),
            "source": (("the file" if row.is_own else "default", "muted"),),
        }


def _in_words(value: object) -> str:
    if value is None:
        return "off"
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g} s" if isinstance(value, float) else str(value)
