"""Text from outside made safe for a terminal, and measured in terminal cells."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable

from tfckpt_trainer.words.clean_text import LONGEST as LONGEST
from tfckpt_trainer.words.clean_text import UNSAFE as UNSAFE
from tfckpt_trainer.words.clean_text import as_seen as as_seen
from tfckpt_trainer.words.clean_text import clean as clean

_STRATEGIES = {"_DefaultDistributionStrategy": "one device (default)"}
"""Strategies whose class has no public name."""

_ONE_CELL_EACH = "[\0-\x7f\xa1-\xac\xae-\u02ff\u2010-\u2027\u2190-\u21ff]*"
"""ASCII, Latin letters, dashes, dots and arrows, without anything that combines with them.

It is compiled when it is used: it takes long, and most commands print ASCII.
"""


def clean_message(text: str) -> str:
    """Returns a message as one cleaned line; its lines are joined by blanks, not by pictures."""
    return clean(" ".join(text.split()))


def clean_lines(text: str) -> list[str]:
    """Returns the cleaned lines of `text`, with tabs expanded."""
    return [clean(line.expandtabs(4)) for line in text.splitlines()]


def strategy_words(name: str) -> str:
    """Returns how a `tf.distribute` strategy is shown; safe to show.

    Args:
        name: The name of its class.
    """
    public = name.removesuffix("V1")
    return _STRATEGIES.get(public, clean(public))


def csv_line(cells: Iterable[object]) -> str:
    """Returns one line of CSV, without its end."""
    # Imported here: most commands write none.
    import csv

    file = io.StringIO()
    csv.writer(file, lineterminator="").writerow(cells)
    return file.getvalue()


def has_single_cells(text: str) -> bool:
    """Whether each character of a cleaned text surely takes one terminal cell."""
    return text.isascii() or re.fullmatch(_ONE_CELL_EACH, text) is not None


def cell_width(text: str) -> int:
    """Returns the number of terminal cells that a cleaned text takes."""
    if has_single_cells(text):
        return len(text)
    # Imported here: it takes 20 ms, which neither commands nor the first frame wait for.
    from wcwidth import wcswidth

    return max(0, wcswidth(text))


def pad(text: str, width: int, align: str = "<") -> str:
    """Returns `text` padded to `width` cells, aligned `<` left or `>` right; never cut."""
    gap = " " * (width - cell_width(text))
    return gap + text if align == ">" else text + gap


def cut(text: str, width: int) -> str:
    """Returns the beginning of `text` that fits in `width` cells."""
    # A cell holds at most one letter with three combining marks.
    text = text[: 4 * width]
    while cell_width(text) > width:
        text = text[:-1]
    return text
