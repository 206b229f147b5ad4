"""The app that `tfckpt-tui` without a directory opens: a list of runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Input

from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.app.base_app import BaseApp
from tfckpt_tui.app.widgets.base.keybar import KeyBar, KeyHint
from tfckpt_tui.app.widgets.base.search_input import SearchInput
from tfckpt_tui.app.widgets.run.run_list import RunList
from tfckpt_tui.services.runs.account import RunAccount
from tfckpt_tui.services.runs.job_list import JobList
from tfckpt_tui.services.runs.launch_form import form_like
from tfckpt_tui.services.runs.recent_runs import remembered_runs
from tfckpt_tui.services.runs.search import RunSearch
from tfckpt_tui.settings.config import Config

_POLL_SECONDS = 2.0

_PAUSE_FACTOR = 10.0
"""How many times the processor time of a read passes until the next one; runs may be thousands."""

_ANSWER_TIMEOUT_SECONDS = 0.5
"""How long the list waits for directories that do not answer; it shows them when they do."""


class RunsRead(Message):
    """The state of all runs was read."""

    def __init__(self, runs: Sequence[RunAccount], at: float) -> None:
        super().__init__()
        self.runs = runs
        self.at = at


class RunsApp(BaseApp[Path | LaunchOptions]):
    """The list of runs; its result is a run to open, the options of a run to launch, or None."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "open", show=False, tooltip="Opens the selected run."),
        Binding(
            "n",
            "launch",
            "new run",
            show=False,
            tooltip="Launches training in a new directory, with the options of the selected run.",
        ),
        Binding(
            "slash",
            "search",
            "search",
            show=False,
            priority=True,
            tooltip="Shows only runs whose line contains all words.",
        ),
        Binding("question_mark,f1", "help", "help", show=False, tooltip="Shows this help."),
        Binding("q,ctrl+c", "leave", "leave", show=False, tooltip="Closes the list."),
        Binding("escape", "leave_search", "Back", show=False),
    ]

    def __init__(self, below: Path | None, config: Config, jobs: JobList | None = None) -> None:
        """Makes the app.

        Args:
            below: A directory to search for runs; None lists those opened recently, and those of
                all batch jobs of the user.
            config: The configuration of the user.
            jobs: Adds the batch jobs of the user.
        """
        super().__init__(config)
        self._search = RunSearch(below) if below is not None else None
        self._jobs = jobs or JobList()
        self._stopped = threading.Event()

    def compose(self) -> ComposeResult:
        """Makes the list and the keys."""
        yield RunList(id="runs")
        yield SearchInput("part of a path, a state or a strategy", focus_after="#runs")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        """Starts to read the runs in a thread."""
        self.query_one(KeyBar).show_hints(_HINTS)
        self.query_one(RunList).focus()
        threading.Thread(target=self._read_runs, name="runs", daemon=True).start()

    def on_unmount(self) -> None:
        """Stops the thread."""
        self._stopped.set()

    def on_runs_read(self, message: RunsRead) -> None:
        """Shows the runs."""
        # The list is gone while the app ends.
        for shown in self.query(RunList):
            shown.show_runs(message.runs, message.at)

    async def on_key_bar_chosen(self, message: KeyBar.Chosen) -> None:
        """Performs the action of a clicked key."""
        await self.run_action(message.action)

    def action_choose(self) -> None:
        """Opens the selected run."""
        selected = self.query_one(RunList).selected
        if selected is not None:
            self.exit(selected.root)

    def action_launch(self) -> None:
        """Opens a form to launch a run; it starts with the options of the selected run."""
        from tfckpt_tui.app.dialogs.launch import LaunchDialog

        selected = self.query_one(RunList).selected
        form = form_like(RunDirectory(selected.root) if selected is not None else None)

        def answered(options: LaunchOptions | None) -> None:
            if options is not None:
                self.exit(options)

        self.push_screen(LaunchDialog(form, fixed_directory=False), answered)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Passes the key of the search to a field that has the focus."""
        if action == "search" and isinstance(self.focused, Input):
            return False
        return super().check_action(action, parameters)

    def action_search(self) -> None:
        """Opens the search line."""
        self.query_one(SearchInput).open()

    def on_search_input_searched(self, message: SearchInput.Searched) -> None:
        """Shows the runs that match."""
        self.query_one(RunList).search(message.text)

    def action_help(self) -> None:
        """Shows the keys of the list."""
        from tfckpt_tui.app.screens.help import HelpScreen, help_of_keys

        bindings = [
            binding for binding in self.BINDINGS if isinstance(binding, Binding) and binding.tooltip
        ]
        keys = self.screen.active_bindings.keys()
        lines = help_of_keys("the list of runs", bindings, keys, self.size.width)
        self.push_screen(HelpScreen(lines))

    def action_leave_search(self) -> None:
        """Ends the search, or closes the app."""
        if not self.query_one(SearchInput).leave():
            self.exit()

    def action_leave(self) -> None:
        """Closes the app."""
        self.exit()

    def _read_runs(self) -> None:
        # Without Slurm, which may take seconds to answer.
        self._read_once(ask=False)
        while not self._stopped.is_set():
            began = time.process_time()
            self._read_once(ask=True)
            used = time.process_time() - began
            self._stopped.wait(max(_POLL_SECONDS, _PAUSE_FACTOR * used))

    def _read_once(self, *, ask: bool) -> None:
        seconds, search = _ANSWER_TIMEOUT_SECONDS, self._search
        roots = search.find(seconds) if search is not None else remembered_runs()
        others = search is None
        runs = self._jobs.read(roots, with_others=others, ask=ask, seconds=seconds)
        self.post_message(RunsRead(runs, time.time()))


_HINTS = (
    KeyHint("choose", "⏎", "open"),
    KeyHint("launch", "n", "new run"),
    KeyHint("search", "/", "search"),
    KeyHint("help", "?", "help", is_last=True),
    KeyHint("leave", "q", "leave", is_last=True),
)
