"""Logs: the end of one log and what is added to it, and several logs merged by time."""

from __future__ import annotations

import os
import re
import sys
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.rundir.log_times import LogTimes, read_log_times
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.storage.files import open_plain
from tfckpt_tui.formats.text import as_seen

FIRST_BYTES = 1 << 20
"""Bytes at the end of a log that are read first."""

LINE_BYTES = 4096
"""A longer line is shown as several."""

SUPERVISOR = "supervisor"
"""Name of the log of the supervisor."""

ALL = "all"
"""Name of all logs together."""

MOST_LINES = 20_000
"""Maximum number of lines kept of each log, and of all together."""

_HEAD = 200
_LONG_AGO = float("-inf")
_ERROR = re.compile(
    r"Error|ERROR|Traceback|CRITICAL|FATAL|Exception\b|^[EF]\d{4} |^\d{4}-\d\d-\d\d \S+ [EF] "
)
_WARNING = re.compile(r"WARN|Warning|^W\d{4} |^\d{4}-\d\d-\d\d \S+ W ")
_INFORMATION = re.compile(r"^(?:INFO|DEBUG)\b|^I\d{4} |^\d{4}-\d\d-\d\d \S+ I ")


@dataclass(frozen=True)
class LogLine:
    """One line of a log.

    Attributes:
        text: Its text, safe to show.
        at: Latest time at which it can have been printed, in seconds since the epoch; None if
            unknown.
        place: Offset in the log, in bytes; -1 if unknown.
    """

    text: str
    at: float | None = None
    place: int = field(default=-1, compare=False)


class LogTail:
    """Follows one log."""

    def __init__(self, path: Path, first_bytes: int = FIRST_BYTES) -> None:
        self._path = path
        self._has_read = False
        self._needs_times = True
        self._first_bytes = first_bytes
        self._offset = 0
        self._inode: int | None = None
        self._rest = b""
        self._changed_at = 0.0

    def read_new(self) -> list[LogLine] | None:
        """Returns the complete lines added since the last call; None if the log cannot be read.

        A log that was replaced or truncated is read from its beginning.
        """
        try:
            opened = open_plain(self._path)
        except (OSError, DamagedFileError):
            return None
        with opened as file:
            stats = os.fstat(file.fileno())
            self._changed_at = stats.st_mtime
            if stats.st_ino != self._inode or stats.st_size < self._offset:
                self._inode = stats.st_ino
                self._needs_times = True
                self._offset = max(0, stats.st_size - self._first_bytes)
                self._rest = b""
                file.seek(self._offset)
                if self._offset:
                    # The rest of a line; one of megabytes must not hide those before it.
                    rest = file.readline(LINE_BYTES)
                    self._offset += len(rest) if rest.endswith(b"\n") else 0
            file.seek(self._offset)
            data = self._rest + file.read(self._first_bytes)
            self._offset = file.tell()
        start = self._offset - len(data)
        whole, separator, self._rest = data.rpartition(b"\n")
        if not separator and len(data) < self._first_bytes:
            self._rest = data
            return []
        if not separator:
            whole, self._rest = data, b""
        return self._timed(whole, start, stats.st_mtime)

    def _timed(self, whole: bytes, start: int, changed_at: float) -> list[LogLine]:
        """Returns lines with their recorded times; newer lines get the modification time."""
        # Lines added since the last read need no recorded times, which may be thousands.
        times = read_log_times(self._path) if self._needs_times else LogTimes()
        self._needs_times = False
        if times.inode != self._inode:
            times = LogTimes()
        # Without recorded times, only lines added after the first read have a time.
        newest = changed_at if self._has_read or times.sizes else None
        self._has_read = True
        lines: list[LogLine] = []
        for raw in whole.split(b"\n"):
            end = start + len(raw) + 1
            at = times.printed_at(end)
            at = newest if at is None else at
            lines += [LogLine(shown_line(piece), at, place) for place, piece in _pieces(raw, start)]
            start = end
        return lines

    @property
    def unfinished(self) -> LogLine | None:
        """The incomplete last line; None if the log ends with a complete one."""
        if not self._rest:
            return None
        place = self._offset - len(self._rest)
        at = self._changed_at if self._has_read else None
        return LogLine(shown_line(self._rest[-LINE_BYTES:]), at, place)


def pieces_of(data: bytes, place: int) -> Iterator[tuple[int, bytes]]:
    """Yields the lines of a part of a log, very long ones in pieces, with their offsets.

    Args:
        data: The part, from the beginning of a line on.
        place: Its offset.
    """
    for raw in data.removesuffix(b"\n").split(b"\n") if data else ():
        yield from _pieces(raw, place)
        place += len(raw) + 1


def _pieces(raw: bytes, place: int) -> Iterator[tuple[int, bytes]]:
    """Yields a line, or the pieces of a very long one, without what a carriage return overwrote."""
    seen = raw.rstrip(b"\r").rfind(b"\r") + 1
    for start in range(seen, max(seen + 1, len(raw)), LINE_BYTES):
        yield place + start, raw[start : start + LINE_BYTES]


