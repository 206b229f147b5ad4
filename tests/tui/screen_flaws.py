"""Computes flaws of layout and colour: cut texts, overlaps, texts that cannot be read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import combinations
from typing import Any

from rich.cells import cell_len
from rich.style import Style
from textual.app import App
from textual.color import Color, ColorParseError
from textual.command import CommandPalette
from textual.containers import VerticalScroll
from textual.geometry import Region
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Button, Input, OptionList, Static, Tooltip
from textual.widgets._toast import Toast, ToastRack

from tfckpt_tui.app.dashboard_panes import DashboardPanes
from tfckpt_tui.app.screens.page import Page
from tfckpt_tui.app.widgets.base.keybar import KeyBar
from tfckpt_tui.app.widgets.base.list_pane import ListPane
from tfckpt_tui.app.widgets.base.pane import Pane
from tfckpt_tui.app.widgets.base.styled_text import ELLIPSIS

_FRAME = 6
"""Cells around the title of a frame."""
_SPARE = 16
"""Cells at the end of a cut line that a column may leave empty."""
LEAST_CONTRAST = 4.5
"""Of text, by the Web Content Accessibility Guidelines 2.1, level AA."""
FAINT_CONTRAST = 3.0
"""Of times, ages and the parts of branches that training left."""


# -- layout ----------------------------------------------------------------------------------


def layout_problems(screen: Screen[Any]) -> list[str]:
    """Returns what is cut, lies outside of its parent or on another widget, or stays empty."""
    widgets = _shown(screen)
    return [
        *(problem for widget in widgets for problem in (*_outside(widget), *_cut(widget))),
        *_overlapping(widgets),
        *_covering(screen, widgets),
        *(_off_centre(screen) if isinstance(screen, ModalScreen) else _uncovered(screen, widgets)),
    ]


def _shown(screen: Screen[Any]) -> list[Widget]:
    """Returns the widgets of a screen that take part in its layout."""
    return [
        widget
        for widget in screen.walk_children(Widget)
        if widget.visible
        and not isinstance(widget, Tooltip)
        and all(one.display for one in widget.ancestors_with_self if isinstance(one, Widget))
        # The dashboard gives no place to panes that it does not show.
        and (widget.region.area or not isinstance(widget.parent, DashboardPanes))
    ]


def _named(widget: Widget) -> str:
    return f"{type(widget).__name__}{f'#{widget.id}' if widget.id else ''}"


def _visible_parent(widget: Widget) -> Widget | None:
    """Returns the widget in which another lies; toasts and the palette lie in invisible ones."""
    return next((w for w in widget.ancestors if isinstance(w, Widget) and w.visible), None)


def _scrolls(widget: object) -> bool:
    return isinstance(widget, VerticalScroll)


def _outside(widget: Widget) -> Iterator[str]:
    parent = _visible_parent(widget)
    if parent is None:
        return
    room, own = parent.content_region, widget.region
    across = own.x >= room.x and own.right <= room.right
    stays = not _scrolls(parent) or widget.styles.dock != "none"
    down = own.y >= room.y and own.bottom <= room.bottom
    if not own.area:
        yield f"{_named(widget)} has no room"
    elif not across or (stays and not down):
        yield f"{_named(widget)} at {own} is outside of {_named(parent)} at {room}"
    elif (
        _scrolls(parent)
        and not isinstance(widget, Button)
        and own.width < room.width - 1 - widget.styles.margin.width
    ):
        yield f"{_named(widget)} at {own} does not fill {_named(parent)} at {room}"


def _cut(widget: Widget) -> Iterator[str]:
    width, height = widget.content_size
    if isinstance(widget, Button) and cell_len(str(widget.label)) > width:
        yield f"the button {str(widget.label)!r} is cut at {width}"
    elif isinstance(widget, Input) and not widget.value and cell_len(widget.placeholder) > width:
        yield f"the placeholder {widget.placeholder!r} is cut at {width}"
    elif (
        isinstance(widget, Static)
        and widget.get_content_height(widget.size, widget.screen.size, width) > height
    ):
        yield f"{_named(widget)} is cut at line {height}"
    elif isinstance(widget, OptionList):
        yield from _cut_options(widget, width)
    for title in (widget.border_title, widget.border_subtitle):
        if title and cell_len(title.strip()) > widget.outer_size.width - _FRAME:
            yield f"the title {title!r} is cut at {widget.outer_size.width}"
    if isinstance(widget, Pane):
        yield from _cut_lines(widget)


def _cut_options(options: OptionList, width: int) -> Iterator[str]:
    room = width - options.get_component_styles("option-list--option").padding.width
    ends = options.styles.text_overflow == "ellipsis" or options.styles.text_wrap == "wrap"
    for option in options.options:
        if not ends and cell_len(str(option.prompt)) > room:
            yield f"the option {str(option.prompt)!r} is cut at {room}"


def _cut_lines(pane: Pane) -> Iterator[str]:
    """Yields lines that are cut without an ellipsis, or although there is room at their end."""
    width, height = pane.inner_size
    lines = pane.body(width, height)
    if len(lines) > height:
        yield f"{_named(pane)} has {len(lines)} lines and shows {height}"
    for line in lines[:height]:
        if cell_len(line.text.rstrip()) > width and not line.fitted(width).text.endswith(ELLIPSIS):
            yield f"{_named(pane)} cuts {line.text!r} at {width} without an ellipsis"
    for y in range(pane.size.height):
        text = pane.render_line(y).text.strip("│┃ ")
        room = pane.inner_size[0] - cell_len(text)
        if ELLIPSIS in text and room > _SPARE:
            yield f"{_named(pane)} cuts {text!r} with {room} cells to spare"


def _overlapping(widgets: Sequence[Widget]) -> Iterator[str]:
    for parent in {widget.parent for widget in widgets}:
        children = [w for w in widgets if w.parent is parent and w.styles.dock == "none"]
        for one, other in combinations(children, 2):
            if one.region.overlaps(other.region):
                yield f"{_named(one)} at {one.region} overlaps {_named(other)} at {other.region}"


def _uncovered(screen: Screen[Any], widgets: Sequence[Widget]) -> Iterator[str]:
    parents = {widget.parent for widget in widgets if not _scrolls(widget.parent)}
    covered = sum(
        widget.region.area
        for widget in widgets
        if not (widget in parents or _scrolls(widget.parent) or isinstance(widget, Toast))
    )
    if covered != screen.size.area:
        yield f"{covered} of {screen.size.area} cells are covered"


def _covering(screen: Screen[Any], widgets: Sequence[Widget]) -> Iterator[str]:
    """Yields toasts that cover keys, or what is below them."""
    for toast in screen.query(Toast):
        for widget in widgets:
            if isinstance(widget, KeyBar) and toast.region.overlaps(widget.region):
                yield f"{_named(toast)} at {toast.region} covers the keys"


def _off_centre(screen: Screen[Any]) -> Iterator[str]:
    box = _box(screen)
    width, height = screen.size
    is_high = abs(box.y - (height - box.bottom)) > 1 and not isinstance(screen, CommandPalette)
    if abs(box.x - (width - box.right)) > 1 or is_high:
        yield f"{box} is not in the middle of {screen.size}"


def _box(screen: Screen[Any]) -> Region:
    """Returns the region of a dialog."""
    if isinstance(screen, CommandPalette):
        return Region.from_union(
            [screen.query_one(part).region for part in ("#--input", OptionList)]
        )
    return next(w.region for w in screen.children if not isinstance(w, ToastRack | Tooltip))


# -- keys ------------------------------------------------------------------------------------


def key_problems(screen: Screen[Any]) -> list[str]:
    """Returns the keys of a full screen that a pane takes while it has the focus."""
    found = set()
    own = screen._bindings.key_to_bindings if isinstance(screen, Page) else {}
    for pane in screen.focus_chain:
        if isinstance(pane, ListPane):
            taken = pane._bindings.key_to_bindings.keys() & own.keys()
            found |= {(key, pane) for key in taken if not any(one.priority for one in own[key])}
    return [f"{key} is taken by {pane}" for key, pane in sorted(found, key=str)]


# -- colours ---------------------------------------------------------------------------------


def colour_problems(screen: Screen[Any]) -> list[str]:
    """Returns texts that cannot be read, and colours that the theme does not have."""
    known = theme_colours(screen.app)
    found: dict[str, tuple[int, int, str]] = {}
    for x, y, text, style in _texts(screen):
        if style is None or style.color is None or style.bgcolor is None:
            continue
        fore, back = (Color.from_rich_color(c) for c in (style.color, style.bgcolor))
        if style.reverse:
            fore, back = back, fore
        for problem in _colours_of(text, fore, back, known):
            found.setdefault(problem, (x, y, text))
    return [
        f"{problem} in {_named(screen.get_widget_at(x, y)[0])}: {text.strip()!r}"
        for problem, (x, y, text) in found.items()
        # The selection of a field is a mixture of colours.
        if not (isinstance(screen.get_widget_at(x, y)[0], Input) and "background" in problem)
    ]


def _colours_of(text: str, fore: Color, back: Color, known: Mapping[str, Color]) -> Iterator[str]:
    if back not in known.values():
        yield f"background {back.hex} is not of the theme"
    if not re.search(r"\w", text):
        return
    if fore not in known.values():
        yield f"colour {fore.hex} is not of the theme"
    if contrast(fore, back) < _least_contrast(fore, known):
        yield f"contrast {contrast(fore, back):.1f} of {fore.hex} on {back.hex}"


def _least_contrast(fore: Color, known: Mapping[str, Color]) -> float:
    if fore == known["faint"] or any(fore == known[f"branch-{n}-past"] for n in range(6)):
        return FAINT_CONTRAST
    return LEAST_CONTRAST


@cache
def contrast(one: Color, other: Color) -> float:
    """Returns the contrast ratio of two colours, as the guidelines define it."""
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: Color) -> float:
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour.normalized
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def theme_colours(app: App[Any]) -> dict[str, Color]:
    """Returns the colours of the theme by their names."""
    return _parsed(tuple(app.theme_variables.items()))


@cache
def _parsed(variables: tuple[tuple[str, str], ...]) -> dict[str, Color]:
    known = {}
    for name, value in variables:
        with suppress(ColorParseError):
            known[name] = Color.parse(value)
    return known


def _texts(screen: Screen[Any]) -> Iterator[tuple[int, int, str, Style | None]]:
    """Yields the segments of a screen with their positions; of a dialog, those in its box."""
    strips = screen._compositor.render_strips()
    boxes = [screen.region]
    if isinstance(screen, ModalScreen):
        boxes = [_box(screen), *(toast.region for toast in screen.query(Toast))]
    for box in boxes:
        for y, strip in enumerate(strips[box.y : box.bottom], box.y):
            x = box.x
            for text, style, _ in strip.crop(box.x, box.right):
                yield x, y, text, style
                x += cell_len(text)
