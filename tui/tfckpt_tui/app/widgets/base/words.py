"""Text for Textual's own widgets: styled spans become content, and never markup."""

from __future__ import annotations

from collections.abc import Iterable

from textual.content import Content

from tfckpt_tui.app.widgets.base.painting import Span

_STYLES = {
    "": "",
    "muted": "$shade",
    "label": "$shade",
    "faint": "$faint",
    "value": "$foreground",
    "strong": "$foreground bold",
    "title": "$foreground bold",
    "key": "$primary bold",
    "good": "$success",
    "calm": "$primary",
    "busy": "$accent",
    "accent": "$accent",
    "warn": "$warning",
    "pin": "$warning",
    "bad": "$error",
}


def words(*spans: Span) -> Content:
    """Returns one piece of content; texts are taken as they are and are safe to show."""
    return Content.assemble(*((text, style_in_words(name)) for text, name in spans if text))


def lines_of_words(lines: Iterable[Iterable[Span]]) -> Content:
    """Returns lines below each other."""
    return Content("\n").join([words(*spans) for spans in lines])


def style_in_words(name: str) -> str:
    """Returns a style's name in Textual's own language, in the colours of the theme."""
    if name.startswith("branch-"):
        return f"${name}"
    return _STYLES[name]
