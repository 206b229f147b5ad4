"""One declaration of an action gives it a key, a place in footer, palette and help, and a guard."""

from __future__ import annotations

import time
from typing import ClassVar

import pytest
from app_driving import StillMonitor, shown, top, until, until_shown
from rundir_factory import RunFactory
from textual.binding import BindingType
from textual.pilot import Pilot

from tfckpt_tui.app.actions.action import Action, Selection, default_keys, require
from tfckpt_tui.app.actions.table import ACTIONS
from tfckpt_tui.app.app import TfckptApp
from tfckpt_tui.app.dialogs.tensorboard import TensorBoardDialog
from tfckpt_tui.app.protocols import (
    PerformsActions,
    RunApp,
    ShowsFailures,
    ShowsSnapshots,
    ShowsVerifications,
)
from tfckpt_tui.app.screens.checkpoint import CheckpointScreen
from tfckpt_tui.app.screens.dashboard import DashboardScreen, bindings_of
from tfckpt_tui.app.screens.logs import LogsScreen
from tfckpt_tui.cli.main import cli
from tfckpt_tui.monitor.snapshot_reader import SnapshotReader
from tfckpt_tui.settings.config import Config

GREET = Action(
    name="greet",
    key="f9",
    label="greet",
    title="Greet the workers",
    help="Says hello to every worker of the run.",
    perform=lambda dashboard: dashboard.tell(f"Hello, {len(dashboard.loaded_snapshot.workers)}!"),
    requires=(
        require(lambda run, selection: run.trainer_answers, "No trainer answers to greetings."),
    ),
)


class Dashboard(DashboardScreen):
    ACTIONS = (*ACTIONS, GREET)
    BINDINGS: ClassVar[list[BindingType]] = bindings_of([GREET])


@pytest.fixture(autouse=True)
def _declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TfckptApp, "dashboard_type", Dashboard)


def app_on(made: RunFactory, config: Config | None = None) -> TfckptApp:
    snapshot = SnapshotReader(made.run).read(time.time())
    return TfckptApp(made.run, monitor=StillMonitor(snapshot), config=config)


async def first_snapshot(pilot: Pilot[int]) -> None:
    await until_shown(pilot, "ckpt-b1-400")
    await pilot.pause()


async def test_a_declared_action_has_key_footer_palette_and_help(live: RunFactory) -> None:
    app = app_on(live)
    async with app.run_test(size=(200, 300), notifications=True) as pilot:
        await first_snapshot(pilot)
        assert "f9 greet" in shown(app)
        await pilot.press("f9")
        await until_shown(pilot, "Hello, 2!")
        await pilot.press("ctrl+p", *"greet")
        await until_shown(pilot, "greet: Greet the workers")
        assert "Says hello to every worker of the run." in top(app)
        await pilot.press("escape", "question_mark")
        await until(pilot, lambda: "Greet the workers" in top(app), "it is in the help")


async def test_an_unavailable_action_is_not_in_the_footer_and_says_why(ended: RunFactory) -> None:
    app = app_on(ended)
    async with app.run_test(size=(200, 60), notifications=True) as pilot:
        await first_snapshot(pilot)
        assert "f9 greet" not in shown(app)
        await pilot.press("f9")
        await until_shown(pilot, "No trainer answers to greetings.")


async def test_the_configuration_gives_it_another_key(live: RunFactory) -> None:
    app = app_on(live, Config(keys={"greet": "f8"}))
    async with app.run_test(size=(200, 60), notifications=True) as pilot:
        await first_snapshot(pilot)
        assert "f8 greet" in shown(app)
        await pilot.press("f8")
        await until_shown(pilot, "Hello, 2!")


def test_reasons_come_in_order() -> None:
    first, second = (require(lambda run, selection: False, reason) for reason in ("one", "two"))
    action = Action(
        name="a", key="", label="a", title="A", help="", perform=lambda dashboard: None,
        requires=(first, second), changes_run=True,
    )  # fmt: skip
    snapshot = object()
    nothing = Selection()
    assert action.why_unavailable(snapshot, nothing, read_only=False) == "one"  # type: ignore[arg-type]
    assert "read only" in action.why_unavailable(None, nothing, read_only=True)
    assert "still being read" in action.why_unavailable(None, nothing, read_only=False)


def test_names_and_keys_are_unique() -> None:
    assert len(default_keys(ACTIONS)) == len(ACTIONS)
    keys = [action.key for action in ACTIONS if action.key]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.name)
def test_its_command_exists_and_its_words_are_short(action: Action) -> None:
    assert not action.command or action.command in cli.list_commands(None)  # type: ignore[arg-type]
    assert not action.title.endswith(".")
    assert len(action.title) <= 60
    assert action.help.endswith(".")
    assert all(len(sentence.split()) <= 30 for sentence in action.help.split(". "))


def test_app_and_screens_fulfil_the_protocols(live: RunFactory) -> None:
    app = app_on(live)
    snapshot = SnapshotReader(live.run).read(time.time())
    dashboard = app.get_default_screen()
    checkpoint = CheckpointScreen(live.run, snapshot.checkpoints[0], snapshot, dashboard)
    assert isinstance(app, RunApp)
    assert isinstance(dashboard, PerformsActions)
    for protocol in (ShowsSnapshots, ShowsVerifications):
        assert isinstance(dashboard, protocol)
    assert isinstance(checkpoint, ShowsVerifications)
    board = TensorBoardDialog(live.run, snapshot, None, app.start_job, read_only=False)
    assert isinstance(board, ShowsFailures)
    assert not isinstance(LogsScreen(live.run, snapshot), PerformsActions)
