"""Replaces a long series by one whose older part is thinned."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import BinaryIO, NamedTuple

from tfckpt_trainer.rundir.event_log import LINE_BYTES
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import SeriesPoint
from tfckpt_trainer.rundir.series import (
    HEADER_BYTES,
    NOT_THINNED,
    ThinnedPart,
    encode_header,
    parse_points,
    read_thinned_part,
)
from tfckpt_trainer.rundir.storage.disk import disk
from tfckpt_trainer.rundir.storage.documents import encode
from tfckpt_trainer.rundir.storage.files import (
    create_file,
    delete_file,
    open_descriptor,
    rename,
)
from tfckpt_trainer.rundir.storage.tail import after_hole
from tfckpt_trainer.rundir.thinning import thin_points

SERIES_LIMIT = 256 << 20
"""Size in bytes above which a series is thinned.

Then all points of its newest half are kept, and the others take up to a quarter of it, so that the
next time is days away. A point with three metrics has 200 bytes: half of it is a week of points.
"""

_BLOCK = 1 << 16
"""Bytes that are read at once: so few that the loop never waits long for Python's global lock."""

_MOST_STEPS = 1 << 60
"""No run has so many. A line of the series may say anything."""


class _Source(NamedTuple):
    """An open series that is to be replaced.

    Attributes:
        descriptor: The open file.
        facts: What it was when it was opened.
        begin: Where its points begin.
        cut: Where the part begins of which all points are kept.
        earlier: What it tells of its thinned part.
    """

    descriptor: int
    facts: os.stat_result
    begin: int
    cut: int
    earlier: ThinnedPart


class _Thinned(NamedTuple):
    """What thinning the older part found.

    Attributes:
        fits: Whether the result is small enough.
        newest: Time of the newest point, in seconds since the epoch.
        highest_step: The highest step, as far as it read.
    """

    fits: bool
    newest: float
    highest_step: int


class SeriesThinner:
    """Replaces the series of a run by one whose older part is thinned.

    A crash or a full disk leaves the old file or the new one. Memory holds one interval and one
    block.
    """

    def __init__(
        self,
        run: RunDirectory,
        *,
        writing: AbstractContextManager[object],
        pause: Callable[[], None],
        limit: int = SERIES_LIMIT,
    ) -> None:
        """Prepares it.

        Args:
            run: The run directory.
            writing: The lock that whoever appends to the series holds. It is taken for the last
                lines alone.
            pause: Called after each block. An error that it raises ends the thinning.
            limit: The size in bytes above which a series is thinned.
        """
        self._series = run.series
        # One name, so that a crash leaves one file, which the next attempt deletes.
        self._temporary = run.series.with_name(f".{run.series.name}.tmp")
        self._writing = writing
        self._pause = pause
        self._limit = limit

    def thin(self) -> None:
        """Replaces the series.

        Raises:
            DamagedFileError: It is no regular file.
            OSError: The disk refuses. The series is as it was.
        """
        descriptor, facts = open_descriptor(self._series)
        try:
            found = read_thinned_part(descriptor)
            begin = HEADER_BYTES if found is not None else 0
            cut = _line_begin(descriptor, max(begin, facts.st_size - self._limit // 2))
            self._replace(_Source(descriptor, facts, begin, cut, found or NOT_THINNED))
        finally:
            os.close(descriptor)
            with suppress(OSError):
                delete_file(self._temporary)

    def _replace(self, source: _Source) -> None:
        width, begin = source.earlier.width, source.begin
        while True:
            delete_file(self._temporary)
            with create_file(self._temporary) as file:
                disk().set_mode(file.fileno(), stat.S_IMODE(source.facts.st_mode))
                file.write(b" " * HEADER_BYTES)
                found = self._write_thinned(file, source, begin, width)
                if found.fits:
                    self._put_in_place(file, source, width, found.newest)
                    return
            if width > found.highest_step:
                # Each restart and branch has an interval of its own: there are too many of them.
                begin = _line_begin(source.descriptor, (begin + source.cut) // 2)
            else:
                width *= 2

    def _write_thinned(self, file: BinaryIO, source: _Source, begin: int, width: int) -> _Thinned:
        """Writes the older part thinned, until it is too large."""
        newest, highest_step, written = source.earlier.before, 0, 0
        for point in thin_points(self._points_between(source.descriptor, begin, source.cut), width):
            newest = max(newest, point.at)
            highest_step = max(highest_step, min(point.step, _MOST_STEPS))
            written += file.write(encode(point) + b"\n")
            if written > self._limit // 4:
                return _Thinned(False, newest, highest_step)
        return _Thinned(True, newest, highest_step)

    def _points_between(self, descriptor: int, begin: int, end: int) -> Iterator[SeriesPoint]:
        """Yields the points of a part of an open series, which ends with a line."""
        rest = b""
        place = after_hole(descriptor, begin, end)
        while place < end and (data := os.pread(descriptor, min(_BLOCK, end - place), place)):
            place += len(data)
            data = rest + data
            cut = data.rfind(b"\n") + 1
            # A line that is longer is none of ours.
            rest = data[cut:] if len(data) - cut <= LINE_BYTES else b""
            yield from parse_points(data[:cut])
            self._pause()
            place = after_hole(descriptor, place, end)

    def _put_in_place(self, file: BinaryIO, source: _Source, width: int, newest: float) -> None:
        """Copies all points since `source.cut`, and replaces the series."""
        generation = source.earlier.generation + 1
        thinned = ThinnedPart(generation, width, newest, file.tell(), source.cut)
        place = _copy(file, source.descriptor, source.cut, self._pause)
        file.flush()
        # What takes long is written before a writer has to wait.
        disk().flush(file.fileno())
        with self._writing:
            _copy(file, source.descriptor, place)
            file.seek(0)
            file.write(encode_header(thinned))
            file.flush()
            disk().flush(file.fileno())
            # Somebody else may have put another file there.
            if os.path.samestat(self._series.lstat(), source.facts):
                rename(self._temporary, self._series)


def _copy(
    file: BinaryIO, descriptor: int, place: int, pause: Callable[[], None] = lambda: None
) -> int:
    """Copies what an open file has from a place on; returns where it ends."""
    while data := os.pread(descriptor, _BLOCK, place):
        file.write(data)
        place += len(data)
        pause()
    return place


def _line_begin(descriptor: int, at: int) -> int:
    """Returns where the first line after a place begins."""
    found = os.pread(descriptor, LINE_BYTES, at).find(b"\n")
    # A line that is longer is none of ours: its end is left out as a damaged line.
    return at + found + 1
