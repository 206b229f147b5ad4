"""Every screen and dialog fits into every terminal and can be read in both themes."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from rundir_factory import two_branches
from screen_walk import (
    LEAST_CONTRAST,
    colour_problems,
    contrast,
    furnish,
    layout_problems,
    walking,
)
from textual.color import Color
from textual.screen import Screen

from tfckpt_tui import app as app_package
from tfckpt_tui.app.themes import CONTRAST, DARK, LIGHT

NOW = 1_790_000_000.0
TEXT = ("primary", "accent", "success", "warning", "error", "foreground")


def all_screens() -> set[str]:
    """The screens of the app; those that others are derived from open in no run."""
    for module in pkgutil.walk_packages(app_package.__path__, f"{app_package.__name__}."):
        importlib.import_module(module.name)
    return {kind.__name__ for kind in below(Screen) if not kind.__subclasses__()}


def below(kind: type) -> Iterator[type]:
    for one in kind.__subclasses__():
        if one.__module__.startswith(app_package.__name__):
            yield one
        yield from below(one)


async def test_every_screen_fits_and_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/home/ada/.config")
    made = furnish(two_branches(tmp_path / "run", now=NOW))
    found: list[str] = []
    seen: set[str] = set()
    async with walking(made) as walk:
        async for name in walk.screens():
            seen.add(type(walk.screen).__name__)
            async for width, height in walk.sizes():
                problems = await walk.settled(layout_problems)
                found += [f"{name}, {width}x{height}: {p}" for p in problems]
            async for theme in walk.themes():
                problems = await walk.settled(colour_problems)
                found += [f"{name}, {theme}: {p}" for p in problems]
    assert found == []
    assert sorted(all_screens() - seen) == [], "Add them to STOPS of screen_walk.py."


@pytest.mark.parametrize("theme", [DARK, LIGHT, CONTRAST], ids=lambda theme: theme.name)
def test_the_colours_of_a_theme_can_be_read(theme) -> None:
    colours = {name: getattr(theme, name) for name in TEXT}
    colours["shade"] = theme.variables["shade"]
    colours |= {f"branch-{n}": theme.variables[f"branch-{n}"] for n in range(6)}
    for name, colour in colours.items():
        for ground in (theme.background, theme.surface):
            ratio = contrast(Color.parse(colour), Color.parse(ground))
            assert ratio >= LEAST_CONTRAST, (name, colour, ground, ratio)
