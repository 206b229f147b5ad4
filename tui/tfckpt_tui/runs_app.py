"""The list of runs, from which one is opened: what `tfckpt-tui` without a directory shows."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message

from tfckpt_tui.runs import RunGlance, glances, recent_runs, runs_below
from tfckpt_tui.themes import THEMES
from tfckpt_tui.widgets.keybar import KeyBar, KeyHint
from tfckpt_tui.widgets.run_list import RunList

_LOOK_SECONDS = 2.0


class Looked(Message):
    """All runs were looked at."""

    def __init__(self, found: Sequence[RunGlance], at: float) -> None:
        super().__init__()
        self.found = found
        self.at = at


class RunsApp(App[Path]):
    """Ends with the directory of the run that a person chose, or with nothing."""

    CSS_PATH = "app.tcss"
    TITLE = "tfckpt-tui"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "Open", show=False, priority=True),
        Binding("q,escape,ctrl+c", "leave", "Leave", show=False),
    ]

    def __init__(self, below: Path | None, theme: str) -> None:
        """Makes the app.

        Args:
            below: Where runs are looked for, beside the ones that were open lately.
            theme: Name of its colours.
        """
        super().__init__()
        self._below = below
        self._left = threading.Event()
        for known in THEMES:
            self.register_theme(known)
        self.theme = theme

    def compose(self) -> ComposeResult:
        """Makes the list and the keys."""
        yield RunList(id="runs")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        """Begins to look; the list is there at once."""
        self.query_one(KeyBar).show_hints(_HINTS)
        self.query_one(RunList).focus()
        threading.Thread(target=self._look, name="runs", daemon=True).start()

    def on_unmount(self) -> None:
        """Ends the looking."""
        self._left.set()

    def on_looked(self, message: Looked) -> None:
        """Shows what was found."""
        self.query_one(RunList).show_runs(message.found, message.at)

    def on_key_bar_chosen(self, message: KeyBar.Chosen) -> None:
        """Does what a clicked key does."""
        if message.action == "choose":
            self.action_choose()
        else:
            self.exit()

    def action_choose(self) -> None:
        """Ends with the run under the cursor."""
        selected = self.query_one(RunList).selected
        if selected is not None:
            self.exit(selected.root)

    def action_leave(self) -> None:
        """Ends with nothing."""
        self.exit()

    def _look(self) -> None:
        while not self._left.is_set():
            now = time.time()
            below = runs_below(self._below) if self._below is not None else []
            self.post_message(Looked(glances([*recent_runs(), *below], now), now))
            self._left.wait(_LOOK_SECONDS)


_HINTS = (
    KeyHint("choose", "⏎", "open"),
    KeyHint("leave", "q", "leave", is_last=True),
)
