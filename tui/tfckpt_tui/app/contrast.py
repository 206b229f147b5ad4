"""The contrast of colours, by the Web Content Accessibility Guidelines 2.1."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache

from textual.color import BLACK, WHITE, Color, ColorParseError

TEXT_CONTRAST = 4.5
"""Least contrast of text (level AA)."""

FAINT_CONTRAST = 3.0
"""Least contrast of times, ages and the parts of branches that training left."""

_GROUNDS = ("background", "surface", "row", "row-focus")
_TEXTS = (
    *("primary", "accent", "success", "warning", "error", "foreground", "shade"),
    # Titles of notifications.
    *("text-success", "text-warning", "text-error"),
)
_BUTTON_TEXTS = {
    "primary": TEXT_CONTRAST,
    "foreground": TEXT_CONTRAST,
    "faint": FAINT_CONTRAST,
}
_STEPS = 50
_OPACITY = re.compile(r"\d{1,2}%|100%")


def parse_colour(text: str) -> Color:
    """Returns a colour, which may have an opacity, as in `#6cb2ff 35%`.

    Raises:
        ColorParseError: It is not a colour.
    """
    name, _, opacity = text.partition(" ")
    colour = Color.parse(name)
    if not opacity:
        return colour
    if not _OPACITY.fullmatch(opacity):
        raise ColorParseError(f"{opacity!r} is not an opacity")
    return colour.multiply_alpha(int(opacity[:-1]) / 100)


def contrast(colour: Color, other: Color) -> float:
    """Returns the contrast ratio of two colours, from 1 to 21."""
    darker, lighter = sorted((_luminance(colour), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def with_contrast(variables: Mapping[str, str]) -> dict[str, str]:
    """Returns the colours of a theme, with those of texts lightened or darkened until they stand
    out from every background, also in the row of the cursor.
    """
    background = Color.parse(variables["background"])

    def seen(name: str) -> Color:
        return background + parse_colour(variables[name])

    grounds = [seen(name) for name in _GROUNDS]
    branches = [name for name in variables if name.startswith("branch-")]
    readable = dict(variables)
    for name in (*_TEXTS, "faint", *branches):
        is_faint = name == "faint" or name.endswith("-past")
        least = FAINT_CONTRAST if is_faint else TEXT_CONTRAST
        readable[name] = _standing_out(seen(name), grounds, least).hex
    if not _is_readable_on_buttons(readable):
        readable["button"] = readable["background"]
    # What is selected in a field looks like the row of the cursor.
    readable["input-selection-background"] = readable["row-focus"]
    readable["input-selection-foreground"] = readable["foreground"]
    return readable


def _is_readable_on_buttons(variables: Mapping[str, str]) -> bool:
    ground = Color.parse(variables["background"]) + parse_colour(variables["button"])
    return all(
        contrast(Color.parse(variables[name]), ground) >= least
        for name, least in _BUTTON_TEXTS.items()
    )


def _standing_out(colour: Color, grounds: Iterable[Color], least: float) -> Color:
    grounds = tuple(grounds)

    def worst(shade: Color) -> float:
        return min(contrast(shade, ground) for ground in grounds)

    towards = max((BLACK, WHITE), key=worst)
    blends = (Color.parse(colour.blend(towards, step / _STEPS).hex) for step in range(_STEPS + 1))
    return next((shade for shade in blends if worst(shade) >= least), towards)


@cache
def _luminance(colour: Color) -> float:
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour.normalized
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
