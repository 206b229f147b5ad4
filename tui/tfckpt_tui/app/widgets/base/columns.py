"""Columns of a list: which of them fit into a width, and how rows are laid out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace
from rich.cells import cell_len

from tfckpt_tui.app.widgets.base.styled_text import Span, StyledLine, fit, padded
from tfckpt_tui.formats.list_columns import ListCell

GAP = 2
"""Cells between columns."""


class Column(msgspec.Struct, frozen=True):
    """One column.

    Attributes:
        key: Unique name.
        title: Heading.
        width: Minimum width in cells.
        rank: Columns with the highest rank are left out first; 0 is always shown.
        align: `<` left or `>` right.
        stretch: Share of the spare width, relative to other columns.
    """

    key: str
    title: str
    width: int
    rank: int = 0
    align: str = ">"
    stretch: int = 0


def column_of(key: str, cell: ListCell) -> Column:
    """Returns the column of a list from its declaration."""
    return Column(key, cell.title, cell.width, cell.rank, cell.align, cell.stretch)


def stretched(column: Column, texts: Iterable[str]) -> Column:
    """Returns a column that is no wider than its texts, and has its share of the spare width."""
    longest = max(map(cell_len, (column.title, *texts)))
    width = min(column.width, longest)
    return replace(column, width=width, stretch=max(1, longest - width))


class Layout(msgspec.Struct, frozen=True):
    """The visible columns with their final widths."""

    columns: tuple[tuple[Column, int], ...]

    def head(self) -> StyledLine:
        """Returns the headings."""
        spans: list[Span] = []
        for column, width in self.columns:
            spans.append((padded(column.title, width, column.align), "label"))
            spans.append((" " * GAP, ""))
        return StyledLine(tuple(spans[:-1]))

    def width_of(self, key: str) -> int:
        """Returns the width of a column; 0 if it is left out."""
        return next((width for column, width in self.columns if column.key == key), 0)

    def column_at(self, x: int) -> str | None:
        """Returns the key of the column that is `x` cells from the left, if there is one."""
        left = 0
        for column, width in self.columns:
            if left <= x < left + width:
                return column.key
            left += width + GAP
        return None

    def row(self, cells: Mapping[str, Sequence[Span]]) -> StyledLine:
        """Returns one row.

        Args:
            cells: Spans by the key of their column.
        """
        spans: list[Span] = []
        for column, width in self.columns:
            cell = cells.get(column.key, ())
            size = StyledLine(tuple(cell)).width
            if column.align == ">" and size < width:
                spans.append((" " * (width - size), ""))
                spans.extend(cell)
            else:
                spans.extend(fit(cell, width))
            spans.append((" " * GAP, ""))
        return StyledLine(tuple(spans[:-1]))


def choose(columns: Sequence[Column], width: int) -> Layout:
    """Returns the columns that fit into `width`; those with the highest rank are left out first.

    Of those, columns that are narrow enough for the rest of the room come back. If too little room
    is left for the others, the last one that stretches is narrower.
    """
    chosen = list(columns)
    while len(chosen) > 1 and _needed(chosen) > width:
        worst = max(chosen, key=lambda column: column.rank)
        if worst.rank == 0:
            break
        chosen.remove(worst)
    for column in sorted(columns, key=lambda column: column.rank):
        more = [other for other in columns if other in chosen or other is column]
        if column not in chosen and _needed(more) <= width:
            chosen = more
    spare = max(0, width - _needed(chosen))
    parts = sum(column.stretch for column in chosen)
    sized = []
    for column in chosen:
        extra = spare * column.stretch // parts if parts else 0
        sized.append((column, column.width + extra))
    too_wide = _needed(chosen) - width
    narrowed = max((place for place, column in enumerate(chosen) if column.stretch), default=None)
    if too_wide > 0 and narrowed is not None:
        column = chosen[narrowed]
        sized[narrowed] = column, max(1, column.width - too_wide)
    return Layout(tuple(sized))


def _needed(columns: Sequence[Column]) -> int:
    return sum(column.width for column in columns) + GAP * (len(columns) - 1)
