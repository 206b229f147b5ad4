"""The base of dialogs with a list, which the arrows scroll whatever has the focus."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from tfckpt_tui.app.dialogs.dialog import AnswerT, Dialog
from tfckpt_tui.app.widgets.base.dashboard_layout import SHORT
from tfckpt_tui.app.widgets.base.list_pane import ListPane
from tfckpt_tui.monitor.snapshot import RunSnapshot


class ListDialog(Dialog[AnswerT]):
    """A dialog with one list, in as many lines as the terminal has."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "scroll_list(-1)", show=False, priority=True),
        Binding("down", "scroll_list(1)", show=False, priority=True),
        Binding("pageup", "scroll_list(-8)", show=False),
        Binding("pagedown", "scroll_list(8)", show=False),
    ]

    def __init__(self, snapshot: RunSnapshot) -> None:
        super().__init__(snapshot)
        self.add_class("-large", update=False)
        self.VERTICAL_BREAKPOINTS = [(0, "-short"), (SHORT, "-tall")]

    def action_scroll_list(self, rows: int) -> None:
        """Scrolls the list, whatever has the focus."""
        self.query_one("#plan", ListPane).scroll_rows(rows)
