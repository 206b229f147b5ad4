"""The page of guards, and the dialogs that add and remove one."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from app_driving import opened, top, until, until_jobs_are_shown, until_screen, until_shown
from rundir_factory import ABOVE, SPIKE, RunFactory
from textual.pilot import Pilot
from textual.widgets import Input

from event_files import event, float_value
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import CommandKind
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.run import GuardInForce, GuardSource
from tfckpt_trainer.rundir.run_config import read_run_config
from tfckpt_tui.app.dashboard import DashboardScreen
from tfckpt_tui.app.dialogs.guard_rule import AddGuardDialog
from tfckpt_tui.app.screens.guards import GuardsScreen


@asynccontextmanager
async def on_page(made: RunFactory, *, read_only: bool = False) -> AsyncIterator[Pilot[int]]:
    async with opened(made.run, read_only=read_only) as pilot:
        await pilot.press("G")
        await until_screen(pilot, GuardsScreen)
        await until_jobs_are_shown(pilot)
        yield pilot


@pytest.fixture
def guarded(live: RunFactory) -> RunFactory:
    """A run with two guards, one of which fired."""
    return live.guarded()


async def test_the_page_shows_what_guards_did_and_would_have_done(guarded: RunFactory) -> None:
    async with on_page(guarded) as pilot:
        spike, above = top(pilot.app).splitlines()[2:4]
        assert SPIKE in spike
        assert spike.split(SPIKE)[1].split()[:6] == ["1", "step", "420", "0", "in", "force"]
        assert above.split(ABOVE)[1].split()[:5] == ["0", "1", "in", "force", "config"]
        assert "loss is 91.2, 14.3 deviations above 2.31" in top(pilot.app)
        await pilot.press("down")
        await until_shown(pilot, "It would have fired 1 time in 161 points from step 0 to 436.")
        assert "loss is 5.5" in top(pilot.app)


async def test_a_run_without_guards_is_offered_some_by_a_key(live: RunFactory) -> None:
    async with on_page(live) as pilot:
        await until_shown(pilot, "3  no_checkpoint 1h: notify")
        shown_page = top(pilot.app)
        assert "1  not_finite: go_back, skip_batches 1" in shown_page
        assert "2  spike loss: go_back, skip_batches 10" in shown_page
        await until(pilot, lambda: top(pilot.app).count("It would have fired") == 3, "replays")
        await pilot.press("2")
        await until_screen(pilot, AddGuardDialog)
        await until_shown(pilot, "Training takes it now.")
        await pilot.press("enter")
        file = live.run.config_file
        await until(pilot, lambda: file.exists() and "spike" in file.read_text(), "the guard")
        await until(pilot, lambda: "For this run" not in top(pilot.app), "the end of the offer")
        await pilot.press("3")
        assert isinstance(pilot.app.screen, GuardsScreen)


async def test_no_guard_is_offered_on_a_name_in_event_files(tmp_path: Path) -> None:
    """Once its script uses this library, the metric has another one."""
    (tmp_path / "events.out.tfevents.1.host").write_bytes(event(1, float_value("epoch_loss", 1)))
    async with opened(RunDirectory(tmp_path)) as pilot:
        await pilot.press("G")
        await until_shown(pilot, "2  no_checkpoint 1h: notify")
        assert "spike" not in top(pilot.app)


async def test_a_run_that_may_not_be_changed_takes_no_offer(live: RunFactory) -> None:
    async with on_page(live, read_only=True) as pilot:
        await until_shown(pilot, "no_checkpoint 1h: notify")
        assert "3  no_checkpoint" not in top(pilot.app)
        assert "add one of these" not in top(pilot.app)
        await pilot.press("1")
        assert isinstance(pilot.app.screen, GuardsScreen)


async def test_the_page_follows_the_run(guarded: RunFactory) -> None:
    async with on_page(guarded) as pilot:
        guarded.event_log(EventKind.GUARD, "fired again", step=430, details={"rule": SPIKE})
        await until_shown(pilot, "fired again")
        guarded.create(guards=[GuardInForce(rule="above loss 9: stop", source=GuardSource.CONFIG)])
        await until_shown(pilot, "above loss 9: stop")


async def test_a_guard_is_typed_replayed_and_added(guarded: RunFactory) -> None:
    async with on_page(guarded) as pilot:
        await pilot.press("a", *"above loss 4 : stop")
        await until_shown(pilot, "It would have fired 1 time in 161 points from step 0 to 436.")
        assert "Training takes it now." in top(pilot.app)
        await pilot.press("enter")
        box = CommandQueue(guarded.run)
        command = await until(pilot, lambda: box.claim(time.time()), "a command")
        assert command.kind is CommandKind.GUARDS
        assert read_run_config(guarded.run).guards == (ABOVE, "above loss 4: stop")
        await until_shown(pilot, "Added the guard.")


async def test_a_guard_is_removed_after_asking(ended: RunFactory) -> None:
    async with on_page(ended.guarded()) as pilot:
        await pilot.press("x")
        await until_shown(pilot, "It is a guard of the script.")
        await pilot.press("down", "x")
        await until_shown(pilot, "Training drops it at the next start.")
        await pilot.press("y")
        await until_shown(pilot, "Removed the guard. The next start takes the change.")
        await until(pilot, lambda: ABOVE not in top(pilot.app), "it is gone")
    assert read_run_config(ended.run).guards == ()


@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        ("spike", "spike has no METRIC."),
        ("above loss 3: fly", "'fly' is no action."),
        (ABOVE, "The run has this guard."),
        ("above loss 3: set lr 1", "There is no hyperparameter lr."),
    ],
)
async def test_what_is_no_guard_says_why_and_changes_nothing(
    guarded: RunFactory, typed: str, problem: str
) -> None:
    async with on_page(guarded) as pilot:
        await pilot.press("a", *typed)
        await until_shown(pilot, problem)
        await pilot.press("enter")
        assert isinstance(pilot.app.screen, AddGuardDialog)
    assert read_run_config(guarded.run).guards == (ABOVE,)


async def test_with_read_only_nothing_is_changed(guarded: RunFactory) -> None:
    async with on_page(guarded, read_only=True) as pilot:
        assert "a add" not in top(pilot.app)
        await pilot.press("a")
        await until_shown(pilot, "The app was opened to read only.")
        assert isinstance(pilot.app.screen, GuardsScreen)


async def test_a_damaged_config_is_said(guarded: RunFactory) -> None:
    guarded.run.config_file.write_text("guards = [")
    async with on_page(guarded) as pilot:
        assert "config.toml" in top(pilot.app)
        assert SPIKE in top(pilot.app)


async def test_a_guard_of_the_script_s_own_class_cannot_be_replayed(live: RunFactory) -> None:
    live.create(guards=[GuardInForce(rule="high_ratio 3: stop", source=GuardSource.SCRIPT)])
    async with on_page(live) as pilot:
        assert "so it cannot be replayed here." in top(pilot.app)


async def test_the_key_is_typed_into_the_filter(guarded: RunFactory) -> None:
    async with opened(guarded.run) as pilot:
        await pilot.press("slash", "G")
        assert isinstance(pilot.app.screen, DashboardScreen)
        assert pilot.app.screen.query_one("#filter", Input).value == "G"
