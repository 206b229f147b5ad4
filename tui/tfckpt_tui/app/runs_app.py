"""The list of runs, from which one is opened: what `tfckpt-tui` without a directory shows."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message

from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.app.base_app import BaseApp
from tfckpt_tui.app.widgets.base.keybar import KeyBar, KeyHint
from tfckpt_tui.app.widgets.run.run_list import RunList
from tfckpt_tui.services.launch import form_like
from tfckpt_tui.settings.config import Config
from tfckpt_tui.settings.recent_runs import RunSummary, recent_runs, runs_below, summarize_runs

_LOOK_SECONDS = 2.0


class Looked(Message):
    """All runs were looked at."""

    def __init__(self, found: Sequence[RunSummary], at: float) -> None:
        super().__init__()
        self.found = found
        self.at = at


class RunsApp(BaseApp[Path | LaunchOptions]):
    """Ends with the directory that a person chose, with a run to launch, or with nothing."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "Open", show=False),
        Binding("n", "launch", "New run", show=False),
        Binding("q,escape,ctrl+c", "leave", "Leave", show=False),
    ]

    def __init__(self, below: Path | None, config: Config) -> None:
        """Makes the app.

        Args:
            below: Where runs are looked for, beside the ones that were open lately.
            config: What the person set for all runs.
        """
        super().__init__(config)
        self._below = below
        self._left = threading.Event()

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
        actions = {
            "choose": self.action_choose,
            "launch": self.action_launch,
            "leave": self.action_leave,
        }
        actions[message.action]()

    def action_choose(self) -> None:
        """Ends with the run under the cursor."""
        selected = self.query_one(RunList).selected
        if selected is not None:
            self.exit(selected.root)

    def action_launch(self) -> None:
        """Ends with what a form says; it begins with the options of the run under the cursor."""
        from tfckpt_tui.app.screens.launch import LaunchDialog

        selected = self.query_one(RunList).selected
        form = form_like(RunDirectory(selected.root) if selected is not None else None)

        def answered(options: LaunchOptions | None) -> None:
            if options is not None:
                self.exit(options)

        self.push_screen(LaunchDialog(form, fixed_directory=False), answered)

    def action_leave(self) -> None:
        """Ends with nothing."""
        self.exit()

    def _look(self) -> None:
        while not self._left.is_set():
            now = time.time()
            below = runs_below(self._below) if self._below is not None else []
            self.post_message(Looked(summarize_runs([*recent_runs(), *below], now), now))
            self._left.wait(_LOOK_SECONDS)


_HINTS = (
    KeyHint("choose", "⏎", "open"),
    KeyHint("launch", "n", "new run"),
    KeyHint("leave", "q", "leave", is_last=True),
)
