"""The app that shows a crash of another one."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static

from tfckpt_tui.app.base_app import BaseApp
from tfckpt_tui.app.crash import Crash
from tfckpt_tui.app.widgets.base.styled_text import Span, lines_to_content
from tfckpt_tui.formats.text import clean, clean_lines
from tfckpt_tui.settings.config import Config


class CrashApp(BaseApp[bool]):
    """Shows a crash; returns whether to open the app again."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r,enter", "leave(True)", "Open again", show=False),
        Binding("q,escape,ctrl+c", "leave(False)", "Leave", show=False, priority=True),
    ]

    def __init__(self, crash: Crash, config: Config) -> None:
        super().__init__(config)
        self._reported = crash

    def compose(self) -> ComposeResult:
        """Makes the text, which scrolls."""
        with VerticalScroll():
            yield Static(lines_to_content(_lines(self._reported)))

    def on_mount(self) -> None:
        """Focuses the text, so that the arrows scroll."""
        self.query_one(VerticalScroll).focus()

    def action_leave(self, again: bool) -> None:
        """Closes the app."""
        self.exit(again)


def _lines(crash: Crash) -> list[tuple[Span, ...]]:
    where: tuple[Span, ...] = (("The report could not be written; copy the text below.", ""),)
    if crash.report is not None:
        where = ((clean(str(crash.report)), "strong"),)
    return [
        (("The app failed. ", "bad"), ("Training continues: the run is not affected.", "strong")),
        (),
        ((crash.summary, "value"),),
        (),
        where,
        (("It contains no data of the run. Please send it, with what you did before.", "muted"),),
        (),
        (("r", "key"), ("  open the app again", "")),
        (("q", "key"), ("  leave; `tfckpt-tui status` and the other commands still work", "")),
        (),
        *(((text, "muted"),) for text in clean_lines(crash.trace)),
    ]
