"""Pages from anywhere in a log of any size, and a search of all of it."""

from __future__ import annotations

import os
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import BinaryIO

from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.rundir.storage.files import open_plain
from tfckpt_trainer.words.clean_text import ESCAPES
from tfckpt_tui.monitor.logs import LINE_BYTES, Level, LogLine, level_of, pieces_of, shown_line

PAGE_BYTES = 1 << 18
"""Bytes of a page."""

_SEARCH_BYTES = 1 << 20
_MOST_MATCHES = 1_000_000


@dataclass(frozen=True)
class LogPage:
    """Adjacent lines of a log.

    Attributes:
        start: Offset of the first line in bytes.
        end: Offset behind the last line.
        size: Size of the log.
        lines: The lines; `LogLine.place` is the offset of each.
    """

    start: int
    end: int
    size: int
    lines: tuple[LogLine, ...]


def read_around(path: Path, place: int) -> LogPage:
    """Returns the page with the line at the offset `place` in its middle.

    Raises:
        OSError: The log cannot be read.
    """
    with _opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        place = max(0, min(place, size))
        start = _line_start(file, max(0, place - PAGE_BYTES // 2))
        return _page(file, start, min(size, place + PAGE_BYTES // 2), size)


def _page(file: BinaryIO, start: int, least_end: int, size: int) -> LogPage:
    file.seek(start)
    data = _whole_lines(file, least_end - start)
    lines = tuple(LogLine(shown_line(piece), None, at) for at, piece in pieces_of(data, start))
    return LogPage(start, start + len(data), size, lines)


def _whole_lines(file: BinaryIO, count: int) -> bytes:
    """Reads so many bytes, and the end of the last line, unless that is very long."""
    data = file.read(count)
    return data + (file.readline(LINE_BYTES) if data and not data.endswith(b"\n") else b"")


def _line_start(file: BinaryIO, place: int) -> int:
    """Returns where the line at `place` begins; in a very long line, a place in its middle."""
    first = max(0, place - LINE_BYTES)
    file.seek(first)
    before = file.read(place - first)
    newline = before.rfind(b"\n")
    if newline >= 0:
        return first + newline + 1
    return first if first == 0 else place


class LogSearch:
    """Searches a whole log for a text, ignoring case.

    Attributes:
        needle: The text.
        least: The lowest severity of a line that matches.
        places: Offsets of the lines with a match, ascending, so far.
        done: Bytes searched so far.
        size: Bytes of the log.
    """

    def __init__(self, path: Path, needle: str, least: Level = Level.ANY) -> None:
        self.needle = needle
        self.least = least
        self.places: array[int] = array("Q")
        self.done = 0
        self.size = 0
        self._path = path
        self._cancelled = Event()
        self._has_run = False
        self._level = Level.ANY
        """Severity of the last line that was read, which an indented line after it has too."""

    @property
    def has_ended(self) -> bool:
        """Whether all of the log was searched, or it cannot be read."""
        return self._has_run and self.done >= self.size

    def cancel(self) -> None:
        """Ends `run` soon."""
        self._cancelled.set()

    def measure(self) -> None:
        """Reads the size of the log; it stays if the log cannot be read."""
        with suppress(OSError):
            self.size = self._path.stat().st_size

    def run(self) -> None:
        """Searches what is new since the last call; runs in a thread.

        Raises:
            OSError: The log cannot be read.
        """
        try:
            with _opened(self._path) as file:
                self.size = os.fstat(file.fileno()).st_size
                file.seek(self.done)
                self._read(file)
        finally:
            self._has_run = True

    def _read(self, file: BinaryIO) -> None:
        needle = self.needle.casefold()
        for place, raw in self._lines(file):
            level = self._next_level(raw)
            if level >= self.least and needle in shown_line(raw).casefold():
                self.places.append(place)

    def _next_level(self, raw: bytes) -> Level:
        """Returns the severity of the next line."""
        if self.least is not Level.ANY:
            self._level = level_of(shown_line(raw), self._level)
        return self._level

    def _pass(self, data: bytes) -> None:
        """Reads the severity of the last line of a chunk without a match."""
        if self.least is Level.ANY:
            return
        end, lines = len(data.removesuffix(b"\n")), []
        while end > 0:
            start = data.rfind(b"\n", 0, end) + 1
            lines.append(data[start:end])
            if not shown_line(lines[-1])[:1].isspace():
                break
            end = start - 1
        for raw in reversed(lines):
            self._next_level(raw)

    def _lines(self, file: BinaryIO) -> Iterator[tuple[int, bytes]]:
        """Yields the lines that may match, with their offsets."""
        plain = self.needle.isascii()
        wanted = self.needle.lower().encode() if plain else b""
        while not self._cancelled.is_set() and len(self.places) < _MOST_MATCHES:
            data = _whole_lines(file, _SEARCH_BYTES)
            if not data:
                self.done = max(self.done, self.size)
                return
            # Most chunks hold no match, and need no look at each line. Tabs are shown as blanks.
            may_differ = b"\t" in data and b" " in wanted
            if plain and not may_differ and wanted not in _without_escapes(data).lower():
                self._pass(data)
            else:
                yield from pieces_of(data, self.done)
            self.done += len(data)


def _without_escapes(data: bytes) -> bytes:
    return re.sub(ESCAPES.encode(), b"", data) if b"\x1b" in data else data


class LogSearches:
    """Searches one or several whole logs for a text, one after the other.

    Attributes:
        by_log: The search of each log by its name.
    """

    def __init__(self, paths: Mapping[str, Path], needle: str, least: Level = Level.ANY) -> None:
        self.by_log = {log: LogSearch(path, needle, least) for log, path in paths.items()}

    @property
    def counts(self) -> dict[str, int]:
        """How many lines match so far, for each log with a match."""
        counts = {log: len(search.places) for log, search in self.by_log.items()}
        return {log: count for log, count in counts.items() if count}

    @property
    def has_ended(self) -> bool:
        """Whether all logs were searched."""
        return all(search.has_ended for search in self.by_log.values())

    @property
    def progress(self) -> float:
        """The part of the bytes that was searched, from 0 to 1."""
        searches = self.by_log.values()
        return sum(search.done for search in searches) / max(
            1, sum(search.size for search in searches)
        )

    def cancel(self) -> None:
        """Ends `run` soon."""
        for search in self.by_log.values():
            search.cancel()

    def run(self) -> None:
        """Searches what is new since the last call; runs in a thread."""
        searches = self.by_log.values()
        for search in searches:
            search.measure()
        for search in searches:
            # A process that has not started yet has no log.
            with suppress(OSError):
                search.run()

    def beyond(self, log: str, place: float, direction: int) -> tuple[str, int] | None:
        """Returns the next match after a place of a log, or before it.

        The logs follow each other in a circle.

        Args:
            log: The log.
            place: The offset of a line.
            direction: 1 for after, -1 for before.

        Returns:
            The log and the place of the match; None if nothing matches.
        """
        places = self.by_log[log].places
        number = bisect_right(places, place) if direction > 0 else bisect_left(places, place) - 1
        if 0 <= number < len(places):
            return log, places[number]
        logs = list(self.by_log)[::direction]
        at = logs.index(log) + 1
        for other in logs[at:] + logs[:at]:
            if matches := self.by_log[other].places:
                return other, matches[0 if direction > 0 else -1]
        return None

    def outside(self, held: Mapping[str, int], direction: int) -> tuple[str, int] | None:
        """Returns the first or the last match before the lines that are held of each log.

        Args:
            held: The first place that is held, by log.
            direction: 1 for the first match, -1 for the last one.

        Returns:
            The log and the place of the match; None if there is none.
        """
        for log in list(self.by_log)[::direction]:
            places = self.by_log[log].places
            count = bisect_left(places, held[log]) if log in held else len(places)
            if count:
                return log, places[0 if direction > 0 else count - 1]
        return None


def _opened(path: Path) -> BinaryIO:
    try:
        return open_plain(path)
    except DamagedFileError as error:
        raise OSError(str(error)) from error
