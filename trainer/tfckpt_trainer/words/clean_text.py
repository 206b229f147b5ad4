"""Text from outside made safe: one line without characters that control, reorder or hide."""

from __future__ import annotations

import re

UNSAFE = (
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
"""A pattern of characters that control a terminal, or reorder, hide or break the text around them.

C0 and C1 controls, line separators, direction marks, invisible characters, lone surrogates (bytes
of a file name that are not UTF-8), and the invisible "tag" block.
"""

ESCAPES = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)|[ -/]*[0-OQ-WYZ\\`-~])"
"""A pattern of whole escape sequences: colours, cursor movements, titles."""

LONGEST = 4096
"""Maximum length of a cleaned text, in characters."""

_DELETE = 0x7F
_CONTROL_PICTURES = 0x2400
_PICTURE_OF_DELETE = "\u2421"
_REPLACEMENT = "\ufffd"
_STACKED_MARKS = r"[\u0300-\u036f\u1ab0-\u1aff\u20d0-\u20ff]{4,}"


def is_utf8(text: str) -> bool:
    """Whether a text can be written as UTF-8.

    Bytes that are not UTF-8, as in the name of a file, are read as lone surrogates.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def clean(text: str) -> str:
    """Returns `text` as one line without terminal controls.

    Control characters become their pictures (ESC becomes `\u241b`), so names that differ in one
    still look different. Characters that reorder or hide text become `\ufffd`. At most three
    combining marks per letter and `LONGEST` characters are kept.
    """
    if len(text) <= LONGEST and text.isascii() and text.isprintable():
        # The usual case, in a tenth of the time.
        return text
    if len(text) > LONGEST:
        text = text[: LONGEST - 1] + "…"
    # Compiled when it is first needed: that takes a hundredth of the time of a command.
    text = re.sub(UNSAFE, _picture, text)
    return re.sub(_STACKED_MARKS, lambda marks: marks[0][:3], text)


def as_seen(line: str) -> str:
    """Returns a line of output as a terminal leaves it, safe to show.

    Escape sequences, such as those of colours, are left out, and so is what was overwritten after a
    carriage return, such as the earlier states of a progress bar.
    """
    if "\x1b" in line:
        line = re.sub(ESCAPES, "", line)
    return clean(line.rstrip("\r").rpartition("\r")[2].expandtabs(4))


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(_CONTROL_PICTURES + code)
    return _PICTURE_OF_DELETE if code == _DELETE else _REPLACEMENT
