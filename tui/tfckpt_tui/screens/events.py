"""The journal on a screen of its own: filtered while typing, each event with all that is known."""

from __future__ import annotations

import json
import textwrap
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Input

from tfckpt_trainer.rundir.records import JournalEntry
from tfckpt_tui import humane
from tfckpt_tui.snapshot import RunSnapshot
from tfckpt_tui.text import clean
from tfckpt_tui.widgets.events import EventList
from tfckpt_tui.widgets.facts import Facts
from tfckpt_tui.widgets.keybar import KeyBar, KeyHint
from tfckpt_tui.widgets.listing import Listing
from tfckpt_tui.widgets.painting import Line, Span, line


class EventsScreen(Screen[None]):
    """Every event of the run, newest first, and one of them in full."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back", show=False),
        Binding("q,J", "close", "Back", show=False),
        Binding("slash", "search", "Filter", show=False),
    ]
    AUTO_FOCUS = "#event-list"

    def __init__(self, snapshot: RunSnapshot) -> None:
        super().__init__()
        self._snapshot = snapshot

    def compose(self) -> ComposeResult:
        """Makes the list, the event under the cursor, the search line and the keys."""
        yield EventList(id="event-list")
        yield Facts(id="event")
        yield Input(placeholder="words that an event has, such as: restore ada", id="search")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        """Shows what is known."""
        self.query_one("#search").display = False
        self.query_one(KeyBar).show_hints(_HINTS)
        self.query_one(EventList).show(self._snapshot)
        self._update()

    def show(self, snapshot: RunSnapshot) -> None:
        """Takes a newer snapshot."""
        self._snapshot = snapshot
        self.query_one(EventList).show(snapshot)
        self._update()

    def action_back(self) -> None:
        """Ends a search, or closes the screen."""
        field, events = self.query_one("#search", Input), self.query_one(EventList)
        if field.display or events.needle:
            self._close_search(field, "")
        else:
            self.dismiss()

    def action_close(self) -> None:
        """Closes the screen."""
        self.dismiss()

    def action_search(self) -> None:
        """Opens the search line."""
        field = self.query_one("#search", Input)
        field.display = True
        field.focus()

    @on(Input.Changed, "#search")
    def _search(self, event: Input.Changed) -> None:
        self.query_one(EventList).search(event.value)
        self._update()

    @on(Input.Submitted, "#search")
    def _keep_search(self, event: Input.Submitted) -> None:
        self._close_search(event.input, event.value)

    @on(KeyBar.Chosen)
    async def _press(self, event: KeyBar.Chosen) -> None:
        event.stop()
        await self.run_action(event.action)

    @on(Listing.Moved, "#event-list")
    def _update(self) -> None:
        selected = self.query_one(EventList).selected
        facts = self.query_one("#event", Facts)
        if selected is None:
            facts.show_lines(())
            return
        width = max(20, facts.inner_size[0] or self.size.width - 4)
        facts.show_lines(_lines(selected, width), ((selected.kind.value, "title"),))

    def _close_search(self, field: Input, keep: str) -> None:
        field.value = keep
        self.query_one(EventList).search(keep)
        field.display = False
        self.query_one(EventList).focus()
        self._update()


def _lines(entry: JournalEntry, width: int) -> list[Line]:
    """Returns all that an event tells: when, where, who, its message, its details."""
    facts: list[Span] = [(humane.moment(entry.at), "value")]
    for name, value in (
        ("step", "" if entry.step is None else f"{entry.step:,}"),
        ("branch", "" if entry.branch is None else str(entry.branch)),
        ("checkpoint", clean(entry.checkpoint or "")),
        ("by", clean(entry.by)),
    ):
        if value:
            facts += [("   ", ""), (f"{name} ", "label"), (value, "value")]
    lines = [Line(tuple(facts))]
    lines += [line((part, "value")) for part in textwrap.wrap(clean(entry.message), width)]
    for name, detail in entry.details.items():
        if not detail and detail != 0:
            continue
        parts = detail if isinstance(detail, list) else [detail]
        for place, part in enumerate(parts):
            words = part if isinstance(part, str) else json.dumps(part)
            title = f"{clean(str(name))} " if place == 0 else " " * (len(str(name)) + 1)
            lines.append(line((title, "label"), (clean(words), "muted")))
    return lines


_HINTS = (
    KeyHint("search", "/", "filter"),
    KeyHint("back", "esc", "back", is_last=True),
)
