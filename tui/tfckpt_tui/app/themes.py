"""The themes of the app and of the user, and defaults for other themes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from textual.color import ColorParseError
from textual.theme import BUILTIN_THEMES, Theme

from tfckpt_trainer.errors import UsageError
from tfckpt_tui.app.contrast import parse_colour
from tfckpt_tui.settings.config import Config, ThemeSection, config_path

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
        "shade": "#909ba9",
        "faint": "#747d8b",
        "edge": "#2c3643",
        "edge-focus": "#4f7fb0",
        "row": "#1a2330",
        "row-focus": "#1d3350",
        "track": "#2a3442",
        "branch-0": "#6cb2ff",
        "branch-1": "#ffb163",
        "branch-2": "#c29cff",
        "branch-3": "#5fd3c3",
        "branch-4": "#ff9ccb",
        "branch-5": "#c3d76d",
        "branch-0-past": "#4e7fb5",
        "branch-1-past": "#a17346",
        "branch-2-past": "#8870b5",
        "branch-3-past": "#3f8880",
        "branch-4-past": "#a66989",
        "branch-5-past": "#758248",
        "block-cursor-background": "#1d3350",
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
    accent="#a15000",
    success="#1a7638",
    warning="#855f00",
    error="#c0213b",
    foreground="#22282f",
    background="#fbfaf7",
    surface="#f3f1ec",
    panel="#e9e7e0",
    dark=False,
    variables={
        "shade": "#5e6671",
        "faint": "#7c838b",
        "edge": "#d0cec6",
        "edge-focus": "#5b8fc7",
        "row": "#efede7",
        "row-focus": "#d9e7f6",
        "track": "#dbd8d0",
        "branch-0": "#0b62c4",
        "branch-1": "#a15000",
        "branch-2": "#7138b8",
        "branch-3": "#0c7366",
        "branch-4": "#b02a72",
        "branch-5": "#5b6e00",
        "branch-0-past": "#4284cf",
        "branch-1-past": "#b37333",
        "branch-2-past": "#9970ca",
        "branch-3-past": "#3e8f84",
        "branch-4-past": "#c46295",
        "branch-5-past": "#7b8a31",
        "block-cursor-background": "#d9e7f6",
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
    error="#ff7979",
    foreground="#ffffff",
    background="#000000",
    surface="#0a0a0a",
    panel="#1a1a1a",
    variables={
        **DARK.variables,
        "branch-0-past": "#5287c1",
        "branch-1-past": "#ad7843",
        "branch-2-past": "#9175bf",
        "branch-3-past": "#419186",
        "branch-4-past": "#b56e90",
        "branch-5-past": "#7c8945",
        "block-cursor-background": "#003a6b",
        "shade": "#c8c8c8",
        "faint": "#9a9a9a",
        "edge": "#808080",
        "edge-focus": "#ffffff",
        "row": "#1c1c1c",
        "row-focus": "#003a6b",
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
    success="#1ea983",
    warning="#f0e442",
    error="#dd7e33",
    variables={
        **DARK.variables,
        "branch-0-past": "#3e7ea4",
        "branch-1-past": "#9c6f08",
        "branch-2-past": "#a36488",
        "branch-3-past": "#1a886b",
        "branch-4-past": "#7f7b2d",
        "branch-5-past": "#ad652d",
        "faint": "#6f7887",
        "shade": "#8b96a5",
        "block-cursor-background": "#1a2f48",
        "row-focus": "#1a2f48",
        "row": "#17202b",
        "branch-0": "#56b4e9",
        "branch-1": "#e69f00",
        "branch-2": "#cd7ba8",
        "branch-3": "#1ea983",
        "branch-4": "#f0e442",
        "branch-5": "#dd7e33",
    },
)
"""The palette of Okabe and Ito (2008), for all types of colour vision.

Green, orange and purple are a little lighter, to stand out from the row of the cursor.
"""

THEMES = (DARK, LIGHT, CONTRAST, COLOUR_BLIND)
"""Registered by the app; the first is the default. All their texts can be read."""

ANSI_THEMES = frozenset(
    name for name, theme in BUILTIN_THEMES.items() if theme.primary.startswith("ansi")
)
"""Themes of Textual that are not offered: the terminal chooses their colours, so nothing can
ensure that texts can be read."""


def defaults_for(*, dark: bool) -> dict[str, str]:
    """Returns defaults of our variables, for themes that do not define them."""
    variables = (DARK if dark else LIGHT).variables
    ours = ("shade", "faint", "edge", "row", "track", "branch")
    return {name: value for name, value in variables.items() if name.startswith(ours)}


def themes_with(config: Config) -> list[Theme]:
    """Returns the themes of the app, followed by those of the user.

    Raises:
        UsageError: A theme of the user is invalid, or the chosen theme does not exist.
    """
    offered = {name: BUILTIN_THEMES[name] for name in BUILTIN_THEMES.keys() - ANSI_THEMES}
    themes = {**offered, **{theme.name: theme for theme in THEMES}}
    try:
        own = [own_theme(name, section, themes) for name, section in config.themes.items()]
    except UsageError as error:
        raise UsageError(f"{config_path()}: {error}") from error
    names = {*themes, *config.themes}
    if config.app.theme not in names:
        raise UsageError(
            f"{config_path()}: theme {config.app.theme!r} does not exist. "
            f"Choose one of {', '.join(sorted(names))}."
        )
    return [*THEMES, *own]


def own_theme(name: str, section: ThemeSection, themes: Mapping[str, Theme]) -> Theme:
    """Returns the theme that a section of the configuration defines.

    Raises:
        UsageError: Its base theme does not exist, or one of its colours is invalid.
    """
    base = themes.get(section.based_on)
    if base is None:
        names = ", ".join(sorted(themes))
        raise UsageError(
            f"theme {name!r} is based on {section.based_on!r}, which does not exist. "
            f"Choose one of {names}."
        )
    own: dict[str, Any] = {k: value for k, value in section.colours.items() if k in _COLOURS}
    rest = {key: value for key, value in section.colours.items() if key not in own}
    unknown = sorted(rest.keys() - DARK.variables.keys())
    if unknown:
        names = ", ".join([*_COLOURS, *DARK.variables])
        raise UsageError(
            f"theme {name!r} sets an unknown colour: {unknown[0]!r}. Known colours: {names}."
        )
    for key, value in section.colours.items():
        if not _is_colour(value, may_be_transparent=key not in _COLOURS):
            raise UsageError(
                f"theme {name!r}: {key} is {value!r}, which is not a colour. "
                "Use a value such as '#6cb2ff', or a colour name."
            )
    dark = base.dark if section.dark is None else section.dark
    variables = {**base.variables, **rest}
    return replace(base, name=name, dark=dark, variables=variables, **own)


def _is_colour(value: str, *, may_be_transparent: bool) -> bool:
    try:
        colour = parse_colour(value)
    except ColorParseError:
        return False
    return colour.ansi is None and (may_be_transparent or colour.a == 1)


_COLOURS = (
    *("primary", "secondary", "accent", "success", "warning", "error"),
    *("foreground", "background", "surface", "panel"),
)
