"""HTML and SVG elements. All text in them is cleaned and escaped here, and nowhere else."""

from __future__ import annotations

from html import escape

from tfckpt_tui.formats.text import clean


class Markup(str):
    """Text that is HTML already; only this module and constants of the program make it."""

    __slots__ = ()


def element(name: str, *children: str, **attributes: str | float) -> Markup:
    """Returns an element.

    Args:
        name: Its name.
        *children: Elements, and texts, which are cleaned and escaped.
        **attributes: Its attributes; `class_` is `class`, and `_` in other names is `-`.
    """
    inside = "".join(map(safe, children))
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{safe(value) if isinstance(value, str) else value}"'
        for key, value in attributes.items()
    )
    return Markup(f"<{name}{told}>{inside}</{name}>")


def safe(text: str) -> Markup:
    """Returns markup as it is, and other text cleaned and escaped."""
    return text if isinstance(text, Markup) else Markup(escape(clean(text)))
