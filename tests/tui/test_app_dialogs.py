"""Which button of a dialog enter presses."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from app_driving import opened, top, type_ahead, until, until_screen, until_shown
from rundir_factory import RunFactory, two_branches
from screen_walk import STOPS, furnish, walking
from textual.screen import Screen
from textual.widgets import Button, Input

from bundle_writing import write_floats
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.records.command import CommandKind
from tfckpt_tui.app.dashboard import DashboardScreen
from tfckpt_tui.app.dialogs.dialog import Dialog, ListDialog
from tfckpt_tui.app.dialogs.prune import PlanList
from tfckpt_tui.app.dialogs.restore import RestoreDialog


@pytest.mark.parametrize(
    ("keys", "name"), [(["down"], "ckpt-500"), (["down", "down", "up", "down"], "ckpt-400")]
)
async def test_enter_restores_what_the_arrows_chose(live: RunFactory, keys, name) -> None:
    async with opened(live.run) as pilot:
        type_ahead(pilot, "r", *keys, "enter")
        command = await until(pilot, lambda: CommandQueue(live.run).claim(time.time()), "a command")
        assert command.arguments == {"name": name, "partial": False, "values": {}}


async def test_after_the_arrows_a_step_can_still_be_typed(live: RunFactory) -> None:
    async with opened(live.run) as pilot:
        type_ahead(pilot, "r", "down", *"300", "enter")
        command = await until(pilot, lambda: CommandQueue(live.run).claim(time.time()), "a command")
        assert command.arguments == {"name": "ckpt-300", "partial": False, "values": {}}


async def test_enter_never_presses_a_button_that_has_been_disabled(live: RunFactory) -> None:
    write_floats(live.run.root / "ckpt-200", (1.0, 2.0, 3.0))
    live.run.record("ckpt-200").unlink()
    async with opened(live.run, select="ckpt-b1-400") as pilot:
        await pilot.press("r", "up")
        await until_shown(pilot, "1 variable does not match")
        screen = pilot.app.screen
        await until(pilot, lambda: screen.focused is None, "its button is disabled")
        await pilot.press("enter")
        assert isinstance(pilot.app.screen, RestoreDialog), "it is still open"
        assert isinstance(screen.focused, Button)
        assert "restore in part" in str(screen.focused.label)
        assert CommandQueue(live.run).claim(time.time()) is None
        await pilot.press("enter")
        command = await until(pilot, lambda: CommandQueue(live.run).claim(time.time()), "a command")
        assert command.arguments == {"name": "ckpt-200", "partial": True, "values": {}}


async def test_enter_without_a_choice_changes_nothing(live: RunFactory) -> None:
    async with opened(live.run) as pilot:
        await pilot.press("r", "enter")
        await until_screen(pilot, DashboardScreen)
        assert CommandQueue(live.run).claim(time.time()) is None


async def test_the_arrows_choose_a_button_and_enter_presses_it(live: RunFactory) -> None:
    async with opened(live.run) as pilot:
        type_ahead(pilot, "x", "down", "enter")
        command = await until(pilot, lambda: CommandQueue(live.run).claim(time.time()), "a command")
        assert (command.kind, command.arguments) == (CommandKind.STOP, {"save": True})


def stuck_at(button: Button, name: str, screen: Screen[Any]) -> list[str]:
    return [f"{name}: the button that cancels keeps the focus"] if screen.focused is button else []


def taken_by_enter(dialog: Dialog[Any]) -> list[str]:
    """The buttons whose label shows that enter presses them."""
    buttons = [button for button in dialog.query(Button) if "⏎" in str(button.label)]
    return [str(button.label).removeprefix("⏎").strip() for button in buttons]


async def test_every_dialog_does_with_arrows_and_enter_what_its_labels_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The arrows leave the button that cancels; enter in a field presses what shows it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", "/home/ada/.config")
    made = furnish(two_branches(tmp_path / "run", now=1_790_000_000.0))
    dialogs = [stop for stop in STOPS if stop.screen.endswith("Dialog")]
    stuck: list[str] = []
    tried: list[str] = []
    async with walking(made) as walk:
        async for stop in walk.screens(dialogs):
            dialog, name = walk.screen, stop.name
            assert isinstance(dialog, Dialog)
            first = dialog.query_one("#choice-0", Button)
            if dialog.focused is not first and not isinstance(dialog.focused, Input):
                stuck.append(f"{name}: {dialog.focused} has the focus")
            if not all(button.disabled for button in dialog.query(Button) if button is not first):
                # From a field, the arrows come to the button that cancels first.
                moves = len(dialog.query(Input)) + 1 if isinstance(dialog.focused, Input) else 1
                # In a plan, the other arrows scroll.
                await walk.press(*["right" if isinstance(dialog, ListDialog) else "down"] * moves)
                stuck += await walk.settled(partial(stuck_at, first, name))
            for field in dialog.query(Input):
                dialog.set_focus(field)
                await walk.press("end")
                promised, taken = taken_by_enter(dialog), []
                monkeypatch.setattr(dialog, "take", lambda one, to=taken: to.append(one.label))
                await walk.press("enter")
                assert taken == promised, f"{name}, {field.id}"
                tried += taken
    assert stuck == []
    assert set(tried) >= {"restore", "move to the trash", "launch"}


async def test_a_plan_gets_the_lines_of_a_small_terminal(ended: RunFactory) -> None:
    async with opened(ended.run, size=(80, 24)) as pilot:
        await pilot.press("p")
        await until_shown(pilot, "move to the trash")
        assert pilot.app.screen.query_one(PlanList).visible_rows() >= 8


async def test_the_reasons_of_a_plan_are_cut_once_in_a_narrow_terminal(ended: RunFactory) -> None:
    async with opened(ended.run, size=(60, 24)) as pilot:
        await pilot.press("p", "2")
        await until_shown(pilot, "to the trash")
        rows = [row for row in top(pilot.app).splitlines() if "● stays" in row or "− goes" in row]
        assert rows
        assert all(row.count("…") <= 1 for row in rows)
        assert all("ckpt-" in row for row in rows)
