"""The metric series of a run: JSON lines, of which the oldest may be thinned.

The first line of a thinned series says so. Readers that followed the file before it was replaced
find there where they were, so that they neither miss a point nor get one twice.
"""

from __future__ import annotations

import os
from contextlib import suppress

import msgspec

from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import SeriesPoint
from tfckpt_trainer.rundir.storage.documents import Document, decode, decoder_of, encode
from tfckpt_trainer.rundir.storage.files import open_descriptor
from tfckpt_trainer.rundir.storage.tail import Tail, newest_lines

SERIES_BYTES = 1 << 30
"""Bytes at the end of the series that are read at most. A trainer keeps fewer."""

RECENT_BYTES = 1 << 15
"""Bytes that `read_newest_points` takes from the end of the series."""

HEADER_BYTES = 256
"""Bytes of the first line of a thinned series. It is written last, when its values are known."""

_BLOCK = 1 << 20
_CHECKED_BYTES = 64


class ThinnedPart(msgspec.Struct, frozen=True):
    """What a series tells of the part that is thinned.

    Attributes:
        generation: How often the series was thinned.
        width: Steps of the intervals whose ends and extremes are kept.
        before: Time of the newest thinned point, in seconds since the epoch.
        end: Where the part ends, in bytes. All points are kept from there on.
        replaced_end: Where those points began in the file that this one replaced.
    """

    generation: int
    width: int
    before: float
    end: int
    replaced_end: int

    def place_of(self, offset: int) -> int | None:
        """Returns where a place of the replaced file is in this one; None if it was thinned."""
        moved = offset - self.replaced_end
        return self.end + moved if moved >= 0 else None


NOT_THINNED = ThinnedPart(generation=0, width=1, before=0.0, end=0, replaced_end=0)
"""What is known of a series of which all points are kept."""


class SeriesHeader(Document, frozen=True, kw_only=True):
    """The first line of a thinned series."""

    thinned: ThinnedPart


def encode_header(thinned: ThinnedPart) -> bytes:
    """Returns the first line of a thinned series."""
    return encode(SeriesHeader(thinned=thinned)).ljust(HEADER_BYTES - 1) + b"\n"


def read_thinned_part(descriptor: int) -> ThinnedPart | None:
    """Returns what an open series tells of its thinned part; None if it is whole."""
    data = os.pread(descriptor, HEADER_BYTES, 0)
    if b'"thinned"' not in data or not data.endswith(b"\n"):
        return None
    try:
        return decode(data, SeriesHeader, "series.jsonl").thinned
    except DamagedFileError:
        return None


def find_thinned_part(run: RunDirectory) -> ThinnedPart | None:
    """Returns what the series of a run tells of its thinned part; None if it is whole."""
    try:
        descriptor, _ = open_descriptor(run.series)
    except (OSError, DamagedFileError):
        return None
    try:
        return read_thinned_part(descriptor)
    finally:
        os.close(descriptor)


def read_newest_points(run: RunDirectory, most: int) -> list[SeriesPoint]:
    """Returns the points in the last lines of the series, oldest first.

    Args:
        run: The run directory.
        most: How many lines, as far as they are in the last `RECENT_BYTES`.
    """
    try:
        descriptor, facts = open_descriptor(run.series)
    except (OSError, DamagedFileError):
        return []
    try:
        begin = max(0, facts.st_size - RECENT_BYTES)
        data = os.pread(descriptor, RECENT_BYTES, begin)
    finally:
        os.close(descriptor)
    # The line in which it begins is not complete.
    lines = data[data.find(b"\n") + 1 :] if begin else data
    return parse_points(newest_lines(lines, most))


def parse_points(lines: bytes) -> list[SeriesPoint]:
    """Parses complete lines; what is no point of this release is left out.

    Earlier trainers wrote several points into one line.
    """
    points = _parse_together(lines)
    if points is None:
        # Together they take a tenth of the time that each needs alone.
        points = [point for line in lines.splitlines() for point in _parse_together(line) or ()]
    return points


def _parse_together(lines: bytes) -> list[SeriesPoint] | None:
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        points = decoder_of(SeriesPoint).decode_lines(lines)
        if all(point.schema <= SeriesPoint.version for point in points):
            return points
    return None


class SeriesTail(Tail[SeriesPoint]):
    """Reads the new points of a series, in blocks that a screen need not wait for.

    Attributes:
        thinned: What the series tells of its thinned part, as of the last read; None if it is
            whole.
    """

    def __init__(self, run: RunDirectory, first: int = SERIES_BYTES) -> None:
        """Creates a reader.

        Args:
            run: The run directory.
            first: Bytes at the end of the series in which the first read begins.
        """
        super().__init__(run.series, SeriesPoint, first=first, most=_BLOCK)
        self.thinned: ThinnedPart | None = None
        self._generation = 0
        self._last = b""

    def _find_place(self, descriptor: int, facts: os.stat_result) -> None:
        self.thinned = read_thinned_part(descriptor)
        generation = self.thinned.generation if self.thinned is not None else 0
        if generation != self._generation:
            # Whatever the number of its inode, it is another file.
            place = self._place_in_next(descriptor, facts.st_size)
            self._inode = facts.st_ino if place is not None else None
            self._offset = place or 0
            self._generation = generation
        super()._find_place(descriptor, facts)
        if self.thinned is not None:
            self._offset = max(self._offset, HEADER_BYTES)

    def _place_in_next(self, descriptor: int, size: int) -> int | None:
        """Returns where to go on in the file that replaced the one that was read; None if nowhere.

        What precedes is compared: the number of a generation may be that of another run.
        """
        thinned = self.thinned
        if self._inode is None or thinned is None or thinned.generation != self._generation + 1:
            return None
        place = thinned.place_of(self._offset)
        if place is None or not len(self._last) <= place <= size:
            return None
        before = os.pread(descriptor, len(self._last), place - len(self._last))
        return place if before == self._last else None

    def _parse(self, data: bytes) -> tuple[list[SeriesPoint], int]:
        end = data.rfind(b"\n") + 1
        if end:
            self._last = data[max(0, end - _CHECKED_BYTES) : end]
        return parse_points(data[:end]), end
