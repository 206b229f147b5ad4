"""Pages from anywhere in a log of any size, and a search of all of it."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import BinaryIO

from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.rundir.files import open_plain
from tfckpt_tui.monitor.logs import LINE_BYTES, LogLine, shown_line

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
    lines: list[LogLine] = []
    place = start
    while place < least_end:
        raw = file.readline(LINE_BYTES)
        if not raw:
            break
        lines.append(LogLine(shown_line(raw.removesuffix(b"\n")), None, place))
        place += len(raw)
    return LogPage(start, place, size, tuple(lines))


def _line_start(file: BinaryIO, place: int) -> int:
    """Returns where the line at `place` begins; in a very long line, a place in its middle."""
    first = max(0, place - LINE_BYTES)
    file.seek(first)
    before = file.read(place - first)
    found = before.rfind(b"\n")
    if found >= 0:
        return first + found + 1
    return first if first == 0 else place


class LogSearch:
    """Searches a whole log for a text, ignoring case.

    Attributes:
        needle: The text.
        places: Offsets of the lines with a match, ascending, so far.
        done: Bytes searched so far.
        size: Bytes of the log.
    """

    def __init__(self, path: Path, needle: str) -> None:
        self.needle = needle
        self.places: array[int] = array("Q")
        self.done = 0
        self.size = 0
        self._path = path
        self._cancelled = Event()

    @property
    def has_ended(self) -> bool:
        """Whether all of the log was searched."""
        return self.done >= self.size > 0

    def cancel(self) -> None:
        """Ends `run` soon."""
        self._cancelled.set()

    def run(self) -> None:
        """Searches what is new since the last call; runs in a thread.

        Raises:
            OSError: The log cannot be read.
        """
        needle = self.needle.casefold()
        with _opened(self._path) as file:
            self.size = os.fstat(file.fileno()).st_size
            file.seek(self.done)
            for place, raw in self._lines(file):
                if needle in raw.decode("utf-8", "replace").casefold():
                    self.places.append(place)

    def _lines(self, file: BinaryIO) -> Iterator[tuple[int, bytes]]:
        """Yields the lines that may match, with their offsets."""
        plain = self.needle.isascii()
        wanted = self.needle.lower().encode() if plain else b""
        while not self._cancelled.is_set() and len(self.places) < _MOST_MATCHES:
            data = file.read(_SEARCH_BYTES)
            # A line that ends behind the chunk belongs to it, as far as pages show it at once.
            data += file.readline(LINE_BYTES) if data and not data.endswith(b"\n") else b""
            if not data:
                self.done = max(self.done, self.size)
                return
            # Most chunks hold no match, and need no look at each line.
            if not plain or wanted in data.lower():
                place = self.done
                for raw in data.split(b"\n"):
                    for start in range(0, max(1, len(raw)), LINE_BYTES):
                        yield place + start, raw[start : start + LINE_BYTES]
                    place += len(raw) + 1
            self.done += len(data)


def _opened(path: Path) -> BinaryIO:
    try:
        return open_plain(path)
    except DamagedFileError as error:
        raise OSError(str(error)) from error
