"""Reads the series of a run for charts: all of it, and first its end if that takes long."""

from __future__ import annotations

import time

from tfckpt_trainer.rundir.event_log import SeriesTail
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.charting.series import Samples, Series

READ_SECONDS = 0.2
"""Seconds that a read takes at most, but for one block."""

NEWEST_BYTES = 1 << 20
"""Bytes of the end of a long series that are shown until all of it is read."""


class SeriesReader:
    """Reads the series from its beginning, a part at a time.

    So a run is drawn alike whether it was followed for hours or opened now.
    """

    def __init__(self, run: RunDirectory) -> None:
        """Creates a reader.

        Args:
            run: The run directory.
        """
        self._run = run
        self._whole = _Followed(run)
        self._newest: _Followed | None = None

    @property
    def has_read_all(self) -> bool:
        """Whether nothing is left for later reads."""
        return self._newest is None

    def read(self) -> Samples:
        """Returns what is recorded; until all is read, the newest part of it."""
        until = time.monotonic() + READ_SECONDS
        while self._whole.read_block():
            if time.monotonic() >= until:
                self._newest = self._newest or _Followed(self._run, NEWEST_BYTES)
                while self._newest.read_block():
                    pass
                return self._newest.series.samples
        self._newest = None
        return self._whole.series.samples


class _Followed:
    """A series, and where the next points of it are read."""

    def __init__(self, run: RunDirectory, *first: int) -> None:
        self.series = Series()
        self._tail = SeriesTail(run, *first)

    def read_block(self) -> bool:
        """Reads a block; returns whether there may be another."""
        before = self._tail.beginnings
        points = self._tail.read_new()
        if before and self._tail.beginnings != before:
            # Another file was put in place of the one that was read.
            self.series = Series()
        self.series.add(points)
        return self._tail.is_behind
