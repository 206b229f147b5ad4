"""The only door through which text from outside reaches the screen."""

from __future__ import annotations

import re

UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
"""What a terminal may act on, or what reorders, hides or breaks the text around it.

C0 and C1 controls, separators of lines, marks of direction, invisible characters, lone
surrogates (bytes of a file name that are no UTF-8), and the invisible "tag" block.
"""

LONGEST = 4096
"""Characters beyond which a text is cut: no name or message needs more on a screen."""

_DELETE = 0x7F
_CONTROL_PICTURES = 0x2400
_PICTURE_OF_DELETE = "\u2421"
_REPLACEMENT = "\ufffd"
_STACKED_MARKS = re.compile(r"[\u0300-\u036f\u1ab0-\u1aff\u20d0-\u20ff]{4,}")


def clean(text: str) -> str:
    """Returns `text` made safe to show: one line, nothing a terminal would act on.

    A control character becomes its picture (ESC is `\u241b`), so that two names that differ
    in one still look different; what would reorder or hide text becomes `\ufffd`. More than
    three combining marks on one letter are dropped, and a text beyond `LONGEST` is cut.
    """
    if len(text) > LONGEST:
        text = text[: LONGEST - 1] + "…"
    text = UNSAFE.sub(_picture, text)
    return _STACKED_MARKS.sub(lambda marks: marks[0][:3], text)


def clean_lines(text: str) -> list[str]:
    """Returns the lines of `text`, each made safe; tabs become spaces first."""
    return [clean(line.expandtabs(4)) for line in text.splitlines()]


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(_CONTROL_PICTURES + code)
    return _PICTURE_OF_DELETE if code == _DELETE else _REPLACEMENT
