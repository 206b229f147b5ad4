"""Lines of a log: the window follows its end until somebody scrolls away."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from textual import events
from textual.message import Message

from tfckpt_tui.text import clean
from tfckpt_tui.widgets.listing import Listing
from tfckpt_tui.widgets.painting import Line, Span, line, spread
from tfckpt_tui.widgets.pane import Pane

MOST_LINES = 20_000
"""Lines of each log that are kept."""


@dataclass
class _Log:
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=MOST_LINES))
    is_there: bool = True


class LogView(Listing):
    """One of several logs, with its matches marked."""

    has_cursor = False

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._logs: dict[str, _Log] = {}
        self._log = ""
        self._needle = ""
        self.is_following = True

    class Scrolled(Message):
        """The person scrolled: it may follow the log's end now, or no more."""

    def add(self, log: str, lines: Sequence[str] | None) -> None:
        """Takes new lines of `log`; None says that it is not there."""
        known = self._logs.setdefault(log, _Log())
        known.is_there = lines is not None
        known.lines.extend(lines or ())
        if log == self._log:
            self._keep_up()

    def turn_to(self, log: str) -> None:
        """Shows another log, at its end."""
        if log != self._log:
            self._log = log
            self.is_following = True
            self._keep_up()

    def follow(self, following: bool) -> None:
        """Switches following on or off."""
        self.is_following = following
        self._keep_up()

    def search(self, needle: str) -> None:
        """Marks what holds `needle`, however it is capitalised, and goes to the last such line."""
        self._needle = needle.casefold()
        if self._needle:
            self.go_to_match(-1, from_end=True)
        self.repaint()

    def go_to_match(self, direction: int, *, from_end: bool = False) -> None:
        """Brings the next match in `direction` (1 down, -1 up) to the top of the window."""
        matches = self._matches()
        if not matches:
            return
        self.is_following = False
        if from_end:
            row = matches[-1]
        elif direction > 0:
            row = next((match for match in matches if match > self._marked), matches[0])
        else:
            row = next((match for match in reversed(matches) if match < self._marked), matches[-1])
        self._marked = row
        self._top = max(0, row - self.visible_rows() // 2)
        self.repaint()

    def describe(self) -> str:
        """Returns what the window does, for the tabs."""
        if self._needle:
            return f"{len(self._matches()):,} matches"
        return "following" if self.is_following else "held; f follows"

    def row_count(self) -> int:
        """Returns how many lines are known."""
        return len(self._lines())

    def row_key(self, row: int) -> str:
        """Returns the place of a line; there is no cursor that needed more."""
        return str(row)

    def empty_lines(self, width: int) -> Sequence[Line]:
        """Returns why there is nothing."""
        del width
        known = self._logs.get(self._log)
        there = known is None or known.is_there
        words = (
            "nothing printed yet"
            if there
            else "no such log: tfckpt-tui did not start this process, or it has not begun yet"
        )
        return (line((words, "muted")),)

    def row_line(self, row: int, width: int) -> Line:
        """Returns one line, with what was searched for marked."""
        del width
        text = self._lines()[row]
        style = _tone(text)
        if not self._needle:
            return line((text, style))
        spans: list[Span] = []
        folded, place = text.casefold(), 0
        if len(folded) != len(text):
            return line((text, "key" if self._needle in folded else style))
        while (found := folded.find(self._needle, place)) >= 0:
            spans.append((text[place:found], style))
            spans.append((text[found : found + len(self._needle)], "cursor"))
            place = found + len(self._needle)
        return Line((*spans, (text[place:], style)))

    def scroll_rows(self, rows: int) -> None:
        """Scrolls; leaving the end ends following, reaching it begins again."""
        super().scroll_rows(rows)
        self.is_following = self._top >= self.row_count() - self.visible_rows()
        self.post_message(self.Scrolled())

    _marked = -1

    def _lines(self) -> deque[str]:
        known = self._logs.get(self._log)
        return known.lines if known is not None else deque()

    def _matches(self) -> list[int]:
        needle = self._needle
        return [row for row, text in enumerate(self._lines()) if needle in text.casefold()]

    def _keep_up(self) -> None:
        if self.is_following:
            self._top = max(0, self.row_count() - self.visible_rows())
        self.repaint()


def _tone(text: str) -> str:
    head = text[:200]
    if "Error" in head or "ERROR" in head or "Traceback" in head or head.startswith("E0000"):
        return "bad"
    return "warn" if "WARN" in head or "Warning" in head else "value"


class LogTabs(Pane):
    """One line with a name for each log."""

    boxed = False

    class Chosen(Message):
        """A tab was clicked."""

        def __init__(self, log: str) -> None:
            super().__init__()
            self.log = log

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._logs: Sequence[str] = ()
        self._shown = ""
        self._note = ""

    def show_tabs(self, names: Sequence[str], shown: str, note: str) -> None:
        """Takes the names of the logs, which one is shown, and a word at the right end."""
        self._logs, self._shown, self._note = list(names), shown, note
        self.repaint()

    def body(self, width: int, height: int) -> Sequence[Line]:
        """Returns the line."""
        del height
        spans: list[Span] = [("logs  ", "title")]
        for name in self._logs:
            spans.append((f" {clean(name)} ", "cursor" if name == self._shown else "muted"))
            spans.append((" ", ""))
        return [Line(spread(spans, ((self._note, "muted"),), width))]

    def on_click(self, event: events.Click) -> None:
        """Chooses the tab under the mouse."""
        column = event.x - self.inner_offset[0] - len("logs  ")
        for name in self._logs:
            if 0 <= column < len(name) + 2:
                self.post_message(self.Chosen(name))
            column -= len(name) + 3
