"""Tables for notebooks. All text comes from disk: it is cleaned and escaped."""

from __future__ import annotations

from collections.abc import Sequence

from tfckpt_tui.formats.markup import Markup, element


def html_table(
    caption: str, header: Sequence[str], rows: Sequence[Sequence[str]], most: int
) -> str:
    """Returns a table as HTML.

    Args:
        caption: What it shows.
        header: A title for each column.
        rows: The cells.
        most: How many rows to show; a last line counts the others.
    """
    lines = [element("caption", caption), _row("th", header)]
    lines += [_row("td", row) for row in rows[:most]]
    if len(rows) > most:
        lines.append(_row("td", (f"… and {len(rows) - most:,} more",)))
    return str(element("table", *lines))


def _row(tag: str, cells: Sequence[str]) -> Markup:
    return element("tr", *(element(tag, cell) for cell in cells))
