"""Text for terminals with 8 colours and few glyphs: the Linux console, and VT terminals."""

from __future__ import annotations

import os
from functools import lru_cache

from rich.color import Color as RichColor
from rich.color import ColorSystem, ColorType
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter

_CONSOLE = frozenset({"linux", "cons25", "ansi"})
"""Terminals whose font has lines and blocks, but few other glyphs."""

_VT = frozenset({"vt52", "vt100", "vt102", "vt220", "vt320"})
"""Terminals that show ASCII."""

_BLUISH = 25
"""By how much more blue than red the row of the cursor is."""

_BRAILLE = range(0x2800, 0x2900)
_UPPER_DOTS, _LOWER_DOTS = 0x1B, 0xE4
"""Dots of the upper two rows of a braille cell, and of the lower two (0x40 and 0x80 are lowest)."""

_ASCII = {
    **dict.fromkeys("●◉◆■◐◑◒◓◔◕◷•★☆", "*"),
    **dict.fromkeys("○◌◇", "o"),
    **dict.fromkeys("↻⟳♻", "@"),
    **dict.fromkeys("─╌┄–—−", "-"),
    **dict.fromkeys("━╸", "="),
    **dict.fromkeys("│┃┤├", "|"),
    **dict.fromkeys("╭╮╰╯┼┴┬└┘┌┐", "+"),
    **dict.fromkeys("▲△↑⇪", "^"),
    **dict.fromkeys("▼▽▾↓↧", "v"),
    **dict.fromkeys("›▸▶→", ">"),
    **dict.fromkeys("‹◂◀←↩↶⏎≤", "<"),
    **dict.fromkeys("█▄▀▌▐▊▎▏▇▆▅▃▂▁▓▒░", "#"),
    "✓": "+",
    "✗": "x",
    "‖": "=",
    "…": "~",
    "·": ".",
    "×": "x",
    "┊": ":",
    # What stands for characters that control a terminal.
    **dict.fromkeys((*map(chr, range(0x2400, 0x2422)), "\ufffd"), "?"),
    "≠": "#",
    "√": "v",
    "∅": "0",
    "Δ": "d",
    "µ": "u",
}
_CONSOLE_HAS = frozenset("─│┤├┼┴┬└┘┌┐█▄▀▌▐·")
_CONSOLE_CORNERS = {"╭": "┌", "╮": "┐", "╰": "└", "╯": "┘", "━": "─", "┃": "│", "╸": "─"}


class PlainTextFilter(LineFilter):
    """Replaces glyphs that a terminal lacks, and uses its 8 colours."""

    def __init__(self, *, has_blocks: bool) -> None:
        """Makes the filter.

        Args:
            has_blocks: Whether the font of the terminal has lines and blocks.
        """
        super().__init__()
        self._glyphs = str.maketrans(_glyphs(has_blocks=has_blocks))

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Returns the segments with other glyphs and colours."""
        del background
        return [
            segment
            if segment.control is not None
            else Segment(segment.text.translate(self._glyphs), _with_8_colours(segment.style))
            for segment in segments
        ]


def plain_text_filter() -> PlainTextFilter | None:
    """Returns the filter that this terminal needs, if it needs one."""
    terminal = os.environ.get("TERM", "").split("-")[0]
    if terminal in _CONSOLE:
        return PlainTextFilter(has_blocks=True)
    return PlainTextFilter(has_blocks=False) if terminal in _VT else None


def _glyphs(*, has_blocks: bool) -> dict[str, str]:
    glyphs = dict(_ASCII)
    if has_blocks:
        glyphs = {a: b for a, b in glyphs.items() if a not in _CONSOLE_HAS} | _CONSOLE_CORNERS
    return glyphs | {chr(code): _block(code - 0x2800, has_blocks) for code in _BRAILLE}


def _block(dots: int, has_blocks: bool) -> str:
    """Returns half blocks for the dots of a braille cell; ASCII where there are no blocks."""
    upper, lower = bool(dots & _UPPER_DOTS), bool(dots & _LOWER_DOTS)
    if not (upper or lower):
        return " "
    if upper and lower:
        return "█" if has_blocks else ":"
    if upper:
        return "▀" if has_blocks else "'"
    return "▄" if has_blocks else "."


@lru_cache(maxsize=2048)
def _with_8_colours(style: Style | None) -> Style | None:
    if style is None:
        return None
    fore, back = (_one_of_8(colour) for colour in (style.color, style.bgcolor))
    # The row of the cursor is slightly blue, and would become black.
    on_row = style.bgcolor is not None and _is_bluish(style.bgcolor)
    if on_row:
        back = RichColor("blue", ColorType.STANDARD, number=4)
    # A bright colour is a bold one.
    bold = style.bold or (style.color is not None and _number(style.color) >= 8)
    plain = style.without_color + Style(color="white" if on_row else fore, bgcolor=back)
    return plain + Style(bold=bold or on_row)


def _is_bluish(colour: RichColor) -> bool:
    triplet = colour.triplet
    return triplet is not None and triplet.blue - triplet.red > _BLUISH


def _one_of_8(colour: RichColor | None) -> RichColor | None:
    if colour is None or colour.is_default:
        return colour
    return RichColor(str(_number(colour) % 8), ColorType.STANDARD, number=_number(colour) % 8)


def _number(colour: RichColor) -> int:
    return colour.downgrade(ColorSystem.STANDARD).number or 0
