"""Text and tables of Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tfckpt_tui.formats.text import cell_width, clean, pad

_SPECIAL = re.compile(r"[\\`*\[\]<>|&~#!]|(?<![^\W_])_|_(?![^\W_])|://|(?<=www)\.|@")


def escape(text: str) -> str:
    """Returns one line of Markdown that shows `text`: no character of it formats or links."""
    return _SPECIAL.sub(lambda found: f"\\{found[0]}", clean(text))


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns the lines of a table with aligned columns.

    Args:
        header: The titles, escaped.
        rows: The cells of each row, escaped.
    """
    cells = [header, *rows]
    widths = [max(3, *map(cell_width, column)) for column in zip(*cells, strict=True)]
    lines = [[pad(cell, width) for cell, width in zip(row, widths, strict=True)] for row in cells]
    lines.insert(1, ["-" * width for width in widths])
    return [f"| {' | '.join(line)} |" for line in lines]
