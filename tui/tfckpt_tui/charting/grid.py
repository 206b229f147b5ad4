"""Which charts a page shows: their grid, those that match a filter, those that are joined."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from itertools import product

import msgspec

from tfckpt_tui.charting.measurements import Measurement

Tile = tuple[Measurement, ...]
"""The measurements of one chart."""

_USUAL = (58, 15)
"""Columns and lines that a chart has by default."""

_LEAST = (26, 6)
"""Columns and lines that a chart needs."""

_MOST = 3


class GridSize(msgspec.Struct, frozen=True):
    """How many charts are beside and below each other."""

    columns: int = 1
    rows: int = 1

    @property
    def count(self) -> int:
        """The number of charts on a page."""
        return self.columns * self.rows

    def fitted(self, width: int, height: int) -> GridSize:
        """Returns the grid with no more charts than there is room for."""
        most = _counts(width, height, _LEAST)
        return GridSize(min(self.columns, most.columns), min(self.rows, most.rows))


MOST_CHARTS = GridSize(_MOST, _MOST).count
"""Charts on a page."""

SIZES = sorted(
    (GridSize(columns, rows) for columns, rows in product(range(1, _MOST + 1), repeat=2)),
    key=lambda size: (size.count, size.columns),
)
"""All grids, smallest first."""


def usual_grid(charts: int, width: int, height: int) -> GridSize:
    """Returns the smallest grid for a number of charts, or else the largest that fits.

    Args:
        charts: The number of charts.
        width: Columns of the area for them.
        height: Lines of the area for them.
    """
    most = _counts(width, height, _USUAL)
    fitting = (one for one in SIZES if one.columns <= most.columns and one.rows <= most.rows)
    return next((size for size in fitting if size.count >= charts), most)


def next_grid(size: GridSize, width: int, height: int) -> GridSize:
    """Returns the next larger grid that fits into an area; after the largest, one chart."""
    fitting = [one for one in SIZES if one.fitted(width, height) == one]
    place = fitting.index(size) if size in fitting else -1
    return fitting[(place + 1) % len(fitting)]


def _counts(width: int, height: int, each: tuple[int, int]) -> GridSize:
    columns, rows = width // each[0], height // each[1]
    return GridSize(max(1, min(_MOST, columns)), max(1, min(_MOST, rows)))


REGULAR = "~"
"""What a regular expression begins with."""

_LONGEST_NAME = 200
"""Characters of a name that a regular expression looks at: a slow one must not stop the app."""


def matches(name: str, pattern: str) -> bool:
    """Whether a name contains a text, or matches a glob such as `val_*`; cases are the same.

    After a `~`, the text is a regular expression; one that is not complete yet matches nothing.
    """
    pattern = pattern.strip()
    if pattern.startswith(REGULAR):
        regular = _regular(pattern)
        return regular is not None and regular.search(name[:_LONGEST_NAME]) is not None
    name, pattern = name.casefold(), pattern.casefold()
    is_glob = any(sign in pattern for sign in "*?")
    return fnmatchcase(name, pattern) if is_glob else pattern in name


def is_incomplete(pattern: str) -> bool:
    """Whether a pattern is a regular expression that is not complete yet, or wrong."""
    return pattern.strip().startswith(REGULAR) and _regular(pattern.strip()) is None


def _regular(pattern: str) -> re.Pattern[str] | None:
    try:
        return re.compile(pattern[len(REGULAR) :], re.IGNORECASE)
    except (re.error, OverflowError, RecursionError):
        return None


def tiles_of(
    measurements: Sequence[Measurement], joined: Sequence[Collection[str]], pattern: str = ""
) -> list[Tile]:
    """Returns the charts of a page.

    Args:
        measurements: All measurements of the run.
        joined: Names of measurements that share a chart. It is where the first of them would be.
        pattern: Shows only charts with a measurement that `matches` it.
    """
    tiles: list[Tile] = []
    placed: set[str] = set()
    for one in measurements:
        if one.name in placed:
            continue
        group = next((names for names in joined if one.name in names), ())
        tile = tuple(other for other in measurements if other.name in group) if group else (one,)
        placed.update(other.name for other in tile)
        if not pattern or any(matches(other.name, pattern) for other in tile):
            tiles.append(tile)
    return tiles
