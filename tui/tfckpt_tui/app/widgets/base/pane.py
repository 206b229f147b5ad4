"""The base class of panes: it draws lines, and redraws only those that changed."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region, Size
from textual.screen import Screen
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from tfckpt_tui.app.widgets.base.dashboard_layout import is_short
from tfckpt_tui.app.widgets.base.styled_text import (
    Span,
    StyledLine,
    fit,
    line,
    strip,
    theme_style,
)
from tfckpt_tui.monitor.snapshot import RunSnapshot

_EDGES = ("╭", "╰", "──")
"""What the lines of an upper or a lower edge begin with."""

_LEAST_NOTE = 8
"""Least width of a note that is cut; of less, nobody can read what it is."""


class Frame(Enum):
    """The border of a pane."""

    NONE = "none"
    RULE = "rule"
    BOX = "box"


class Pane(Widget):
    """Shows one part of a snapshot as lines of text.

    Subclasses produce the lines. They keep no state apart from selection and scroll position.
    """

    boxed = True
    """Whether it has a border."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.snapshot: RunSnapshot | None = None
        self._strips: list[Strip] = []
        self._painted_size = Size(0, 0)
        self._styles_by_name: dict[str, Style] = {}

    # -- for subclasses ----------------------------------------------------------------------

    def body(self, width: int, height: int) -> Sequence[StyledLine]:
        """Returns the lines inside the border, at most `height`."""
        raise NotImplementedError

    def heading(self) -> Sequence[Span]:
        """Returns the title, at the left of the upper edge."""
        return ()

    def note(self) -> Sequence[Span]:
        """Returns the text at the right of the upper edge."""
        return ()

    def scrollbar(self, height: int) -> tuple[int, int] | None:
        """Returns the first line and the length of the scroll bar's thumb, if there is one."""
        return None

    # -- behaviour ---------------------------------------------------------------------------

    @property
    def frame(self) -> Frame:
        """Its border, by the size of the terminal."""
        if not self.boxed:
            return Frame.NONE
        return Frame.RULE if is_short(self.screen.size) else Frame.BOX

    @property
    def is_highlighted(self) -> bool:
        """Whether its border is bright."""
        return self.has_focus

    @property
    def inner_size(self) -> tuple[int, int]:
        """Width and height inside the border."""
        width, height = self.size
        frame = self.frame
        if frame is Frame.BOX:
            return max(0, width - 4), max(0, height - 2)
        return max(0, width - 2), max(0, height - (1 if frame is Frame.RULE else 0))

    @property
    def inner_offset(self) -> tuple[int, int]:
        """Position of the first line inside the border."""
        frame = self.frame
        return (2 if frame is Frame.BOX else 1), (0 if frame is Frame.NONE else 1)

    def show(self, snapshot: RunSnapshot) -> None:
        """Shows a new snapshot."""
        self.snapshot = snapshot
        self.repaint()

    def repaint(self) -> None:
        """Makes all lines again and redraws those that changed."""
        if not self.is_mounted or not self.size.area:
            return
        old, self._strips = self._strips, self._paint()
        if len(old) != len(self._strips):
            self.refresh()
            return
        pairs = enumerate(zip(old, self._strips, strict=True))
        regions = [Region(0, y, self.size.width, 1) for y, pair in pairs if pair[0] != pair[1]]
        if regions:
            self.refresh(*regions)

    def render_line(self, y: int) -> Strip:
        """Returns line `y` with the place of each character, by which the mouse selects text."""
        return self.made_line(y).apply_offsets(0, y)

    def made_line(self, y: int) -> Strip:
        """Returns line `y` as it was made last in this size."""
        if not self._strips or self._painted_size != self.size:
            self._strips = self._paint()
        if y < len(self._strips):
            return self._strips[y]
        return Strip.blank(self.size.width, self.rich_style)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Returns lines as they were made last.

        Textual looks up borders, padding and opacity for each line. Panes have none.
        """
        if self.styles.gutter or self.opacity < 1:
            return super().render_lines(crop)
        background, filters = self.background_colors[1], self.get_line_filters()
        selection = self.text_selection
        strips = []
        for y in crop.line_range:
            shown = self.made_line(y)
            if selection is not None:
                shown = self._with_selection(shown, selection.get_span(y))
            for each in filters:
                shown = shown.apply_filter(each, background)
            strips.append(shown.crop(crop.x, crop.right))
        return strips

    def _with_selection(self, shown: Strip, span: tuple[int, int] | None) -> Strip:
        """Returns a line whose characters from a place up to another are shown as selected."""
        if span is None:
            return shown
        text, (start, end) = shown.text, span
        first = cell_len(text[:start])
        last = shown.cell_length if end < 0 else cell_len(text[:end])
        style = self.screen.get_component_rich_style("screen--selection")
        chosen = Strip(Segment.apply_style(shown.crop(first, last), post_style=style))
        return Strip.join([shown.crop(0, first), chosen, shown.crop(last)])

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Returns the selected text without the border, and what follows it."""
        lines = selection.extract("\n".join(made.text for made in self._strips)).split("\n")
        inner = [one for one in lines if not one.startswith(_EDGES)]
        return "\n".join(map(_without_border, inner)), "\n"

    def notify_style_update(self) -> None:
        """Drops the lines in the colours of the previous theme."""
        self._styles_by_name.clear()
        self._strips = []
        super().notify_style_update()

    def style_of(self, name: str) -> Style:
        """Returns the style `name` in the current theme; the empty name is the default style."""
        style = self._styles_by_name.get(name)
        if style is None:
            style = self._make_style(name)
            self._styles_by_name[name] = style
        return style

    def _make_style(self, name: str) -> Style:
        if not name:
            return self.rich_style
        style = self.app.stylesheet.parse_style(theme_style(name))
        whole = (self.visual_style + style).rich_style
        if style.background is not None:
            return whole
        # A background would hide that of a selected row.
        return whole.without_color + Style(color=whole.color)

    def _paint(self) -> list[Strip]:
        self._painted_size = self.size
        inner_width, inner_height = self.inner_size
        body = list(self.body(inner_width, inner_height))[:inner_height]
        body += [StyledLine()] * (inner_height - len(body))
        left, right = ("│ ", " │") if self.frame is Frame.BOX else (" ", " ")
        edge_style = "border-focus" if self.is_highlighted else "border"
        thumb = self.scrollbar(inner_height)
        begin = strip(line((left, edge_style)), self.style_of)
        end = strip(line((right, edge_style)), self.style_of)
        end_with_thumb = strip(line((right[:-1] + "┃", "label")), self.style_of)
        lines = []
        for y, inner in enumerate(body):
            on_thumb = thumb is not None and thumb[0] <= y < thumb[0] + thumb[1]
            content = strip(inner.fitted(inner_width), self.style_of)
            lines.append(Strip.join([begin, content, end_with_thumb if on_thumb else end]))
        return self._framed(lines, self.size.width, edge_style)

    def _framed(self, lines: list[Strip], width: int, edge_style: str) -> list[Strip]:
        frame = self.frame
        if frame is Frame.NONE:
            return lines
        title, note = self.heading(), self.note()
        corner = ("╭─", "─╮") if frame is Frame.BOX else ("──", "──")
        upper = (
            (corner[0], edge_style),
            *_edge(title, note, width - 4, edge_style),
            (corner[1], edge_style),
        )
        framed = [strip(line(*upper), self.style_of), *lines]
        if frame is Frame.BOX:
            lower = "╰" + "─" * max(0, width - 2) + "╯"
            framed.append(strip(line((lower, edge_style)), self.style_of))
        return framed


def _without_border(text: str) -> str:
    """Returns the text of a line inside the border."""
    return text.removeprefix("│").removeprefix(" ").rstrip("│┃ ")


def is_open(screen: Screen[Any]) -> bool:
    """Whether the widgets of a screen exist.

    A closed screen may still receive results of its jobs and ticks of its timers. An app that quits
    removes the widgets of screens that are still on the stack, and adds none to those that open.
    """
    is_there = screen.is_attached and screen.is_mounted
    return screen.app.is_running and is_there and screen in screen.app.screen_stack


def _edge(
    title: Sequence[Span], note: Sequence[Span], width: int, edge_style: str
) -> tuple[Span, ...]:
    """Returns the title and the note at the ends of a rule; without room, the note is cut first."""
    left = ((" ", ""), *title, (" ", "")) if title else ()
    room = width - StyledLine(left).width
    if room < 0:
        return fit(left, width)
    if StyledLine(tuple(note)).width + 2 > room:
        note = fit(note, room - 2) if room - 2 >= _LEAST_NOTE else ()
    right = ((" ", ""), *note, (" ", "")) if note else ()
    return (*left, ("─" * (room - StyledLine(right).width), edge_style), *right)
