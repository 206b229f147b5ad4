"""The base of what the dashboard shows: it paints lines, and redraws only what differs."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from tfckpt_tui.app.widgets.base.arrangement import is_space_low
from tfckpt_tui.app.widgets.base.painting import Line, Span, changed_region, line, spread, strip
from tfckpt_tui.monitor.snapshot import RunSnapshot

BRANCH_COLOURS = 6
"""After this many branches their colours repeat; their numbers stand beside them."""

STYLES = frozenset(
    {
        "muted",
        "faint",
        "label",
        "value",
        "strong",
        "title",
        "key",
        "good",
        "calm",
        "busy",
        "warn",
        "bad",
        "accent",
        "pin",
        "cursor",
        "selected",
        "border",
        "border-focus",
        "bar",
        "track",
        *(f"branch-{number}" for number in range(BRANCH_COLOURS)),
        *(f"branch-{number}-past" for number in range(BRANCH_COLOURS)),
    }
)
"""Names of the styles that lines may use; `app.tcss` gives them their colours."""


def branch_style(branch: int, *, past: bool = False) -> str:
    """Returns the style of a branch; `past` for what was given up."""
    return f"branch-{branch % BRANCH_COLOURS}" + ("-past" if past else "")


class Frame(Enum):
    """What surrounds a pane."""

    NONE = "none"
    RULE = "rule"
    BOX = "box"


class Pane(Widget):
    """A rectangle of lines that shows one part of a snapshot.

    Subclasses say what their lines are; they hold no truth of their own but where the person
    looks (selection, scrolling).
    """

    COMPONENT_CLASSES = {f"pane--{name}" for name in STYLES}

    boxed = True
    """Whether there is a frame around it at all."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.snapshot: RunSnapshot | None = None
        self._strips: list[Strip] = []
        self._styles_by_name: dict[str, Style] = {}

    # -- what a subclass says ----------------------------------------------------------------

    def body(self, width: int, height: int) -> Sequence[Line]:
        """Returns the lines inside the frame, at most `height`."""
        raise NotImplementedError

    def heading(self) -> Sequence[Span]:
        """Returns the title, drawn at the left of the upper edge."""
        return ()

    def note(self) -> Sequence[Span]:
        """Returns what stands at the right of the upper edge."""
        return ()

    def scrollbar(self, height: int) -> tuple[int, int] | None:
        """Returns where the scroll bar's thumb is (first line, length), if there is one."""
        return None

    # -- what it does ------------------------------------------------------------------------

    @property
    def frame(self) -> Frame:
        """What surrounds it: less where there is less room."""
        if not self.boxed:
            return Frame.NONE
        return Frame.RULE if is_space_low(self.screen.size) else Frame.BOX

    @property
    def inner_size(self) -> tuple[int, int]:
        """Width and height inside the frame."""
        width, height = self.size
        frame = self.frame
        if frame is Frame.BOX:
            return max(0, width - 4), max(0, height - 2)
        return max(0, width - 2), max(0, height - (1 if frame is Frame.RULE else 0))

    @property
    def inner_offset(self) -> tuple[int, int]:
        """Where the lines inside the frame begin."""
        frame = self.frame
        return (2 if frame is Frame.BOX else 1), (0 if frame is Frame.NONE else 1)

    def show(self, snapshot: RunSnapshot) -> None:
        """Takes a new snapshot and redraws what differs."""
        self.snapshot = snapshot
        self.repaint()

    def repaint(self) -> None:
        """Paints all lines anew and marks for drawing only the parts that changed."""
        if not self.is_mounted or not self.size.area:
            return
        old, self._strips = self._strips, self._paint()
        if len(old) != len(self._strips):
            self.refresh()
            return
        regions: list[Region] = []
        for y, (before, after) in enumerate(zip(old, self._strips, strict=True)):
            region = changed_region(before, after, y)
            if region is not None:
                regions.append(region)
        if regions:
            self.refresh(*regions)

    def render_line(self, y: int) -> Strip:
        """Returns line `y` as it was painted last."""
        if not self._strips:
            self._strips = self._paint()
        if y < len(self._strips):
            return self._strips[y]
        return Strip.blank(self.size.width, self.rich_style)

    def notify_style_update(self) -> None:
        """Drops what was painted with the colours of another theme."""
        self._styles_by_name.clear()
        self._strips = []
        super().notify_style_update()

    def on_resize(self) -> None:
        """Paints for the new size."""
        self._strips = []
        self.refresh()

    def style_of(self, name: str) -> Style:
        """Returns the style called `name` in the present theme; the empty name is the ground."""
        style = self._styles_by_name.get(name)
        if style is None:
            style = self._make_style(name)
            self._styles_by_name[name] = style
        return style

    def _make_style(self, name: str) -> Style:
        if not name:
            return self.rich_style
        component = self.get_component_rich_style(f"pane--{name}")
        if self.get_component_styles(f"pane--{name}").has_rule("background"):
            return component
        # Its own ground would hide the one of a selected row.
        return component.without_color + Style(color=component.color)

    def _paint(self) -> list[Strip]:
        inner_width, inner_height = self.inner_size
        body = list(self.body(inner_width, inner_height))[:inner_height]
        body += [Line()] * (inner_height - len(body))
        left, right = ("│ ", " │") if self.frame is Frame.BOX else (" ", " ")
        edge_style = "border-focus" if self.has_focus else "border"
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


def _edge(
    title: Sequence[Span], note: Sequence[Span], width: int, edge_style: str
) -> tuple[Span, ...]:
    left = ((" ", ""), *title, (" ", "")) if title else ()
    right = ((" ", ""), *note, (" ", "")) if note else ()
    size = Line((*left, *right)).width
    if size > width:
        return spread(left, (), width)
    return (*left, ("─" * (width - size), edge_style), *right)
