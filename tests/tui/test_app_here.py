"""Actions work on the page where the user is."""

from __future__ import annotations

from app_driving import opened, top, until, until_shown
from rundir_factory import RunFactory

from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_tui.app.screens.checkpoint import CheckpointScreen
from tfckpt_tui.app.screens.dashboard import DashboardScreen


async def until_page(pilot) -> CheckpointScreen:
    return await until(
        pilot,
        lambda: isinstance(pilot.app.screen, CheckpointScreen) and pilot.app.screen,
        "the page of a checkpoint",
    )


async def test_a_checkpoint_is_restored_from_its_page(live: RunFactory) -> None:
    async with opened(live.run) as pilot:
        await pilot.press("space", "down", "enter")
        await until_page(pilot)
        await until_shown(pilot, "r restore")
        await pilot.press("r")
        await until_shown(pilot, "which checkpoint?")
        assert "ckpt-400" in top(pilot.app)
        await pilot.press("y")
        await until_shown(pilot, "Asked for: restore")
        command = await until(pilot, CommandQueue(live.run).pending, "the command")
        assert command[0].arguments["name"] == "ckpt-400"


async def test_a_checkpoint_is_pinned_exported_and_pruned_from_its_page(ended: RunFactory) -> None:
    async with opened(ended.run) as pilot:
        await pilot.press("space", "down", "enter")
        page = await until_page(pilot)
        await until_shown(pilot, "* pin")
        assert "r restore" not in top(pilot.app).splitlines()[-1]
        await pilot.press("*")
        await until_shown(pilot, "is pinned")
        await pilot.press("*")
        await until_shown(pilot, "is no longer pinned")
        await pilot.press("e")
        await until_shown(pilot, "Not now: export")
        assert pilot.app.screen is page
        await pilot.press("p")
        await until_shown(pilot, "prune 1 checkpoint")
        await pilot.press("y")
        await until_shown(pilot, "This checkpoint no longer exists")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, DashboardScreen), "back")
        await until_shown(pilot, "1 marked")
