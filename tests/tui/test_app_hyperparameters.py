"""The page of hyperparameters, and the dialog that changes one."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from answering_trainer import AnsweringTrainer, done
from app_driving import opened, shown, top, until, until_screen, until_shown
from rundir_factory import HYPERPARAMETERS, RunFactory, without_heartbeats
from textual.pilot import Pilot

from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.records.command import CommandKind, SetArguments
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_tui.app.dialogs.set import SetDialog
from tfckpt_tui.app.screens.hyperparameters import HyperparametersScreen
from tfckpt_tui.services.control.request import FrontEnd
from tfckpt_tui.services.control.restore import choose_start


@asynccontextmanager
async def on_page(made: RunFactory, *, read_only: bool = False) -> AsyncIterator[Pilot[int]]:
    async with opened(made.run, read_only=read_only) as pilot:
        await pilot.press("H")
        await until_screen(pilot, HyperparametersScreen)
        await pilot.pause()
        yield pilot


@asynccontextmanager
async def changing(made: RunFactory, *keys: str) -> AsyncIterator[Pilot[int]]:
    """The dialog of the first hyperparameter, in which these keys were typed."""
    async with on_page(made) as pilot:
        await pilot.press("enter", *keys)
        await until_screen(pilot, SetDialog)
        await pilot.pause()
        yield pilot


@pytest.fixture
def told(live: RunFactory) -> RunFactory:
    """A run whose chief tells hyperparameters."""
    return live.tells(*HYPERPARAMETERS)


async def test_the_page_shows_value_bounds_plan_and_who_changed_it(told: RunFactory) -> None:
    message = "learning_rate 0.003 → 0.0003 on 2 workers, after step 390."
    change = {"name": "learning_rate", "before": 0.003, "after": 0.0003}
    told.event_log(EventKind.SET, message, details={"hyperparameters": [change]})
    told.event_log(EventKind.SET, "another one", details={"hyperparameters": [{"name": "x"}, 3]})
    async with on_page(told) as pilot:
        text = " ".join(top(pilot.app).split())
        assert "step 390 by ann@desk, command line" in text
        assert "0.0001 after step 600, from step 500 on, by ann@desk, app" in text
        assert "a number, at least 0" in text
        assert message in text
        assert "another one" not in text
        await pilot.press("down")
        await until_shown(pilot, "a number, at least 0 and below 1")


async def test_the_page_follows_the_run(told: RunFactory) -> None:
    async with on_page(told) as pilot:
        told.tells(msgspec.structs.replace(HYPERPARAMETERS[0], value=0.0002, step=550))
        await until_shown(pilot, "0.0002 at step 550")


async def test_a_value_is_typed_read_and_confirmed(told: RunFactory) -> None:
    message = "learning_rate 0.0003 → 0.0001 on 2 workers, after step 438."
    async with changing(told, *"1e-4") as pilot:
        await until_shown(pilot, "learning_rate 0.0003 → 0.0001 on 2 workers at the next step.")
        assert "This replaces the planned change to 0.0001 after step 600." in top(pilot.app)
        with AnsweringTrainer(told.run, done(message)) as trainer:
            await pilot.press("enter")
            await until_shown(pilot, f"set: done · {message}")
        (command,) = trainer.taken
    assert command.kind is CommandKind.SET
    assert command.requested_by.endswith("terminal app")
    assert command.arguments == msgspec.to_builtins(SetArguments(values={"learning_rate": 1e-4}))


async def test_a_change_is_planned_for_a_step_and_over_steps(told: RunFactory) -> None:
    async with changing(told, *"1e-4", "down", *"900", "down", *"50") as pilot:
        await until_shown(pilot, "learning_rate 0.0003 → 0.0001 on 2 workers after step 900")
        assert "over 50 steps." in top(pilot.app)
        await pilot.press("enter")
        box = CommandQueue(told.run)
        command = await until(pilot, lambda: box.claim(time.time()), "a command")
    asked = SetArguments(values={"learning_rate": 1e-4}, at_step=900, over=50)
    assert command.arguments == msgspec.to_builtins(asked)


async def test_a_schedule_is_replaced_until_a_step(live: RunFactory) -> None:
    rate = msgspec.structs.replace(
        HYPERPARAMETERS[0], schedule="CosineDecay", what="by CosineDecay", planned=None
    )
    live.tells(rate)
    async with changing(live, *"1e-4") as pilot:
        await until_shown(pilot, "Type until which step it replaces CosineDecay.")
        await pilot.press("down", "down", "down", *"900")
        await until_shown(pilot, "After step 900, CosineDecay goes on.")
        await pilot.press("enter")
        box = CommandQueue(live.run)
        command = await until(pilot, lambda: box.claim(time.time()), "a command")
    assert command.arguments["until_step"] == 900


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ("fast", "'fast' is no number."),
        ("nan", "learning_rate cannot be nan; it must be a number, at least 0."),
        ("-1", "learning_rate cannot be -1"),
        (("1", "down", "9"), "Step 9 has been trained: the run is at step 438."),
        (("1", "down", "x"), "'x' is no whole number of steps."),
        (("enter",), "Type a value."),
    ],
)
async def test_what_cannot_be_set_says_why_and_sends_nothing(
    told: RunFactory, keys: str | tuple[str, ...], problem: str
) -> None:
    async with changing(told, *keys) as pilot:
        await until_shown(pilot, problem)
        assert "→" not in top(pilot.app)
        await pilot.press("enter")
        assert isinstance(pilot.app.screen, SetDialog)
        assert not list(told.run.inbox.iterdir())


async def test_a_trainer_that_goes_away_meanwhile_is_said(told: RunFactory) -> None:
    async with changing(told, "1") as pilot:
        without_heartbeats(told)
        await until_shown(pilot, "No trainer answers.")
        await pilot.press("enter")
        assert not list(told.run.inbox.iterdir())


async def test_without_a_trainer_it_shows_the_next_start_and_what_to_do(ended: RunFactory) -> None:
    ended.records("ckpt-b1-400", *HYPERPARAMETERS)
    async with on_page(ended) as pilot:
        assert "of ckpt-b1-400, where a start continues" in top(pilot.app)
        assert "Press L to launch training." in top(pilot.app)
        assert "enter change" not in top(pilot.app)
        await pilot.press("enter")
        await until_shown(pilot, "No trainer answers.")
        assert isinstance(pilot.app.screen, HyperparametersScreen)


async def test_values_that_the_next_start_sets_are_planned(ended: RunFactory) -> None:
    ended.records("ckpt-300", *HYPERPARAMETERS)
    choose_start(ended.run, "ckpt-300", values={"generator/beta_1": 0.9}, through=FrontEnd.APP)
    async with on_page(ended) as pilot:
        assert "of ckpt-300, where a start continues" in top(pilot.app)
        await pilot.press("down")
        await until_shown(pilot, "0.9 after step 0")


async def test_with_read_only_nothing_is_changed(told: RunFactory) -> None:
    async with on_page(told, read_only=True) as pilot:
        assert "learning_rate" in top(pilot.app)
        await pilot.press("enter")
        await until_shown(pilot, "The app was opened to read only.")
        assert isinstance(pilot.app.screen, HyperparametersScreen)


async def test_a_run_without_any_is_told_how_to_have_some(live: RunFactory) -> None:
    async with on_page(live) as pilot:
        assert "run.tunable(…)" in shown(pilot.app)
        await pilot.press("enter")
        assert isinstance(pilot.app.screen, HyperparametersScreen)
