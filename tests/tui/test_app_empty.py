"""Pages and lists that have nothing to show: what they are for, and what to do first."""

from __future__ import annotations

from pathlib import Path

import pytest
from app_driving import (
    opened,
    top,
    until,
    until_jobs_are_shown,
    until_screen,
    until_shown,
    until_told,
)
from rundir_factory import RunFactory
from screen_flaws import key_problems, layout_problems

from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.run_config import read_run_config
from tfckpt_tui.app.actions.table import DEFAULT_KEYS
from tfckpt_tui.app.dialogs.launch import LaunchDialog
from tfckpt_tui.app.dialogs.prune import PruneDialog
from tfckpt_tui.app.screens.guards import GuardsScreen
from tfckpt_tui.app.screens.trash import TrashScreen
from tfckpt_tui.settings.config import config_path, read_config

LAUNCH = "L launch"
COPY = "y copy"
ADD = "1 2 add one of these"

PAGES = {
    "H": ("A hyperparameter is a value", {LAUNCH}),
    "A": ("An action is a command", {COPY}),
    "G": ("A guard is a rule", {ADD}),
    "P": ("A trace tells", {LAUNCH}),
    "T": ("Pruned checkpoints", {LAUNCH, COPY}),
    "c": ("Charts show each metric", {LAUNCH, COPY}),
    "J": ("The log tells", {LAUNCH}),
    "l": ("what each worker and the supervisor print", {LAUNCH}),
    "o": ("Problems of the run", set()),
}
"""What a page of an empty directory is for, and what its footer offers, by its key."""


def words_of(screen: str) -> str:
    """The texts of a screen as one line."""
    return " ".join(screen.replace("│", " ").split())


@pytest.mark.parametrize("size", [(80, 24), (60, 20)])
@pytest.mark.parametrize("key", PAGES)
async def test_an_empty_page_says_what_it_is_for(
    key: str, size: tuple[int, int], tmp_path: Path
) -> None:
    purpose, offered = PAGES[key]
    async with opened(RunDirectory(tmp_path), size=size) as pilot:
        await pilot.press(key)
        await until(pilot, lambda: purpose in words_of(top(pilot.app)), purpose)
        await until_jobs_are_shown(pilot)
        footer = top(pilot.app).splitlines()[-1]
        assert {
            hint for hint in (LAUNCH, COPY, "1 2 add one of these") if hint in footer
        } == offered
        if size == (80, 24):
            assert "…" not in top(pilot.app)
            assert "┃" not in top(pilot.app), "all of it is seen at once"
        assert [*layout_problems(pilot.app.screen), *key_problems(pilot.app.screen)] == []
        if LAUNCH in offered:
            await pilot.press("L")
            await until_screen(pilot, LaunchDialog)


@pytest.mark.parametrize("key", PAGES)
async def test_to_read_only_no_page_offers_a_change(key: str, tmp_path: Path) -> None:
    async with opened(RunDirectory(tmp_path), read_only=True) as pilot:
        await pilot.press(key)
        await until(pilot, lambda: PAGES[key][0] in words_of(top(pilot.app)), "the page")
        await until_jobs_are_shown(pilot)
        assert "Press L" not in top(pilot.app)
        screen = pilot.app.screen
        await pilot.press("L", "p", "1")
        await pilot.pause()
        assert pilot.app.screen is screen


async def test_a_key_of_the_dashboard_that_an_empty_page_names_works(ended: RunFactory) -> None:
    async with opened(ended.run) as pilot:
        await pilot.press("T")
        await until_shown(pilot, "Press p to choose what goes here")
        await until_shown(pilot, "With `keep last` 3, it moves 3 of 6 checkpoints")
        await pilot.press("p")
        await until_screen(pilot, PruneDialog)
        await pilot.press("3", "enter")
        await until_shown(pilot, "bring back")
        assert isinstance(pilot.app.screen, TrashScreen)
        await pilot.press("u")
        await until_shown(pilot, "undo a prune")


async def test_without_workers_the_key_of_them_says_how_to_have_some(tmp_path: Path) -> None:
    async with opened(RunDirectory(tmp_path)) as pilot:
        await until_shown(pilot, "There is no checkpoint yet")
        await pilot.press("w")
        await until_told(pilot, "Press L to launch training.")


async def test_a_lone_checkpoint_is_proposed_no_prune(tmp_path: Path) -> None:
    made = RunFactory(tmp_path / "run")
    made.run.root.mkdir()
    made.checkpoint(10, recorded=False)
    async with opened(made.run) as pilot:
        await pilot.press("T")
        await until_shown(pilot, "The trash is empty.")
        assert "keep last" not in top(pilot.app)


@pytest.mark.parametrize(("step", "name"), [(None, "disk"), (10, "stats")])
async def test_the_action_to_paste_is_one_that_can_be_run(
    step: int | None, name: str, tmp_path: Path
) -> None:
    made = RunFactory(tmp_path / "run").create()
    if step is not None:
        made.checkpoint(step)
    async with opened(made.run) as pilot:
        await pilot.press("A", "y")
        await until(pilot, lambda: pilot.app.clipboard, "the lines")
        config_path().parent.mkdir(parents=True)
        config_path().write_text(pilot.app.clipboard)
    assert read_config(DEFAULT_KEYS).actions[name].key == "a"


async def test_the_alerts_to_paste_are_sent(live: RunFactory) -> None:
    async with opened(live.run) as pilot:
        await pilot.press("o")
        await until_shown(pilot, "There are no alerts and no diagnostics.")
        await pilot.press("y")
        await until(pilot, lambda: pilot.app.clipboard, "the lines")
        assert str(live.run.config_file) in "".join(words_of(top(pilot.app)).split())
        live.run.config_file.write_text(pilot.app.clipboard)
    (command,) = read_run_config(live.run, to_send=True).alerts.commands
    assert command.command[:2] == ["tee", "-a"]


async def test_without_metrics_no_guard_is_proposed_for_one(tmp_path: Path) -> None:
    async with opened(RunDirectory(tmp_path)) as pilot:
        await pilot.press("G")
        await until_screen(pilot, GuardsScreen)
        await until_shown(pilot, "2  no_checkpoint 1h: notify")
        assert "spike" not in top(pilot.app)


async def test_logs_of_a_script_that_was_not_launched_need_a_launch(live: RunFactory) -> None:
    live.run.worker_log(0).unlink(missing_ok=True)
    live.create(launched=False)
    async with opened(live.run) as pilot:
        await pilot.press("l", "y")
        await until(pilot, lambda: pilot.app.clipboard, "the command")
        assert pilot.app.clipboard == f"tfckpt-tui launch {live.run.root} -- python train.py"


async def test_a_page_fills_while_it_is_open(tmp_path: Path) -> None:
    made = RunFactory(tmp_path / "run")
    made.run.root.mkdir()
    async with opened(made.run) as pilot:
        await pilot.press("l")
        await until_shown(pilot, "There are no logs")
        made.create()
        made.run.worker_log(0).parent.mkdir(parents=True, exist_ok=True)
        made.run.worker_log(0).write_text("first words\n")
        await until_shown(pilot, "first words")
        await until_shown(pilot, "next log")
        assert pilot.app.focused is pilot.app.screen.query_one("#log")
