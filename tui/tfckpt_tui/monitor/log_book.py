"""The lines of several logs: each by itself and all in the order of time, by level."""

from __future__ import annotations

import re
import sys
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from enum import IntEnum
from operator import attrgetter
from typing import NamedTuple

from tfckpt_tui.monitor.log_tail import LogLine

ALL = "all"
"""Stands for all logs together."""

MOST_LINES = 20_000
"""Lines that are kept of each log, and of all together."""

_HEAD = 200
_LONG_AGO = float("-inf")
_ERROR = re.compile(
    r"Error|ERROR|Traceback|CRITICAL|FATAL|Exception\b|^[EF]\d{4} |^\d{4}-\d\d-\d\d \S+ [EF] "
)
_WARNING = re.compile(r"WARN|Warning|^W\d{4} |^\d{4}-\d\d-\d\d \S+ W ")
_INFORMATION = re.compile(r"^(?:INFO|DEBUG)\b|^I\d{4} |^\d{4}-\d\d-\d\d \S+ I ")


class Level(IntEnum):
    """How bad a line is, as far as its words tell."""

    ANY = 0
    WARNING = 1
    ERROR = 2


class Row(NamedTuple):
    """One line of one log.

    Attributes:
        log: Its name.
        at: By when it was printed, in seconds since the epoch; None where nobody noted it.
        order: By which rows of several logs are put in order.
    """

    log: str
    text: str
    at: float | None
    order: float
    level: Level


class LogBook:
    """Takes the lines of logs as they come."""

    def __init__(self, most: int = MOST_LINES) -> None:
        self._most = most
        self._rows: dict[str, list[Row]] = {ALL: []}
        self._shown: tuple[str, Level] | None = None
        self._found: Sequence[Row] = ()

    def add(self, log: str, lines: Sequence[LogLine]) -> None:
        """Appends lines to a log."""
        own = self._rows.setdefault(log, [])
        if not lines:
            return
        before = own[-1] if own else None
        new: list[Row] = []
        for line in lines:
            # A clock that was set back must not turn the lines of one log round.
            at = _LONG_AGO if line.at is None else line.at
            order = max(at, before.order if before is not None else _LONG_AGO)
            level = level_of(line.text, before.level if before is not None else Level.ANY)
            before = Row(log, line.text, line.at, order, level)
            new.append(before)
        together = self._rows[ALL]
        comes_late = bool(together) and together[-1].order > new[0].order
        together += new
        if comes_late:
            together.sort(key=attrgetter("order"))
        own += new
        for rows in (own, together):
            del rows[: -self._most]
        self._shown = None

    def rows(self, log: str, least: Level = Level.ANY) -> Sequence[Row]:
        """Returns the lines of a log that are at least so bad, oldest first."""
        if self._shown != (log, least):
            rows = self._rows.get(log, [])
            self._found = rows if least is Level.ANY else [r for r in rows if r.level >= least]
            self._shown = log, least
        return self._found


def row_at(rows: Sequence[Row], at: float) -> int | None:
    """Returns the first row that was printed at a time or later; None where no row has a time."""
    if not any(row.at is not None for row in rows):
        return None
    return min(bisect_left(rows, at, key=attrgetter("order")), len(rows) - 1)


def level_of(text: str, before: Level) -> Level:
    """Returns how bad a line is; one that is indented belongs to the line before it."""
    head = text[:_HEAD]
    if head[:1].isspace():
        return before
    if _INFORMATION.search(head):
        return Level.ANY
    if _ERROR.search(head):
        return Level.ERROR
    return Level.WARNING if _WARNING.search(head) else Level.ANY


def in_order(logs: Mapping[str, Sequence[LogLine]]) -> list[Row]:
    """Returns the lines of several logs in the order of time."""
    book = LogBook(sys.maxsize)
    for log, lines in logs.items():
        book.add(log, lines)
    return list(book.rows(ALL))
