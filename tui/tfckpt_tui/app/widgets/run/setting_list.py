"""The list of settings: value, choices, and whether the file sets it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from tfckpt_tui.app.widgets.base.columns import GAP, Column, Layout, choose
from tfckpt_tui.app.widgets.base.list_pane import ListPane
from tfckpt_tui.app.widgets.base.styled_text import Line, Span, line
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


class SettingList(ListPane):
    """All settings, with a cursor."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._settings: Sequence[Setting] = ()

    @property
    def selected(self) -> Setting | None:
        """The setting under the cursor."""
        return self._settings[self.cursor] if self._settings else None

    def show_settings(self, settings: Sequence[Setting]) -> None:
        """Shows the settings."""
        self._settings = settings
        self.rows_changed()
        self.repaint()

    def heading(self) -> Sequence[Span]:
        """Returns the title."""
        return (("settings", "title"),)

    def row_count(self) -> int:
        """Returns the number of settings."""
        return len(self._settings)

    def row_key(self, row: int) -> str:
        """Returns the key of the setting."""
        return self._settings[row].key

    def head_lines(self, width: int) -> Sequence[Line]:
        """Returns the titles of the columns."""
        return (self._layout(width).head(),)

    def _layout(self, width: int) -> Layout:
        """Returns the columns; the values are beside the longest label."""
        longest = max((cell_len(one.title) for one in self._settings), default=0)
        room = width - _VALUE_WIDTH - GAP
        if room - GAP - _SOURCE_WIDTH >= longest:
            room -= GAP + _SOURCE_WIDTH
        return choose(
            (
                Column("title", "setting", max(1, min(longest, room)), align="<"),
                Column("value", "value", _VALUE_WIDTH, align="<"),
                Column("source", "from", _SOURCE_WIDTH, rank=1, align="<"),
            ),
            width,
        )

    def row_line(self, row: int, width: int) -> Line:
        """Returns one setting."""
        setting = self._settings[row]
        can_change = len(setting.values) > 1
        value = clean(_in_words(setting.value))
        shown = f"◂ {value} ▸" if can_change else f"  {value}"
        return self._layout(width).row(
            {
                "title": ((clean(setting.title), "value"),),
                "value": ((shown, "strong" if can_change else "muted"),),
                "source": (("the file" if setting.is_own else "default", "muted"),),
            }
        )

    def empty_lines(self, width: int) -> Sequence[Line]:
        """Returns a message while settings are read."""
        del width
        return (line(("reading …", "muted")),)


def _in_words(value: object) -> str:
    if value is None:
        return "off"
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g} s" if isinstance(value, float) else str(value)
