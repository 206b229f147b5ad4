"""Text from outside made safe for a terminal, and measured in terminal cells."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable

UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Characters that control a terminal, or reorder, hide or break the text around them.

C0 and C1 controls, line separators, direction marks, invisible characters, lone surrogates (bytes
of a file name that are not UTF-8), and the invisible "tag" block.
"""

LONGEST = 4096
"""Maximum length of a cleaned text, in characters."""

_STRATEGIES = {"_DefaultDistributionStrategy": "one device (default)"}
"""Strategies whose class has no public name."""

_DELETE = 0x7F
_CONTROL_PICTURES = 0x2400
_PICTURE_OF_DELETE = "\u2421"
_REPLACEMENT = "\ufffd"
_STACKED_MARKS = re.compile(r"[\u0300-\u036f\u1ab0-\u1aff\u20d0-\u20ff]{4,}")


def clean(text: str) -> str:
    """Returns `text` as one line without terminal controls.

    Control characters become their pictures (ESC becomes `\u241b`), so names that differ in one
    still look different. Characters that reorder or hide text become `\ufffd`. At most three
    combining marks per letter and `LONGEST` characters are kept.
    """
    if len(text) > LONGEST:
        text = text[: LONGEST - 1] + "…"
    text = UNSAFE.sub(_picture, text)
    return _STACKED_MARKS.sub(lambda marks: marks[0][:3], text)


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
    file = io.StringIO()
    csv.writer(file, lineterminator="").writerow(cells)
    return file.getvalue()


def cell_width(text: str) -> int:
    """Returns the number of terminal cells that a cleaned text takes."""
    if text.isascii():
        return len(text)
    # Imported here: it takes 20 ms, which the first frame of the app does not wait for.
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


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(_CONTROL_PICTURES + code)
    return _PICTURE_OF_DELETE if code == _DELETE else _REPLACEMENT
