"""The themes of the app and of the user, and defaults for other themes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from textual.color import Color, ColorParseError
from textual.theme import BUILTIN_THEMES, Theme

from tfckpt_trainer.errors import UsageError
from tfckpt_tui.settings.config import ThemeSection

DARK = Theme(
    name="tfckpt-dark",
    primary="#6cb2ff",
    secondary="#8aa4c8",
    accent="#ffb163",
    success="#7ed491",
    warning="#eac261",
    error="#ff7c86",
    foreground="#d4dae4",
    background="#0f1319",
    surface="#151b23",
    panel="#1d2530",
    dark=True,
    variables={
        "shade": "#8490a0",
        "faint": "#586374",
        "edge": "#2c3643",
        "edge-focus": "#4f7fb0",
        "row": "#1c2735",
        "row-focus": "#24405f",
        "track": "#2a3442",
        "branch-0": "#6cb2ff",
        "branch-1": "#ffb163",
        "branch-2": "#c29cff",
        "branch-3": "#5fd3c3",
        "branch-4": "#ff9ccb",
        "branch-5": "#c3d76d",
        "branch-0-past": "#456a94",
        "branch-1-past": "#8f6a43",
        "branch-2-past": "#705f92",
        "branch-3-past": "#3f776f",
        "branch-4-past": "#8c5c75",
        "branch-5-past": "#737b49",
        "block-cursor-background": "#24405f",
        "block-cursor-foreground": "#ffffff",
        "input-selection-background": "#6cb2ff 35%",
        "footer-background": "#0f1319",
        "border": "#4f7fb0",
        "border-blurred": "#2c3643",
        "scrollbar": "#2c3643",
        "scrollbar-background": "#0f1319",
    },
)

LIGHT = Theme(
    name="tfckpt-light",
    primary="#0b62c4",
    secondary="#4b6484",
    accent="#a85400",
    success="#1b7a3a",
    warning="#8a6200",
    error="#c0213b",
    foreground="#22282f",
    background="#fbfaf7",
    surface="#f3f1ec",
    panel="#e9e7e0",
    dark=False,
    variables={
        "shade": "#5f6873",
        "faint": "#8d959e",
        "edge": "#d0cec6",
        "edge-focus": "#5b8fc7",
        "row": "#eae8e1",
        "row-focus": "#cfe0f3",
        "track": "#dbd8d0",
        "branch-0": "#0b62c4",
        "branch-1": "#a85400",
        "branch-2": "#7138b8",
        "branch-3": "#0d7a6c",
        "branch-4": "#b02a72",
        "branch-5": "#5f7300",
        "branch-0-past": "#9dbbdc",
        "branch-1-past": "#d6b797",
        "branch-2-past": "#c0addb",
        "branch-3-past": "#9fc8c2",
        "branch-4-past": "#dba9c4",
        "branch-5-past": "#bcc597",
        "block-cursor-background": "#cfe0f3",
        "block-cursor-foreground": "#101418",
        "border": "#5b8fc7",
        "border-blurred": "#d0cec6",
    },
)

CONTRAST = replace(
    DARK,
    name="tfckpt-contrast",
    primary="#5cc8ff",
    accent="#ffd75f",
    success="#5fff87",
    warning="#ffd700",
    error="#ff6b6b",
    foreground="#ffffff",
    background="#000000",
    surface="#0a0a0a",
    panel="#1a1a1a",
    variables={
        **DARK.variables,
        "shade": "#c8c8c8",
        "faint": "#9a9a9a",
        "edge": "#808080",
        "edge-focus": "#ffffff",
        "row": "#262626",
        "row-focus": "#004f8f",
        "track": "#4a4a4a",
        "footer-background": "#000000",
        "scrollbar-background": "#000000",
    },
)
"""White on black, with borders that a poor projector shows."""

COLOUR_BLIND = replace(
    DARK,
    name="tfckpt-colour-blind",
    primary="#56b4e9",
    accent="#e69f00",
    success="#009e73",
    warning="#f0e442",
    error="#d55e00",
    variables={
        **DARK.variables,
        "branch-0": "#56b4e9",
        "branch-1": "#e69f00",
        "branch-2": "#cc79a7",
        "branch-3": "#009e73",
        "branch-4": "#f0e442",
        "branch-5": "#d55e00",
    },
)
"""The palette of Okabe and Ito (2008), for all types of colour vision."""

THEMES = (DARK, LIGHT, CONTRAST, COLOUR_BLIND)
"""Registered by the app; the first is the default."""


def defaults_for(*, dark: bool) -> dict[str, str]:
    """Returns defaults of our variables, for themes that do not define them."""
    variables = (DARK if dark else LIGHT).variables
    ours = ("shade", "faint", "edge", "row", "track", "branch")
    return {name: value for name, value in variables.items() if name.startswith(ours)}


def themes_with(sections: Mapping[str, ThemeSection]) -> list[Theme]:
    """Returns the themes of the app, followed by those of the user.

    Raises:
        UsageError: A theme of the user is invalid.
    """
    known = {**BUILTIN_THEMES, **{theme.name: theme for theme in THEMES}}
    own = [own_theme(name, section, known) for name, section in sections.items()]
    return [*THEMES, *own]


def own_theme(name: str, section: ThemeSection, known: Mapping[str, Theme]) -> Theme:
    """Returns the theme that a section of the configuration defines.

    Raises:
        UsageError: Its base theme does not exist, or one of its colours is invalid.
    """
    base = known.get(section.based_on)
    if base is None:
        names = ", ".join(sorted(known))
        raise UsageError(
            f"Theme {name!r} is based on {section.based_on!r}, which does not exist. "
            f"Choose one of {names}."
        )
    own: dict[str, Any] = {k: value for k, value in section.colours.items() if k in _COLOURS}
    rest = {key: value for key, value in section.colours.items() if key not in own}
    unknown = sorted(rest.keys() - DARK.variables.keys())
    if unknown:
        names = ", ".join([*_COLOURS, *DARK.variables])
        raise UsageError(
            f"Theme {name!r} sets an unknown colour: {unknown[0]!r}. Known colours: {names}."
        )
    for key, value in section.colours.items():
        try:
            Color.parse(value.split(" ")[0])
        except ColorParseError as error:
            raise UsageError(
                f"Theme {name!r}: {key} is {value!r}, which is not a colour. "
                "Use a value such as '#6cb2ff', or a colour name."
            ) from error
    dark = base.dark if section.dark is None else section.dark
    variables = {**base.variables, **rest}
    return replace(base, name=name, dark=dark, variables=variables, **own)


_COLOURS = (
    *("primary", "secondary", "accent", "success", "warning", "error"),
    *("foreground", "background", "surface", "panel"),
)
