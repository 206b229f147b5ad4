"""Writes screens of a terminal as one animated SVG: no script, no font file, nothing external.

All frames stand below each other in one group, and a CSS animation moves the group. Rows that are
equal in several frames are stored once.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

CELL_WIDTH = 8.4
ROW_HEIGHT = 18
FONT_SIZE = 14
MARGIN = 12
TITLE_HEIGHT = 30
CAPTION_HEIGHT = 46
BACKGROUND = "101418"
FOREGROUND = "d8dee4"
FONTS = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"
NAMED_COLOURS = {
    "black": "101418",
    "red": "e06c75",
    "green": "98c379",
    "brown": "e5c07b",
    "blue": "61afef",
    "magenta": "c678dd",
    "cyan": "56b6c2",
    "white": "d8dee4",
}


@dataclass(frozen=True)
class Cell:
    """One character of the screen with its colours (`rrggbb`)."""

    text: str
    foreground: str
    background: str
    bold: bool = False
    underlined: bool = False


Screen = tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class Caption:
    """The line below the screen: the key that is pressed, and what happens."""

    key: str
    text: str


@dataclass(frozen=True)
class Frame:
    """What is shown for `seconds`."""

    screen: Screen
    caption: Caption
    seconds: float


def colour(name: str, default: str) -> str:
    """Returns `rrggbb` of a colour as pyte names it."""
    if name == "default":
        return default
    return NAMED_COLOURS.get(name.removeprefix("bright"), name)


def animated_svg(frames: Sequence[Frame], *, title: str, poster: int) -> str:
    """Returns the SVG.

    Args:
        frames: What to show, in this order, over and over.
        title: The title of the window, and the description for screen readers.
        poster: Index of the frame that is shown where nothing may move.
    """
    columns, rows = len(frames[0].screen[0]), len(frames[0].screen)
    width = columns * CELL_WIDTH + 2 * MARGIN
    frame_height = rows * ROW_HEIGHT + CAPTION_HEIGHT
    height = TITLE_HEIGHT + frame_height
    drawing = _Drawing()
    body = [drawing.frame(frame, index * frame_height, width) for index, frame in enumerate(frames)]
    moves = _keyframes(frames, frame_height)
    seconds = sum(frame.seconds for frame in frames)
    still = f"transform:translateY({-poster * frame_height}px)"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}"'
            f' role="img" aria-label="{html.escape(title)}">',
            "<style>",
            f"text{{font:{FONT_SIZE}px {FONTS};white-space:pre}}",
            f"#f{{{still};animation:m {seconds:.2f}s steps(1,end) infinite}}",
            f"@keyframes m{{{moves}}}",
            "defs rect{shape-rendering:crispEdges}",
            "@media (prefers-reduced-motion:reduce){#f{animation:none}}",
            *drawing.classes(),
            "</style>",
            f'<rect width="{width:g}" height="{height:g}" rx="8" fill="#{BACKGROUND}"/>',
            f'<text x="{width / 2:g}" y="20" text-anchor="middle" fill="#8b949e">'
            f"{html.escape(title)}</text>",
            *(
                f'<circle cx="{20 + 20 * index}" cy="15" r="6" fill="#{tone}"/>'
                for index, tone in enumerate(("e06c75", "e5c07b", "98c379"))
            ),
            f"<defs>{''.join(drawing.rows)}</defs>",
            f'<svg y="{TITLE_HEIGHT}" width="{width:g}" height="{frame_height}"><g id="f">',
            *body,
            "</g></svg></svg>",
        ]
    )


def _keyframes(frames: Sequence[Frame], height: int) -> str:
    total = sum(frame.seconds for frame in frames)
    at = 0.0
    moves = []
    for index, frame in enumerate(frames):
        moves.append(f"{100 * at / total:.3f}%{{transform:translateY({-index * height}px)}}")
        at += frame.seconds
    moves.append(f"100%{{transform:translateY({-(len(frames) - 1) * height}px)}}")
    return "".join(moves)


class _Drawing:
    """Collects rows and colours, each once."""

    def __init__(self) -> None:
        self.rows: list[str] = []
        self._row_names: dict[tuple[Cell, ...], str] = {}
        self._class_names: dict[str, str] = {}

    def classes(self) -> Iterator[str]:
        for rule, name in self._class_names.items():
            yield f".{name}{{{rule}}}"

    def frame(self, frame: Frame, top: float, width: float) -> str:
        uses = "".join(
            f'<use href="#{name}" y="{index * ROW_HEIGHT}"/>'
            for index, row in enumerate(frame.screen)
            if (name := self._row(row))
        )
        caption = self._caption(frame.caption, len(frame.screen) * ROW_HEIGHT, width)
        return f'<g transform="translate(0 {top:g})">{uses}{caption}</g>'

    def _row(self, row: tuple[Cell, ...]) -> str:
        """Returns the name of a row, or nothing where it is blank."""
        if row not in self._row_names:
            drawn = "".join(self._runs(row))
            name = f"r{len(self.rows)}" if drawn else ""
            if drawn:
                self.rows.append(f'<g id="{name}">{drawn}</g>')
            self._row_names[row] = name
        return self._row_names[row]

    def _runs(self, row: tuple[Cell, ...]) -> Iterator[str]:
        column = 0
        for background, cells in groupby(row, lambda cell: cell.background):
            count = len(list(cells))
            if background != BACKGROUND:
                name = self._class(f"fill:#{background}")
                yield (
                    f'<rect class="{name}" x="{_x(column)}"'
                    f' width="{count * CELL_WIDTH:g}" height="{ROW_HEIGHT}"/>'
                )
            column += count
        column = 0
        for rule, cells in groupby(row, _text_rule):
            text = "".join(cell.text for cell in cells)
            stripped = text.lstrip(" ")
            start = column + len(text) - len(stripped)
            column += len(text)
            stripped = stripped.rstrip(" ")
            if stripped:
                # Fonts differ in width, and other fonts have the symbols: the length keeps columns
                # in place, and joins the lines of boxes.
                adjust = "" if rule[0] else ' lengthAdjust="spacingAndGlyphs"'
                yield (
                    f'<text class="{self._class(rule[1])}" x="{_x(start)}" y="13.5"'
                    f' textLength="{len(stripped) * CELL_WIDTH:g}"{adjust}>'
                    f"{html.escape(stripped, quote=False)}</text>"
                )

    def _class(self, rule: str) -> str:
        return self._class_names.setdefault(rule, f"c{len(self._class_names)}")

    def _caption(self, caption: Caption, top: float, width: float) -> str:
        parts = [
            f'<rect y="{top:g}" width="{width:g}" height="{CAPTION_HEIGHT}" fill="#1f3a5f"/>',
        ]
        start = float(MARGIN)
        if caption.key:
            key_width = len(caption.key) * 9.6 + 18
            parts.append(
                f'<rect x="{start:g}" y="{top + 9:g}" width="{key_width:g}" height="28" rx="5"'
                f' fill="#f0f3f6"/><text x="{start + key_width / 2:g}" y="{top + 28.5:g}"'
                f' text-anchor="middle" style="font-size:16px;font-weight:bold"'
                f' fill="#101418">{html.escape(caption.key)}</text>'
            )
            start += key_width + 14
        parts.append(
            f'<text x="{start:g}" y="{top + 28.5:g}" style="font-size:16px"'
            f' fill="#fff">{html.escape(caption.text)}</text>'
        )
        return "".join(parts)


def _text_rule(cell: Cell) -> tuple[bool, str]:
    """Returns what cells of one run share: plain ASCII or not, and the style."""
    rule = f"fill:#{cell.foreground}"
    if cell.bold:
        rule += ";font-weight:bold"
    if cell.underlined:
        rule += ";text-decoration:underline"
    return cell.text.isascii(), rule


def _x(column: int) -> str:
    return f"{MARGIN + column * CELL_WIDTH:g}"
