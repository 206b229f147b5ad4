"""Every screen and dialog fits into every terminal and can be read in all themes of ours."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from rundir_factory import RunFactory, two_branches
from screen_walk import (
    FAINT_CONTRAST,
    LEAST_CONTRAST,
    colour_problems,
    contrast,
    furnish,
    layout_problems,
    theme_colours,
    walking,
)
from textual.color import Color
from textual.screen import Screen
from textual.theme import BUILTIN_THEMES, Theme

from tfckpt_tui import app as app_package
from tfckpt_tui.app.app import TfckptApp
from tfckpt_tui.app.themes import THEMES
from tfckpt_tui.settings.config import AppSection, Config

NOW = 1_790_000_000.0
ALL = (*(theme.name for theme in THEMES), *BUILTIN_THEMES)
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


@pytest.mark.parametrize("theme", [theme for theme in ALL if not theme.startswith("ansi")])
async def test_the_colours_of_every_theme_can_be_read(live: RunFactory, theme: str) -> None:
    app = TfckptApp(live.run, config=Config(app=AppSection(theme=theme)))
    app.get_css_variables()
    colours = theme_colours(app)
    faint = ["faint", *(f"branch-{n}-past" for n in range(6))]
    texts = [*TEXT, "shade", *(f"branch-{n}" for n in range(6))]
    for ground in ("background", "surface", "row", "row-focus"):
        for name in (*texts, *faint):
            ratio = contrast(colours[name], colours[ground])
            least = FAINT_CONTRAST if name in faint else LEAST_CONTRAST
            assert ratio >= least, (name, colours[name], ground, colours[ground], ratio)


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_the_part_of_a_branch_that_training_left_has_its_hue(theme: Theme) -> None:
    for number in range(6):
        hues = [
            Color.parse(theme.variables[f"branch-{number}{end}"]).hsl.h for end in ("", "-past")
        ]
        apart = abs(hues[0] - hues[1])
        assert min(apart, 1 - apart) < 0.05, (number, hues)
