"""The lines of one log, or of all. The view follows the end until the user scrolls away."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from textual import events
from textual.message import Message

from tfckpt_tui.app.widgets.base.list_pane import ListPane
from tfckpt_tui.app.widgets.base.pane import Pane
from tfckpt_tui.app.widgets.base.styled_text import Span, StyledLine, branch_style, line, spread
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.log_pages import LogPage, LogSearches
from tfckpt_tui.monitor.logs import ALL, Level, LogLine, LogRow, MergedLogs, row_at, rows_of

_TIMES_FROM = 100
_STYLES = {Level.ANY: "value", Level.WARNING: "warn", Level.ERROR: "bad"}
_NO_ROW = LogRow(ALL, "", None, 0.0, Level.ANY)
_LEVELS = {Level.ANY: "", Level.WARNING: "warnings and errors", Level.ERROR: "errors"}
_SIDEWAYS = 20
_MOST_NAMED = 3
"""Logs whose number of matches is shown."""


NewLines = tuple[Sequence[LogLine] | None, LogLine | None]
"""The new complete lines of a log, None if there is no log; and the line after them."""


@dataclass(frozen=True)
class Wanted:
    """A place of a log to show.

    Attributes:
        log: The log.
        place: Offset of a line, in bytes.
        row: Row of the screen for this line.
        is_match: Whether the line is the match to highlight.
    """

    log: str
    place: int
    row: int
    is_match: bool = False


class LogView(ListPane[LogRow]):
    """One log, or all logs ordered by time, with highlighted matches.

    It holds the last lines of each log. One log can be read from anywhere: the view asks for a
    page around a place, and shows it until it is scrolled to the end of the log.
    """

    has_cursor = False

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._book = MergedLogs()
        self._missing: set[str] = set()
        self._why_none = ""
        self._log = ALL
        self._least = Level.ANY
        self._needle = ""
        self._marked: LogRow | None = None
        self._page: tuple[LogPage, Sequence[LogRow]] | None = None
        self._awaited: Wanted | None = None
        self._searches: LogSearches | None = None
        self._wraps = False
        self._shift = 0
        self._broken: tuple[Sequence[LogRow], int, LogRow | None, int, Sequence[LogRow]] | None = (
            None
        )
        self.is_following = True

    class Scrolled(Message):
        """The user scrolled, which may start or end following."""

    class PageWanted(Message):
        """The user scrolled to a part of the log that the view does not hold."""

        def __init__(self, wanted: Wanted) -> None:
            super().__init__()
            self.wanted = wanted

    def add(self, logs: Mapping[str, NewLines], why_none: str = "") -> None:
        """Adds new lines of logs.

        Args:
            logs: By log, its new complete lines, None if it does not exist, and the line after
                them that is not complete.
            why_none: If no log exists, why.
        """
        self._why_none = why_none
        self._missing = {log for log, (lines, _) in logs.items() if lines is None}
        for log, (lines, unfinished) in logs.items():
            self._book.add(log, lines or (), unfinished)
        self._follow_end()

    @property
    def why_none(self) -> str:
        """If no log exists, why, as the end of a sentence."""
        return self._why_none

    @property
    def shown_log(self) -> str:
        """The log that is shown; going to a match may change it."""
        return self._log

    @property
    def shown_lines(self) -> Sequence[str]:
        """The texts of the lines on the screen, in full unless they are wrapped."""
        return [row.text for row in self.rows[self.top : self.top + self.visible_rows()]]

    @property
    def least(self) -> Level:
        """The lowest severity of the lines that are shown."""
        return self._least

    def turn_to(self, log: str) -> None:
        """Shows the end of another log."""
        if log != self._log:
            self._log = log
            self.follow(True)

    def follow(self, following: bool) -> None:
        """Starts or ends following."""
        self.is_following = following
        self._marked = None
        if following:
            self._page = self._awaited = None
        self._follow_end()

    def turn_level(self) -> None:
        """Switches between all lines, warnings and errors, and errors only."""
        self._least = Level((self._least + 1) % len(Level))
        self.follow(True)

    def turn_wrapping(self) -> None:
        """Wraps long lines, or cuts them at the edge."""
        self._wraps = not self._wraps
        self._shift = 0
        self._follow_end()

    def shift(self, steps: int) -> None:
        """Scrolls sideways."""
        self._shift = 0 if self._wraps else max(0, self._shift + steps * _SIDEWAYS)
        self.repaint()

    def show_page(self, asked: Wanted, page: LogPage) -> None:
        """Shows a page that was asked for, unless the user has gone elsewhere since."""
        wanted = self._awaited
        if wanted is None or (wanted.log, wanted.place) != (asked.log, asked.place):
            return
        self._awaited = None
        self.is_following = False
        self._page = page, rows_of(wanted.log, page.lines)
        rows = self.rows
        place = max(0, bisect_right(rows, wanted.place, key=lambda row: row.place) - 1)
        place = min(place, max(0, len(rows) - 1))
        if wanted.is_match and rows:
            place = bisect_left(rows, rows[place].place, key=lambda row: row.place)
            self._marked = rows[place]
        self._top = max(0, min(place - wanted.row, len(rows) - self.visible_rows()))
        self.repaint()
        self.post_message(self.Scrolled())

    def drop_page(self, asked: Wanted) -> None:
        """Notes that a page that was asked for cannot be read."""
        if self._awaited is not None and self._awaited.place == asked.place:
            self._awaited = None

    def show_searches(self, searches: LogSearches | None) -> None:
        """Takes the matches of a search of whole logs, which goes on meanwhile."""
        self._searches = searches

    def search(self, needle: str) -> bool:
        """Highlights `needle`, ignoring case, and scrolls to the last match in the lines it holds.

        Returns:
            Whether there is one.
        """
        self._needle = needle.casefold()
        self._marked = None
        if self._needle:
            self.go_to_match(-1, from_end=True)
        self.repaint()
        return self._marked is not None

    def go_to_match(self, direction: int, *, from_end: bool = False) -> None:
        """Scrolls to the next match in `direction`: 1 is down, -1 is up.

        In the view of all logs, matches outside of the lines that it holds are shown in their log.
        """
        searches = self._searches
        if searches is None or not searches.counts or from_end:
            self._go_to_held(direction, from_end=from_end)
        elif self._log != ALL:
            self._go_to_place(searches.beyond(*self._place(direction), direction))
        elif not self._go_to_held(direction, wraps=False):
            rows = self._book.rows_of(ALL)
            match = searches.outside({row.log: row.place for row in reversed(rows)}, direction)
            if match is None:
                self._go_to_held(direction)
            else:
                self._go_to_place(match)

    def _go_to_held(self, direction: int, *, from_end: bool = False, wraps: bool = True) -> bool:
        """Scrolls to the next match in the lines that are held; returns whether there is one."""
        matches = self._matches()
        marked = self._marked_place()
        if direction > 0:
            beyond = [match for match in matches if match > marked]
        else:
            beyond = [match for match in matches if from_end or marked < 0 or match < marked]
        if not beyond and not (wraps and matches):
            return False
        self._scroll_to_middle((beyond or matches)[0 if direction > 0 else -1])
        return True

    def go_to_time(self, at: float) -> bool:
        """Scrolls to what was printed at a time; returns whether the times are known."""
        place = row_at(self.rows, at)
        if place is None:
            return False
        self._scroll_to_middle(place)
        return True

    def describe(self) -> str:
        """Returns the level, the number of matches and whether the view follows, for the tabs."""
        words = [_LEVELS[self._least]] if self._least else []
        if self._needle and self._searches is not None:
            words.append(self._describe_search(self._searches))
        rows, page = self.rows, self._page
        if page is not None and rows:
            at = rows[min(self._top, len(rows) - 1)].place
            words.append(f"at {units.size(at)} of {units.size(page[0].size)}")
        elif self._log != ALL and rows and rows[0].place > 0:
            words.append("the end; ↑ reads on")
        elif (
            self._log == ALL
            and not self._needle
            and any(
                log_rows and log_rows[0].place > 0
                for log_rows in map(self._book.rows_of, self._book.logs)
            )
        ):
            words.append("the ends of the logs; → shows one in full")
        if self._wraps:
            words.append("wrapped")
        elif self._shift:
            words.append(f"from column {self._shift + 1}")
        if not self._why_none:
            words.append("following" if self.is_following else "held; f follows")
        return " · ".join(words)

    def empty_lines(self, width: int) -> Sequence[StyledLine]:
        """Returns why the view is empty."""
        if self._least:
            words = f"no {_LEVELS[self._least]} among the lines that were read"
        elif self._log in self._missing:
            words = "no such log: tfckpt-tui did not start this process, or it has not started yet"
        else:
            words = "no output yet"
        return (line((words, "muted")),)

    def row_line(self, row: int, width: int) -> StyledLine:
        """Returns one line, with highlighted matches."""
        shown = self.rows[row]
        spans = [*self._margin(shown, width), *self._text(shown)]
        return StyledLine(tuple(spans), "selected" if shown is self._marked else "")

    def scroll_rows(self, rows: int) -> None:
        """Scrolls; following ends when the view leaves the end, and starts when it reaches it."""
        before = self._top
        super().scroll_rows(rows)
        is_last = self._top >= self.row_count() - self.visible_rows()
        if self._page is None:
            self.is_following = is_last
        self._read_on(rows - (self._top - before), is_last=is_last)
        self.post_message(self.Scrolled())

    def action_edge(self, last: int) -> None:
        """Scrolls to the beginning or the end of the log."""
        if last:
            self.follow(True)
            self.post_message(self.Scrolled())
        elif self._log == ALL:
            super().action_edge(last)
        else:
            self._ask(Wanted(self._log, 0, 0))

    def _read_on(self, missing: int, *, is_last: bool) -> None:
        """Asks for a page if the view was scrolled `missing` rows beyond what it holds."""
        rows, page = self.rows, self._page
        if not missing or not rows or self._log == ALL:
            return
        if missing < 0 and rows[0].place > 0:
            self._ask_beyond(Wanted(self._log, rows[0].place, 0), missing)
        elif missing > 0 and page is not None and is_last:
            if page[0].end >= page[0].size:
                self.follow(True)
            else:
                self._ask_beyond(
                    Wanted(self._log, rows[-1].place, self.visible_rows() - 1), missing
                )

    def _ask_beyond(self, edge: Wanted, missing: int) -> None:
        """Asks for a page around the first or last line, scrolled by `missing` rows.

        Keys that are pressed until it arrives scroll it further.
        """
        awaited = self._awaited
        if awaited is None or awaited.place != edge.place:
            self._ask(replace(edge, row=edge.row - missing))
        else:
            self._awaited = replace(awaited, row=awaited.row - missing)

    def _ask(self, wanted: Wanted) -> None:
        self._awaited = wanted
        self.post_message(self.PageWanted(wanted))

    def _place(self, direction: int) -> tuple[str, float]:
        """Returns the log that is shown and the place of its match to go on from."""
        awaited = self._awaited
        if awaited is not None and awaited.is_match:
            return self._log, awaited.place
        if self._marked is not None:
            return self._log, self._marked.place
        return self._log, -1 if direction > 0 else math.inf

    def _go_to_place(self, match: tuple[str, int] | None) -> None:
        if match is not None:
            log, place = match
            self.turn_to(log)
            self._ask(Wanted(log, place, self.visible_rows() // 2, is_match=True))

    def _describe_search(self, searches: LogSearches) -> str:
        counts = searches.counts
        words = units.count(sum(counts.values()), "match", "matches")
        if len(searches.by_log) > 1 and counts:
            if self._log == ALL:
                words += f": {_named(counts)}"
            else:
                words = f"{counts.get(self._log, 0):,} of {words}"
        if not searches.has_ended:
            words += f", {searches.progress:.0%} searched"
        if counts and self._log == ALL and self._marked is None:
            words += "; n shows one"
        return words

    @property
    def rows(self) -> Sequence[LogRow]:
        """The lines of the log or the page that is shown, broken if they are wrapped."""
        if self._page is None:
            rows = self._book.rows(self._log, self._least)
        elif self._least is Level.ANY:
            rows = self._page[1]
        else:
            rows = [row for row in self._page[1] if row.level >= self._least]
        return self._wrapped(rows) if self._wraps else rows

    def _wrapped(self, rows: Sequence[LogRow]) -> Sequence[LogRow]:
        """Returns rows broken at the width of the view."""
        margin = sum(len(text) for text, _ in self._margin(_NO_ROW, self.inner_size[0]))
        width = max(10, self.inner_size[0] - margin)
        cache = self._broken
        newest = rows[-1] if rows else None
        if cache is None or cache[0] is not rows or cache[1:4] != (len(rows), newest, width):
            broken = [
                row._replace(text=row.text[start : start + width])
                for row in rows
                for start in range(0, max(1, len(row.text)), width)
            ]
            self._broken = cache = rows, len(rows), newest, width, broken
        return cache[4]

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
        text, style = row.text[self._shift :], _STYLES[row.level]
        if not self._needle:
            return [(text, style)]
        spans: list[Span] = []
        folded, place = text.casefold(), 0
        if len(folded) != len(text):
            return [(text, "key" if self._needle in folded else style)]
        while (start := folded.find(self._needle, place)) >= 0:
            spans.append((text[place:start], style))
            spans.append((text[start : start + len(self._needle)], "cursor"))
            place = start + len(self._needle)
        return [*spans, (text[place:], style)]

    def _matches(self) -> list[int]:
        needle = self._needle
        return [place for place, row in enumerate(self.rows) if needle in row.text.casefold()]

    def _marked_place(self) -> int:
        return next((place for place, row in enumerate(self.rows) if row is self._marked), -1)

    def _scroll_to_middle(self, place: int) -> None:
        self.is_following = False
        self._marked = self.rows[place]
        self._top = max(0, place - self.visible_rows() // 2)
        self.repaint()

    def _follow_end(self) -> None:
        if self.is_following and self._page is None:
            self._top = max(0, self.row_count() - self.visible_rows())
        self.repaint()


def _named(counts: Mapping[str, int]) -> str:
    """Returns the number of matches of each log; of many logs, of the first ones."""
    named = [f"{log} {count:,}" for log, count in counts.items()]
    rest = named[_MOST_NAMED:]
    more = [units.count(len(rest), "more log")] if rest else []
    return ", ".join(named[:_MOST_NAMED] + more)


def _short(log: str) -> Span:
    """Returns the short name of a log for the margin, and its style."""
    if "/" in log:
        return "log", "title"
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

    def body(self, width: int, height: int) -> Sequence[StyledLine]:
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
        return [StyledLine(spread(spans, ((self._note, "muted"),), width))]

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
