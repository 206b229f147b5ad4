"""What is typed reaches what it is meant for, however fast it is typed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import pytest
from app_driving import opened, top, type_ahead, until, until_screen, until_shown
from rich.console import RenderableType
from rundir_factory import RunFactory
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Input

from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_tui.app.base_app import BaseApp
from tfckpt_tui.app.dashboard import DashboardScreen
from tfckpt_tui.app.dialogs.restore import RestoreDialog
from tfckpt_tui.app.dialogs.stop import StopDialog
from tfckpt_tui.app.widgets.checkpoints.history import History
from tfckpt_tui.settings.config import Config
from waiting import LEAST_SECONDS


def field_of(pilot: Pilot[int]) -> str:
    """The text of the field of a restore dialog; empty if none is open, or not composed yet."""
    screen = pilot.app.screen
    fields = screen.query("#target").results(Input) if isinstance(screen, RestoreDialog) else ()
    return next((field.value for field in fields), "")


async def test_keys_typed_ahead_go_to_the_dialog_that_they_open(live: RunFactory) -> None:
    async with opened(live.run) as pilot:
        type_ahead(pilot, *"r300")
        await until(pilot, lambda: field_of(pilot) == "300", "the step in the field")
        await until_shown(pilot, "step 300")
        type_ahead(pilot, "enter")
        command = await until(
            pilot, lambda: CommandQueue(live.run).claim(time.time()), "a command in the box"
        )
        assert command.arguments == {"name": "ckpt-300", "partial": False, "values": {}}


async def test_keys_typed_ahead_go_to_the_screen_that_they_open(live: RunFactory) -> None:
    live.run.worker_log(0).write_text("step 100\nstep 200\n")
    async with opened(live.run) as pilot:
        type_ahead(pilot, *"?ql/step", "enter", "n", "escape", "escape", *" x")
        await until_screen(pilot, StopDialog)
        assert not pilot.app._exit
        type_ahead(pilot, "n", "q")
        await until(pilot, lambda: pilot.app._exit, "the end")


@pytest.mark.parametrize("typed", ["ckpt-b1-400", "min loss", "400", "CKPT-1"])
@pytest.mark.parametrize("ahead", [True, False])
async def test_a_typed_name_reaches_the_field_of_a_restore(
    live: RunFactory, typed: str, ahead: bool
) -> None:
    async with opened(live.run) as pilot:
        await type_in(pilot, ["r", *typed], ahead=ahead)
        await until(pilot, lambda: field_of(pilot) == typed, f"{typed} in the field")


async def test_a_name_that_begins_with_the_key_of_a_button_is_typed(live: RunFactory) -> None:
    live.checkpoint(600, name="yolo-600", recorded=False)
    live.checkpoint(700, name="pretrained-700", recorded=False)
    async with opened(live.run) as pilot:
        for typed in ("yolo-600", "pretrained-700", "n"):
            await pilot.press("r", *typed)
            assert field_of(pilot) == typed
            await pilot.press("escape")
        assert CommandQueue(live.run).claim(time.time()) is None


async def test_no_key_reaches_what_lies_beneath_a_dialog(live: RunFactory) -> None:
    async with opened(live.run) as pilot:
        await pilot.press("x")
        await until_screen(pilot, StopDialog)
        await pilot.press(*"mMlzupvft?/:,<>=*", "space", "down", "f1")
        assert "stop the run?" in top(pilot.app)
        await pilot.press("escape")
        assert isinstance(pilot.app.screen, DashboardScreen)
        assert pilot.app.screen.query_one(History).marked == ()


async def test_a_field_with_the_focus_leaves_no_button_a_letter(ended: RunFactory) -> None:
    async with opened(ended.run) as pilot:
        await pilot.press("L")
        await until_shown(pilot, "esc  cancel")
        assert "y  launch" not in top(pilot.app)
        field = pilot.app.screen.query_one("#command", Input)
        field.value = f"{sys.executable} -c 1"
        await until_shown(pilot, "⏎  launch")
        await pilot.press("up")
        await until_shown(pilot, "y  launch")
        await until_shown(pilot, "n  cancel")


async def type_in(pilot: Pilot[int], keys: Sequence[str], *, ahead: bool) -> None:
    if ahead:
        type_ahead(pilot, *keys)
    else:
        await pilot.press(*keys)


class EndlessFrames(BaseApp[None]):
    """Draws frame after frame, as often as it may; notes when."""

    CSS_PATH = None

    def __init__(self) -> None:
        super().__init__(Config())
        self.frames: list[float] = []

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        super()._display(screen, renderable)
        self.frames.append(time.monotonic())
        self.call_next(screen.refresh)


async def test_frames_follow_each_other_sooner_than_in_other_apps() -> None:
    """A key waits for up to two periods after a frame. Textual draws 60 frames a second.

    On a loaded machine, some follow each other as soon: ten of them take nine periods at least,
    which are 150 ms for Textual.
    """
    app = EndlessFrames()

    def soonest() -> float:
        """The shortest time that ten frames took, but for those of the start."""
        later = app.frames[20:]
        return min((b - a for a, b in zip(later, later[10:], strict=False)), default=1.0)

    async with app.run_test() as pilot:
        await until(pilot, lambda: soonest() < 0.14, "ten frames within 140 ms")


_OPEN_AND_WAIT = """
import asyncio, sys
from pathlib import Path
from app_driving import opened, until
from tfckpt_trainer.rundir.paths import RunDirectory

async def main():
    async with opened(RunDirectory(Path(sys.argv[1]))) as pilot:
        names = ["screens.logs", "dialogs.prune", "actions.run_control"]
        await until(pilot, lambda: all("tfckpt_tui.app." + n in sys.modules for n in names), "all")

asyncio.run(main())
"""


@pytest.mark.e2e
def test_pages_are_imported_before_a_key_opens_them(live: RunFactory) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", _OPEN_AND_WAIT, str(live.run.root)]
    subprocess.run(command, env=environment, check=True, timeout=2 * LEAST_SECONDS)
