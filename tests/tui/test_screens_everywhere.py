"""Every screen and dialog fits into every terminal and can be read in all themes of ours."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from app_driving import top, until
from rundir_factory import RunFactory, two_branches
from screen_flaws import (
    FAINT_CONTRAST,
    LEAST_CONTRAST,
    contrast,
    key_problems,
    theme_colours,
)
from screen_walk import (
    FIRST_LOOKS,
    OTHER_LOOKS,
    SIZES,
    STOPS,
    Look,
    Stop,
    ThemeInSize,
    furnish,
    walking,
)
from textual.color import Color
from textual.screen import Screen
from textual.theme import BUILTIN_THEMES, Theme

from tfckpt_trainer.rundir.records.worker import SaveStatus
from tfckpt_tui import app as app_package
from tfckpt_tui.app.app import TfckptApp
from tfckpt_tui.app.crash import Crash
from tfckpt_tui.app.crash_app import CrashApp
from tfckpt_tui.app.runs_app import RunsApp
from tfckpt_tui.app.themes import THEMES
from tfckpt_tui.settings.config import AppSection, Config
from weekly import weekly


def in_groups(stops: Sequence[Stop]) -> list[Sequence[Stop]]:
    """Stops of several tests, which run side by side."""
    return [stops[n : n + 4] for n in range(0, len(stops), 4)]


MAIN = "DashboardScreen"
OPENING = [
    stop for name, stop in {stop.screen: stop for stop in reversed(STOPS)}.items() if name != MAIN
]
"""One stop of each screen that another one opens."""
NOW = 1_790_000_000.0
ALL = (
    *(theme.name for theme in THEMES),
    *(name for name, theme in BUILTIN_THEMES.items() if not theme.primary.startswith("ansi")),
)
ALL_LOOKS = (*FIRST_LOOKS, *OTHER_LOOKS)
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


@pytest.mark.parametrize("looks", [FIRST_LOOKS, *weekly((OTHER_LOOKS,))], ids=["first", "others"])
@pytest.mark.parametrize("stops", in_groups(STOPS), ids=lambda stops: stops[0].name)
async def test_every_screen_fits_and_can_be_read(
    stops: Sequence[Stop],
    looks: Sequence[ThemeInSize],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/home/ada/.config")
    made = furnish(two_branches(tmp_path / "run", now=NOW))
    found: list[str] = []
    async with walking(made, looks) as walk:
        async for stop in walk.screens(stops):
            assert type(walk.screen).__name__ == stop.screen
            flaws = [*key_problems(walk.screen), *await walk.flaws_of(stop)]
            found += [f"{stop.name}, {flaw}" for flaw in flaws]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("stops", in_groups(OPENING), ids=lambda stops: stops[0].name)
async def test_no_screen_fails_that_opens_while_the_app_quits(
    stops: Sequence[Stop], tmp_path: Path
) -> None:
    made = furnish(two_branches(tmp_path / "run", now=NOW))
    for stop in stops:
        # Raises what failed in the app.
        async with walking(made) as walk:
            walk.app.push_screen = quitting(walk.app)  # type: ignore[method-assign]
            await walk.open(stop, waits=False)
            await walk.until_it_quits()


def quitting(app: TfckptApp) -> Callable[..., Any]:
    """Opens a screen, and quits before it has widgets."""
    push_screen = app.push_screen

    def push_and_quit(*arguments: Any, **options: Any) -> Any:
        opened = push_screen(*arguments, **options)
        app.exit()
        return opened

    return push_and_quit


def test_the_walk_comes_to_every_screen() -> None:
    seen = {stop.screen for stop in STOPS}
    assert sorted(all_screens() - seen) == [], "Add them to STOPS of screen_walk.py."


async def test_the_report_of_a_crash_fits_and_can_be_read() -> None:
    trace = "".join(f'  File "app/screens/page_{n}.py", line {n}, in show\n' for n in range(60))
    report = Path("/home/ada/.local/state/tfckpt-tui/crash-20261122-161733.txt")
    for path in (report, None):
        app = CrashApp(Crash("ValueError: " + "not a number " * 9, trace, path), Config())
        async with app.run_test(size=SIZES[0]) as pilot:
            await until(pilot, lambda app=app: "The app failed." in top(app), "the report")
            found = await Look(pilot, ALL_LOOKS).flaws()
            assert not found, "\n".join(found)


async def test_the_list_of_runs_fits_and_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("config", "state"):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", str(tmp_path / name))
    two_branches(tmp_path / "runs" / "language-model", now=NOW)
    failing = RunFactory(tmp_path / "runs" / "digits").create(strategy="OneDeviceStrategy")
    failing.worker(0, saves=SaveStatus(failed=7, problem="no room"))
    app = RunsApp(tmp_path / "runs", Config())
    found: list[str] = []
    async with app.run_test(size=SIZES[0]) as pilot:
        await until(pilot, lambda: "digits" in top(app), "the runs")
        look = Look(pilot, ALL_LOOKS)
        for keys, shows in (
            ((), "nguage-model"),
            (("question_mark",), "Keys of the list of runs"),
            (("n",), "command of each worker"),
            (("slash", *"mod"), "mod"),
        ):
            await pilot.press(*keys)
            await until(pilot, lambda shows=shows: shows in top(app), shows)
            found += [f"{shows}, {flaw}" for flaw in await look.flaws()]
            if len(app.screen_stack) > 1:
                await pilot.press("escape")
    assert not found, "\n".join(found)


async def test_without_runs_the_list_says_how_to_open_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("config", "state"):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", str(tmp_path / name))
    app = RunsApp(None, Config())
    async with app.run_test(size=SIZES[0]) as pilot:
        await until(pilot, lambda: "tfckpt-tui browse" in top(app), "what to do")
        assert top(app).splitlines()[-1].split() == ["n", "new", "run", "?", "help", "q", "leave"]
        found = await Look(pilot, ALL_LOOKS).flaws()
        assert not found, "\n".join(found)


@pytest.mark.parametrize("theme", ALL)
async def test_the_colours_of_every_theme_can_be_read(live: RunFactory, theme: str) -> None:
    app = TfckptApp(live.run, config=Config(app=AppSection(theme=theme)))
    app.get_css_variables()
    colours = theme_colours(app)
    faint = ["faint", *(f"branch-{n}-past" for n in range(6))]
    texts = [*TEXT, "shade", *(f"branch-{n}" for n in range(6))]
    on_widgets = [("button", name) for name in ("foreground", "primary", "faint")]
    on_notification = [("surface", f"text-{name}") for name in ("success", "warning", "error")]
    grounds = ("background", "surface", "row", "row-focus")
    if theme in BUILTIN_THEMES:
        # The others have a mixture, which the screens show.
        on_widgets.append(("input-selection-background", "input-selection-foreground"))
    for ground, name in (*product(grounds, (*texts, *faint)), *on_widgets, *on_notification):
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