def log_path(run: RunDirectory, log: str) -> Path:
    """Returns the path of a log, by its name: `worker 0`, `supervisor`, or its path itself."""
    if os.path.isabs(log):
        return Path(log)
    if log == SUPERVISOR:
        return run.supervisor_log
    return run.worker_log(int(log.rsplit(" ", 1)[-1]))


def shown_line(line: bytes) -> str:
    """Returns a line of a log, safe to show."""
    return as_seen(line.decode("utf-8", "replace"))


class Level(IntEnum):
    """Severity of a line, guessed from its text."""

    ANY = 0
    WARNING = 1
    ERROR = 2


class LogRow(NamedTuple):
    """One line of one log.

    Attributes:
        log: Name of the log.
        text: Its text, safe to show.
        at: Latest time at which it can have been printed, in seconds since the epoch; None if
            unknown.
        order: Sort key among the lines of several logs.
        level: Its severity.
        place: Offset in the log, in bytes; -1 if unknown.
    """

    log: str
    text: str
    at: float | None
    order: float
    level: Level
    place: int = -1


class MergedLogs:
    """Lines of several logs, each by itself and all sorted by time."""

    def __init__(self, most: int = MOST_LINES) -> None:
        self._most = most
        self._rows: dict[str, list[LogRow]] = {ALL: []}
        self._unfinished: dict[str, LogRow] = {}
        self._shown: tuple[str, Level] | None = None
        self._found: Sequence[LogRow] = ()

    def add(self, log: str, lines: Sequence[LogLine], unfinished: LogLine | None = None) -> None:
        """Appends lines to a log.

        Args:
            log: The log.
            lines: The lines.
            unfinished: The line after them that is not complete; it takes the place of the one
                that was given last.
        """
        own = self._rows.setdefault(log, [])
        was = self._unfinished.pop(log, None)
        if was is not None and not lines and unfinished is not None and unfinished.text == was.text:
            self._unfinished[log] = was
            return
        if was is not None:
            self._remove_last(was)
        if unfinished is not None:
            lines = [*lines, unfinished]
        if not lines:
            return
        before = own[-1] if own else None
        new: list[LogRow] = []
        for line in lines:
            # Lines of one log keep their order even if the clock was set back.
            at = _LONG_AGO if line.at is None else line.at
            order = max(at, before.order if before is not None else _LONG_AGO)
            level = level_of(line.text, before.level if before is not None else Level.ANY)
            before = LogRow(log, line.text, line.at, order, level, line.place)
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
        if unfinished is not None:
            self._unfinished[log] = new[-1]

    def _remove_last(self, row: LogRow) -> None:
        """Takes the last line of a log out again."""
        self._shown = None
        for rows in (self._rows[row.log], self._rows[ALL]):
            place = next((n for n in range(len(rows) - 1, -1, -1) if rows[n] is row), None)
            if place is not None:
                del rows[place]

    @property
    def logs(self) -> Sequence[str]:
        """The names of the logs."""
        return [log for log in self._rows if log != ALL]

    def rows_of(self, log: str) -> Sequence[LogRow]:
        """Returns all lines of a log."""
        return self._rows.get(log, [])

    def rows(self, log: str, least: Level = Level.ANY) -> Sequence[LogRow]:
        """Returns the lines of a log with at least the severity `least`, oldest first."""
        if self._shown != (log, least):
            rows = self._rows.get(log, [])
            self._found = rows if least is Level.ANY else [r for r in rows if r.level >= least]
            self._shown = log, least
        return self._found


def row_at(rows: Sequence[LogRow], at: float) -> int | None:
    """Returns the first row printed at `at` or later; None if no row has a time."""
    if not any(row.at is not None for row in rows):
        return None
    return min(bisect_left(rows, at, key=attrgetter("order")), len(rows) - 1)


def level_of(text: str, before: Level) -> Level:
    """Returns the severity of a line; an indented line has that of the line before it."""
    head = text[:_HEAD]
    if head[:1].isspace():
        return before
    if _INFORMATION.search(head):
        return Level.ANY
    if _ERROR.search(head):
        return Level.ERROR
    return Level.WARNING if _WARNING.search(head) else Level.ANY


def rows_of(log: str, lines: Sequence[LogLine]) -> list[LogRow]:
    """Returns the rows of adjacent lines of one log."""
    book = MergedLogs(sys.maxsize)
    book.add(log, lines)
    return list(book.rows(log))


def merge_logs(logs: Mapping[str, Sequence[LogLine]]) -> list[LogRow]:
    """Returns the lines of several logs, sorted by time."""
    book = MergedLogs(sys.maxsize)
    for log, lines in logs.items():
        book.add(log, lines)
    return list(book.rows(ALL))
