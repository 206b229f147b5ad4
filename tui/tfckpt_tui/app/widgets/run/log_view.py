"""The lines of one log, or of all. The view follows the end until the user scrolls away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual import events
from textual.message import Message

from tfckpt_tui.app.widgets.base.list_pane import ListPane
from tfckpt_tui.app.widgets.base.pane import Pane, branch_style
from tfckpt_tui.app.widgets.base.styled_text import Line, Span, line, spread
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.logs import ALL, Level, LogLine, LogRow, MergedLogs, row_at

_TIMES_FROM = 100
_STYLES = {Level.ANY: "value", Level.WARNING: "warn", Level.ERROR: "bad"}
_LEVELS = {Level.ANY: "", Level.WARNING: "warnings and errors", Level.ERROR: "errors"}


class LogView(ListPane):
    """One log, or all logs ordered by time, with highlighted matches."""

    has_cursor = False

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._book = MergedLogs()
        self._missing: set[str] = set()
        self._log = ALL
        self._least = Level.ANY
        self._needle = ""
        self._marked: LogRow | None = None
        self.is_following = True

    class Scrolled(Message):
        """The user scrolled, which may start or end following."""

    def add(self, logs: Mapping[str, Sequence[LogLine] | None]) -> None:
        """Adds new lines of logs; None for a log that does not exist."""
        self._missing = {log for log, lines in logs.items() if lines is None}
        for log, lines in logs.items():
            self._book.add(log, lines or ())
        self._follow_end()

    def turn_to(self, log: str) -> None:
        """Shows the end of another log."""
        if log != self._log:
            self._log = log
            self.is_following = True
            self._follow_end()

    def follow(self, following: bool) -> None:
        """Starts or ends following."""
        self.is_following = following
        self._marked = None
        self._follow_end()

    def turn_level(self) -> None:
        """Switches between all lines, warnings and errors, and errors only."""
        self._least = Level((self._least + 1) % len(Level))
        self.is_following = True
        self._follow_end()

    def search(self, needle: str) -> None:
        """Highlights `needle`, ignoring case, and scrolls to the last match."""
        self._needle = needle.casefold()
        if self._needle:
            self.go_to_match(-1, from_end=True)
        self.repaint()

    def go_to_match(self, direction: int, *, from_end: bool = False) -> None:
        """Scrolls to the next match in `direction`: 1 is down, -1 is up."""
        matches = self._matches()
        if not matches:
            return
        marked = self._marked_place()
        if from_end:
            place = matches[-1]
        elif direction > 0:
            place = next((match for match in matches if match > marked), matches[0])
        else:
            place = next((match for match in reversed(matches) if match < marked), matches[-1])
        self._scroll_to_middle(place)

    def go_to_time(self, at: float) -> bool:
        """Scrolls to what was printed at a time; returns whether the times are known."""
        place = row_at(self._rows, at)
        if place is None:
            return False
        self._scroll_to_middle(place)
        return True

    def describe(self) -> str:
        """Returns the level, the number of matches and whether the view follows, for the tabs."""
        words = [_LEVELS[self._least]] if self._least else []
        if self._needle:
            words.append(f"{len(self._matches()):,} matches")
        words.append("following" if self.is_following else "held; f follows")
        return " · ".join(words)

    def row_count(self) -> int:
        """Returns the number of lines."""
        return len(self._rows)

    def row_key(self, row: int) -> str:
        """Returns the index of a line; without a cursor, no stable key is needed."""
        return str(row)

    def empty_lines(self, width: int) -> Sequence[Line]:
        """Returns why the view is empty."""
        del width
        if self._least:
            words = f"no {_LEVELS[self._least]} among the lines that were read"
        elif self._log in self._missing:
            words = "no such log: tfckpt-tui did not start this process, or it has not started yet"
        else:
            words = "no output yet"
        return (line((words, "muted")),)

    def row_line(self, row: int, width: int) -> Line:
        """Returns one line, with highlighted matches."""
        shown = self._rows[row]
        spans = [*self._margin(shown, width), *self._text(shown)]
        return Line(tuple(spans), "selected" if shown is self._marked else "")

    def scroll_rows(self, rows: int) -> None:
        """Scrolls; following ends when the view leaves the end, and starts when it reaches it."""
        super().scroll_rows(rows)
        self.is_following = self._top >= self.row_count() - self.visible_rows()
        self.post_message(self.Scrolled())

    @property
    def _rows(self) -> Sequence[LogRow]:
        return self._book.rows(self._log, self._least)

    def _margin(self, row: LogRow, width: int) -> list[Span]:
        """Returns the time and the process of a line, if there is room."""
        spans: list[Span] = []
        if width >= _TIMES_FROM:
            clock = "" if row.at is None else units.local_time(row.at, "%H:%M:%S")
            spans.append((f"{clock:<8} ", "faint"))
        if self._log == ALL:
            name, style = _short(row.log)
            spans.append((f"{name:<4}", style))
        return spans

    def _text(self, row: LogRow) -> list[Span]:
        text, style = row.text, _STYLES[row.level]
        if not self._needle:
            return [(text, style)]
        spans: list[Span] = []
        folded, place = text.casefold(), 0
        if len(folded) != len(text):
            return [(text, "key" if self._needle in folded else style)]
        while (found := folded.find(self._needle, place)) >= 0:
            spans.append((text[place:found], style))
            spans.append((text[found : found + len(self._needle)], "cursor"))
            place = found + len(self._needle)
        return [*spans, (text[place:], style)]

    def _matches(self) -> list[int]:
        needle = self._needle
        return [place for place, row in enumerate(self._rows) if needle in row.text.casefold()]

    def _marked_place(self) -> int:
        return next((place for place, row in enumerate(self._rows) if row is self._marked), -1)

    def _scroll_to_middle(self, place: int) -> None:
        self.is_following = False
        self._marked = self._rows[place]
        self._top = max(0, place - self.visible_rows() // 2)
        self.repaint()

    def _follow_end(self) -> None:
        if self.is_following:
            self._top = max(0, self.row_count() - self.visible_rows())
        self.repaint()


def _short(log: str) -> Span:
    """Returns the short name of a log for the margin, and its style."""
    index = log.rsplit(" ", 1)[-1]
    if not index.isdecimal():
        return "sup", "title"
    return f"w{index}", branch_style(int(index))


class LogTabs(Pane):
    """One line with the names of the logs; if not all fit, those around the shown one."""

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
        self._places: list[tuple[int, int, str]] = []

    def show_tabs(self, names: Sequence[str], shown: str, note: str) -> None:
        """Shows the names of the logs, the current one, and a note at the right end."""
        self._logs, self._shown, self._note = list(names), shown, note
        self.repaint()

    def body(self, width: int, height: int) -> Sequence[Line]:
        """Returns the line, and stores the position of each tab."""
        del height
        spans: list[Span] = [("logs  ", "title")]
        column = len("logs  ")
        names = self._around(width - column - len(self._note) - 6)
        self._places = []
        if names and names[0] != self._logs[0]:
            spans.append(("‹ ", "muted"))
            column += 2
        for name in names:
            spans.append((f" {clean(name)} ", "cursor" if name == self._shown else "muted"))
            spans.append((" ", ""))
            self._places.append((column, column + len(name) + 2, name))
            column += len(name) + 3
        if names and names[-1] != self._logs[-1]:
            spans.append(("›", "muted"))
        return [Line(spread(spans, ((self._note, "muted"),), width))]

    def on_click(self, event: events.Click) -> None:
        """Chooses the tab under the mouse."""
        column = event.x - self.inner_offset[0]
        for start, end, name in self._places:
            if start <= column < end:
                self.post_message(self.Chosen(name))

    def _around(self, room: int) -> Sequence[str]:
        """Returns as many names around the shown one as fit."""
        logs = self._logs
        first = logs.index(self._shown) if self._shown in logs else 0
        last = first + 1
        while True:
            used = sum(len(name) + 3 for name in logs[first:last])
            if last < len(logs) and used + len(logs[last]) + 3 <= room:
                last += 1
            elif first > 0 and used + len(logs[first - 1]) + 3 <= room:
                first -= 1
            else:
                return logs[first:last]
