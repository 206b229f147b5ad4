"""Lists of events: one with a cursor and a filter, and the pane of the dashboard."""

from __future__ import annotations

from collections.abc import Sequence

from tfckpt_trainer.rundir.records.event import EventEntry
from tfckpt_tui.app.protocols import key_of
from tfckpt_tui.app.widgets.base.icons import EVENT_ICONS
from tfckpt_tui.app.widgets.base.list_pane import ListPane, match_note
from tfckpt_tui.app.widgets.base.styled_text import Span, StyledLine, fit, line, shorten
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot


class EventList(ListPane[EventEntry]):
    """Events that match a filter, newest first, with a cursor."""

    title = "events"

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._total = 0
        self._needle = ""

    @property
    def needle(self) -> str:
        """The words of the filter."""
        return self._needle

    def show(self, snapshot: RunSnapshot) -> None:
        """Shows a new snapshot."""
        self.snapshot = snapshot
        self.search(self._needle)

    def search(self, text: str) -> None:
        """Shows only events that contain all words of `text`."""
        self._needle = text
        words = text.casefold().split()
        event_log = self.snapshot.event_log if self.snapshot else ()
        self._total = len(event_log)
        self.show_rows(
            [
                entry
                for entry in reversed(event_log)
                if all(word in _searchable_text(entry) for word in words)
            ]
        )

    def note(self) -> Sequence[Span]:
        """Returns the number of events, or of matches."""
        if not self._needle:
            return ((f"{self._total:,}", "value"),)
        return match_note(self.row_count(), self._total, self._needle)

    def row_key(self, row: int) -> str:
        """Returns a key that is unique for each event."""
        entry = self.rows[row]
        return f"{entry.at} {entry.kind} {entry.message}"

    def why_empty(self) -> str:
        """Returns why the list is empty."""
        return "no event matches" if self._needle else "no events yet"

    def row_line(self, row: int, width: int) -> StyledLine:
        """Returns one event."""
        return event_line(self.rows[row], width)


class Events(ListPane[str | EventEntry]):
    """Alerts and problems of reading the directory, followed by all events, newest first."""

    has_cursor = False
    title = "events"

    def show(self, snapshot: RunSnapshot) -> None:
        """Shows a new snapshot; keeps the position if the user has scrolled."""
        before = self.row_count()
        self.snapshot = snapshot
        self.show_rows([*_troubles(snapshot), *reversed(snapshot.event_log)])
        if before and self.top:
            self.scroll_rows(self.row_count() - before)

    def note(self) -> Sequence[Span]:
        """Returns the numbers of alerts and problems."""
        snapshot = self.snapshot
        alerts, problems = (len(snapshot.alerts), len(snapshot.problems)) if snapshot else (0, 0)
        spans: list[Span] = []
        if alerts:
            spans.append((f"✗ {units.count(alerts, 'alert')}", "bad"))
        if problems:
            spans += [(" · ", "faint")] if spans else []
            spans.append((f"✗ {units.count(problems, 'problem')}", "bad"))
        if spans:
            spans.append((f"  {key_of(self, 'diagnostics')}", "key"))
            spans.append((" shows what to do" if alerts else " shows them", "label"))
        return spans

    def why_empty(self) -> str:
        """Returns why the list is empty."""
        if self.snapshot is None:
            return ""
        return "no events yet" if self.snapshot.tracked else "no event log in this directory"

    def row_line(self, row: int, width: int) -> StyledLine:
        """Returns one line."""
        shown = self.rows[row]
        if isinstance(shown, str):
            return line(("✗ ", "bad"), (shorten(shown, width - 2), "bad"))
        return event_line(shown, width)


def _troubles(snapshot: RunSnapshot) -> tuple[str, ...]:
    """Returns alerts and problems as sentences that are safe to show."""
    return (*(clean(alert.message) for alert in snapshot.alerts), *snapshot.problems)


def _searchable_text(entry: EventEntry) -> str:
    parts = (entry.kind.value, entry.message, entry.by, entry.checkpoint or "")
    return " ".join(parts).casefold()


def event_line(entry: EventEntry, width: int) -> StyledLine:
    """Returns one event in one line."""
    sign = EVENT_ICONS[entry.kind]
    clock = units.local_time(entry.at, "%H:%M:%S")
    spans: list[Span] = [(f"{clock:<8} ", "faint"), (f"{sign.glyph} ", sign.style)]
    if width >= 60:
        step = f"step {entry.step:,}" if entry.step is not None else ""
        spans.append((f"{step:<13} ", "muted"))
    message = clean(entry.message) or entry.kind.value
    spans.append((message, "bad" if sign.style == "bad" else "value"))
    if entry.by and width >= 70:
        spans += [("  ", ""), (clean(entry.by), "faint")]
    return StyledLine(fit(spans, width))
