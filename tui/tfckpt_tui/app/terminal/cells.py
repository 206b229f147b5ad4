"""What the terminal shows, cell by cell: a frame writes only the cells that it changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style as RichStyle
from textual._compositor import ChopsUpdate, CompositorUpdate, LayoutUpdate
from textual.geometry import Size
from textual.strip import Strip

_LONGEST_GAP = 4
"""So many equal cells between changed ones are written again; moving the cursor is longer."""


class Style(NamedTuple):
    """The parameters of the escape sequence that selects a style.

    Attributes:
        attributes: Of bold and the like.
        fore: Of the colour of the text.
        back: Of the colour of the background.
    """

    attributes: str = ""
    fore: str = ""
    back: str = ""


Cell = tuple[str, Style]
"""A character and its style.

A text with characters that are not one cell wide is all in its first cell, and the others are
empty. Terminals disagree on where such characters end: the text is written whole or not at all.
"""

_PLAIN = Style()
_UNSEEN_ON_BLANKS = frozenset({"", "1", "2", "3"})
"""Bold, dim and italic."""

_UNKNOWN: Cell = ("\0", _PLAIN)
"""Equals nothing that is drawn."""


class TerminalCells:
    """The cells of the terminal, as the frames so far left them.

    Attributes:
        size: The size of the last whole frame.
    """

    def __init__(self) -> None:
        self.size = Size(0, 0)
        self._lines: list[list[Cell]] = []

    def forget(self) -> None:
        """Has the next frames write all their cells: the terminal may show anything."""
        self._lines = []

    def changes(self, update: CompositorUpdate, console: Console) -> str:
        """Returns what changes the terminal, and takes it as written.

        Args:
            update: A frame of Textual.
            console: Knows how many colours the terminal has.
        """
        if isinstance(update, LayoutUpdate):
            if update.region.size != self.size:
                self.size = update.region.size
                self.forget()
            pieces = _all_pieces(update)
        elif isinstance(update, ChopsUpdate):
            pieces = _some_pieces(update)
        else:
            self.forget()
            return update.render_segments(console)
        colours = console._color_system or ColorSystem.TRUECOLOR
        # A signal may call `forget` meanwhile.
        lines = self._lines
        writer = _Writer()
        for y, x, strip in pieces:
            while y >= len(lines):
                lines.append([])
            _change(lines[y], x, _cells(strip, colours), y, writer)
        return writer.text


class ChangedCells(CompositorUpdate):
    """A frame that writes only the cells that it changes."""

    def __init__(self, cells: TerminalCells, update: CompositorUpdate) -> None:
        self._cells = cells
        self._update = update

    def render_segments(self, console: Console) -> str:
        """Returns the escape sequences."""
        return self._cells.changes(self._update, console)


class _Writer:
    """Collects the escape sequences of a frame."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._style = _PLAIN

    @property
    def text(self) -> str:
        """All sequences; they leave the terminal in the default style."""
        end = "\x1b[0m" if self._style != _PLAIN else ""
        return "".join((*self._parts, end))

    def move_to(self, x: int, y: int) -> None:
        """Moves the cursor."""
        self._parts.append(f"\x1b[{y + 1};{x + 1}H")

    def write(self, cells: Iterable[Cell]) -> None:
        """Writes cells, with a sequence where the style changes."""
        parts, current = self._parts, self._style
        for character, style in cells:
            if style != current and (character != " " or style != _blank(current)):
                parts.append(_transition(current, style))
                current = style
            parts.append(character)
        self._style = current


def _change(line: list[Cell], x: int, after: Sequence[Cell], y: int, writer: _Writer) -> None:
    """Writes the cells of a line that differ, from column `x` on, and stores them."""
    end = x + len(after)
    if len(line) < end:
        line += [_UNKNOWN] * (end - len(line))
    before = line[x:end]
    if before == after:
        return
    line[x:end] = after
    for first, last in _runs(before, after):
        writer.move_to(x + first, y)
        writer.write(after[first:last])


def _runs(before: Sequence[Cell], after: Sequence[Cell]) -> Iterator[tuple[int, int]]:
    """Yields the start and the end of each run of changed cells."""
    changed = [place for place, cell in enumerate(after) if cell != before[place]]
    first = last = changed[0]
    for place in changed[1:]:
        gap = after[last + 1 : place]
        style = after[last][1]
        if len(gap) > _LONGEST_GAP or any(cell[1] != style for cell in gap):
            yield first, last + 1
            first = place
        last = place
    yield first, last + 1


def _all_pieces(update: LayoutUpdate) -> Iterator[tuple[int, int, Strip]]:
    """Yields line, column and strip of each piece of a whole frame."""
    for y, strips in enumerate(update.strips, update.region.y):
        x = update.region.x
        for strip in strips:
            yield y, x, strip
            x += strip.cell_length


def _some_pieces(update: ChopsUpdate) -> Iterator[tuple[int, int, Strip]]:
    """Yields line, column and strip of each piece in which something may have changed."""
    for y, first, last in update.spans:
        for x, strip in update.chops[y].items():
            if strip is not None and x < last and x + strip.cell_length > first:
                yield y, x, strip


def _cells(strip: Strip, colours: ColorSystem) -> list[Cell]:
    cells: list[Cell] = []
    for text, rich_style, _ in strip:
        style = _style(rich_style, colours) if rich_style is not None else _PLAIN
        if text.isascii() or all(map(_is_narrow, text)):
            blank = _blank(style)
            cells += [(character, blank if character == " " else style) for character in text]
        else:
            cells.append((text, style))
            cells += [("", style)] * (cell_len(text) - 1)
    return cells


@lru_cache(maxsize=4096)
def _is_narrow(character: str) -> bool:
    return cell_len(character) == 1


@lru_cache(maxsize=4096)
def _style(style: RichStyle, colours: ColorSystem) -> Style:
    """Returns the parameters that Textual would write for a style."""
    parts = style.without_color, RichStyle(color=style.color), RichStyle(bgcolor=style.bgcolor)
    return Style(*(Strip.render_ansi(part, colours) for part in parts))


@lru_cache(maxsize=4096)
def _blank(style: Style) -> Style:
    """Returns the style of blanks: the same for all that look the same on them."""
    if _UNSEEN_ON_BLANKS.issuperset(style.attributes.split(";")):
        return Style(back=style.back)
    return style


@lru_cache(maxsize=4096)
def _transition(before: Style, after: Style) -> str:
    """Returns the sequence that selects a style where another is selected."""
    codes = []
    if before.attributes not in ("", after.attributes):
        codes, before = ["0"], _PLAIN
    if before.attributes != after.attributes:
        codes.append(after.attributes)
    if before.fore != after.fore:
        codes.append(after.fore or "39")
    if before.back != after.back:
        codes.append(after.back or "49")
    return f"\x1b[{';'.join(codes)}m"
