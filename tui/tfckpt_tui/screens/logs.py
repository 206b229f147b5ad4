"""What the processes of the run print: one tab each, followed, searched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Input

from tfckpt_tui.log_tail import SUPERVISOR
from tfckpt_tui.snapshot import RunSnapshot
from tfckpt_tui.widgets.keybar import KeyBar, KeyHint
from tfckpt_tui.widgets.log_view import LogTabs, LogView

_POLL_SECONDS = 0.5


class LogsScreen(Screen[None]):
    """Logs of all workers and of the supervisor."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,l", "back", "Back", show=False),
        Binding("right,tab", "turn(1)", "Next log", show=False, priority=True),
        Binding("left,shift+tab", "turn(-1)", "Previous log", show=False, priority=True),
        Binding("f", "follow", "Follow", show=False),
        Binding("slash", "search", "Search", show=False),
        Binding("n", "match(1)", "Next match", show=False),
        Binding("N", "match(-1)", "Previous match", show=False),
    ]

    def __init__(
        self, snapshot: RunSnapshot | None, ask: Callable[[str], None], worker: int = 0
    ) -> None:
        """Makes the screen.

        Args:
            snapshot: Says which workers there are.
            ask: Asks for new lines of the log with this name; must not wait for them.
            worker: Whose log is shown first.
        """
        super().__init__()
        self._snapshot = snapshot
        self._ask = ask
        self._views: dict[str, LogView] = {}
        self._names = _log_names(snapshot)
        first = f"worker {worker}"
        self._shown = first if first in self._names else self._names[0]

    def compose(self) -> ComposeResult:
        """Makes tabs, the log, the search line and the keys."""
        yield LogTabs(id="log-tabs")
        yield LogView(id="log")
        yield Input(placeholder="search", id="log-search")
        yield KeyBar(id="log-keys")

    def on_mount(self) -> None:
        """Shows the first log and begins to follow it."""
        self.query_one("#log-search").display = False
        self.query_one(KeyBar).show_hints(_HINTS)
        self.query_one(LogView).focus()
        self._update_tabs()
        self.set_interval(_POLL_SECONDS, self._poll)
        self._poll()

    def show(self, snapshot: RunSnapshot) -> None:
        """Takes a newer snapshot: workers may have come."""
        self._snapshot = snapshot
        names = _log_names(snapshot)
        if names != self._names and self.is_mounted:
            self._names = names
            self._update_tabs()

    def add(self, log: str, lines: Sequence[str] | None) -> None:
        """Takes new lines of a log; None says that it is not there."""
        if self.is_mounted:
            self.query_one(LogView).add(log, lines)
            self._update_tabs()

    def action_back(self) -> None:
        """Ends a search, or closes the screen."""
        field = self.query_one("#log-search", Input)
        if field.display:
            self._close_search(field, "")
        else:
            self.dismiss()

    def action_turn(self, places: int) -> None:
        """Shows the next or the previous log."""
        place = self._names.index(self._shown) if self._shown in self._names else 0
        self._shown = self._names[(place + places) % len(self._names)]
        self._update_tabs()
        self._poll()

    def action_follow(self) -> None:
        """Switches following on or off."""
        view = self.query_one(LogView)
        view.follow(not view.is_following)
        self._update_tabs()

    def action_search(self) -> None:
        """Opens the search line."""
        field = self.query_one("#log-search", Input)
        field.display = True
        field.focus()

    def action_match(self, direction: int) -> None:
        """Goes to the next or the previous match."""
        self.query_one(LogView).go_to_match(direction)
        self._update_tabs()

    @on(Input.Changed, "#log-search")
    def _search(self, event: Input.Changed) -> None:
        self.query_one(LogView).search(event.value)
        self._update_tabs()

    @on(Input.Submitted, "#log-search")
    def _keep_search(self, event: Input.Submitted) -> None:
        self._close_search(event.input, event.value)

    @on(LogTabs.Chosen)
    def _choose(self, event: LogTabs.Chosen) -> None:
        self._shown = event.log
        self._update_tabs()
        self._poll()

    @on(LogView.Scrolled)
    def _note_following(self) -> None:
        self._update_tabs()

    @on(KeyBar.Chosen)
    async def _press(self, event: KeyBar.Chosen) -> None:
        event.stop()
        await self.run_action(event.action)

    def _close_search(self, field: Input, keep: str) -> None:
        view = self.query_one(LogView)
        view.search(keep)
        field.display = False
        view.focus()
        self._update_tabs()

    def _poll(self) -> None:
        self._ask(self._shown)

    def _update_tabs(self) -> None:
        view = self.query_one(LogView)
        view.turn_to(self._shown)
        self.query_one(LogTabs).show_tabs(self._names, self._shown, view.describe())


def _log_names(snapshot: RunSnapshot | None) -> list[str]:
    if snapshot is None:
        return ["worker 0", SUPERVISOR]
    count = len(snapshot.workers)
    if snapshot.info is not None:
        count = max(count, snapshot.info.worker_count)
    names = [f"worker {index}" for index in range(max(1, count))]
    return [*names, SUPERVISOR] if snapshot.supervisor is not None or snapshot.ours else names


_HINTS = (
    KeyHint("turn(1)", "→", "next log"),
    KeyHint("follow", "f", "follow"),
    KeyHint("search", "/", "search"),
    KeyHint("match(1)", "n", "next match"),
    KeyHint("match(-1)", "N", "previous"),
    KeyHint("back", "esc", "back", is_last=True),
)
