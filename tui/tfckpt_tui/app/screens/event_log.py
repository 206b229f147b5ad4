"""The event log: a list with a filter, and all details of the selected event."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from tfckpt_trainer.rundir.records.event import EventEntry
from tfckpt_tui.app.protocols import copy_text
from tfckpt_tui.app.screens.page import Page
from tfckpt_tui.app.widgets.base.empty_page import EmptyPage
from tfckpt_tui.app.widgets.base.keybar import KeyBar
from tfckpt_tui.app.widgets.base.list_pane import ListPane, TextPane
from tfckpt_tui.app.widgets.base.search_input import SearchInput, search_binding
from tfckpt_tui.app.widgets.base.styled_text import Span, StyledLine, line
from tfckpt_tui.app.widgets.run.events import EventList
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot

_UNWRAPPED = 1_000_000
_NONE = (
    "There are no events yet. The log tells who saved, restored, changed or stopped the run, and "
    "when; tfckpt_trainer and tfckpt-tui write it."
)
_EXAMPLE = "words of an event, such as: restore ada"


class EventLogScreen(Page):
    """All events of the run, newest first, and the selected one in full."""

    BINDINGS: ClassVar[list[BindingType]] = [
        search_binding("filter", "Shows only events that contain all words."),
        Binding(
            "l",
            "logs",
            "logs at that time",
            tooltip="Shows what its worker, or all workers, printed at the time of the event.",
        ),
        Binding("y", "copy", "copy", tooltip="Copies the selected event with all details."),
        Binding("J", "close", "Back", show=False),
    ]
    caption = "the event log"
    AUTO_FOCUS = "#event-list"

    def __init__(
        self,
        snapshot: RunSnapshot,
        open_logs: Callable[[int | None, float], None],
        chosen: EventEntry | None = None,
    ) -> None:
        """Makes the screen.

        Args:
            snapshot: Of the run.
            open_logs: Opens the log of a worker, or of all, at a time (seconds since the epoch).
            chosen: The event that is selected first; by default the newest.
        """
        super().__init__()
        self._snapshot = snapshot
        self._open_logs = open_logs
        self._chosen = chosen

    def compose(self) -> ComposeResult:
        """Makes the list, the selected event, the search line and the keys."""
        yield EventList(id="event-list")
        yield TextPane(id="event")
        yield SearchInput(_EXAMPLE, focus_after="#event-list")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        """Shows the snapshot, and selects an event."""
        self.show(self._snapshot)
        events = self.query_one(EventList)
        if self._chosen in events.rows:
            events.move_to(events.rows.index(self._chosen))

    def empty_page(self) -> EmptyPage | None:
        """Returns what the page says of a run without events."""
        if self._snapshot.event_log:
            return None
        return EmptyPage(purpose=_NONE, advice=self.first_advice())

    def show(self, snapshot: RunSnapshot) -> None:
        """Shows a newer snapshot."""
        self._snapshot = snapshot
        self.query_one(EventList).show(snapshot)
        self._update()
        self.update_keys()

    def action_logs(self) -> None:
        """Opens the logs at the time of the selected event."""
        selected = self.query_one(EventList).selected
        if selected is not None:
            worker = selected.details.get("worker")
            self._open_logs(worker if isinstance(worker, int) else None, selected.at)

    def action_copy(self) -> None:
        """Copies the selected event."""
        selected = self.query_one(EventList).selected
        if selected is not None:
            told = "\n".join(one.text for one in _lines(selected, _UNWRAPPED))
            copy_text(self, f"{selected.kind.value}\n{told}", "the event")

    @on(SearchInput.Searched)
    def _search(self, event: SearchInput.Searched) -> None:
        self.query_one(EventList).search(event.text)
        self._update()

    @on(ListPane.Moved, "#event-list")
    def _update(self) -> None:
        selected = self.query_one(EventList).selected
        facts = self.query_one("#event", TextPane)
        if selected is None:
            facts.show_lines(())
            return
        width = max(20, facts.inner_size[0] or self.size.width - 4)
        facts.show_lines(_lines(selected, width), ((selected.kind.value, "title"),))


def _parts(detail: Any) -> Sequence[Any]:
    """Returns what stands in a line of its own: each entry of a list or a map."""
    if isinstance(detail, dict):
        return [f"{name}: {part}" for name, part in detail.items()]
    return detail if isinstance(detail, list) else [detail]


def _lines(entry: EventEntry, width: int) -> list[StyledLine]:
    """Returns all facts, the message and the details of an event."""
    facts: list[Span] = [(units.local_time(entry.at), "value")]
    for name, value in (
        ("step", "" if entry.step is None else f"{entry.step:,}"),
        ("branch", "" if entry.branch is None else str(entry.branch)),
        ("checkpoint", clean(entry.checkpoint or "")),
        ("by", clean(entry.by)),
    ):
        if value:
            facts += [("   ", ""), (f"{name} ", "label"), (value, "value")]
    lines = [StyledLine(tuple(facts))]
    lines += [line((part, "value")) for part in textwrap.wrap(clean(entry.message), width)]
    for name, detail in entry.details.items():
        if not detail and detail != 0:
            continue
        parts = _parts(detail)
        for place, part in enumerate(parts):
            words = part if isinstance(part, str) else json.dumps(part)
            title = f"{clean(str(name))} " if place == 0 else " " * (len(str(name)) + 1)
            lines.append(line((title, "label"), (clean(words), "muted")))
    return lines
