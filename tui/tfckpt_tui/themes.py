"""The app's own colours: a dark and a light theme, and what other themes lack."""

from __future__ import annotations

from dataclasses import replace

from textual.theme import Theme

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
"""White on black, with edges that can be seen on a poor projector."""

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
"""The colours of Okabe and Ito (2008), which people with any colour vision tell apart."""

THEMES = (DARK, LIGHT, CONTRAST, COLOUR_BLIND)
"""Registered by the app; the first is the default."""


def defaults_for(*, dark: bool) -> dict[str, str]:
    """Returns the variables of ours, for themes that were made without them."""
    variables = (DARK if dark else LIGHT).variables
    ours = ("shade", "faint", "edge", "row", "track", "branch")
    return {name: value for name, value in variables.items() if name.startswith(ours)}
