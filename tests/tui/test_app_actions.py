"""One declaration of an action gives it a key, a place in footer, palette and help, and a guard."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest
from app_driving import (
    StillMonitor,
    opened,
    resize,
    shown,
    top,
    until,
    until_jobs_are_shown,
    until_shown,
)
from rundir_factory import RunFactory, two_branches
from textual.binding import BindingType
from textual.pilot import Pilot

from bundle_writing import array, write
from documentation import extension
from tfckpt_tui.app.actions.action import AppAction, require
from tfckpt_tui.app.actions.table import ACTIONS
from tfckpt_tui.app.app import TfckptApp
from tfckpt_tui.app.dashboard import DashboardScreen, bindings_of
from tfckpt_tui.app.dialogs.tensorboard import TensorBoardDialog
from tfckpt_tui.app.protocols import (
    PerformsActions,
    RunApp,
    Selection,
    ShowsFailures,
    ShowsSnapshots,
    ShowsVerifications,
)
from tfckpt_tui.app.screens.checkpoint import CheckpointScreen
from tfckpt_tui.app.screens.logs import LogsScreen
from tfckpt_tui.app.widgets.charts.chart import Chart
from tfckpt_tui.app.widgets.checkpoints.history import History
from tfckpt_tui.cli.main import cli
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.monitor.snapshot_reader import SnapshotReader
from tfckpt_tui.settings.config import AppSection, Config
from waiting import attempts
from weekly import weekly

GREET: AppAction = extension("action")


class Dashboard(DashboardScreen):
    ACTIONS = (*ACTIONS, GREET)
    BINDINGS: ClassVar[list[BindingType]] = bindings_of([GREET])


@pytest.fixture(autouse=True)
def _declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TfckptApp, "dashboard_type", Dashboard)


def app_on(made: RunFactory, config: Config | None = None, *, read_only: bool = False) -> TfckptApp:
    snapshot = SnapshotReader(made.run).read(time.time())
    monitor = StillMonitor(snapshot)
    return TfckptApp(made.run, monitor=monitor, config=config, read_only=read_only)


async def first_snapshot(pilot: Pilot[int]) -> None:
    await until_shown(pilot, "ckpt-b1-400")
    await pilot.pause()


async def test_a_declared_action_has_key_footer_palette_and_help(live: RunFactory) -> None:
    app = app_on(live)
    async with app.run_test(size=(200, 160), notifications=True) as pilot:
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


@pytest.mark.parametrize("key", ["r", "p", "x", "s"])
async def test_a_terminal_too_small_for_the_panes_changes_no_run(
    live: RunFactory, key: str
) -> None:
    async with opened(live.run, size=(40, 12)) as pilot:
        await pilot.press(key)
        await until_shown(pilot, "60×16 or")
        assert len(pilot.app.screen_stack) == 1
        await resize(pilot, 60, 16)
        await pilot.press("p")
        await until_shown(pilot, "keep last")


async def test_the_configuration_gives_it_another_key(live: RunFactory) -> None:
    app = app_on(live, Config(keys={"greet": "f8"}))
    async with app.run_test(size=(200, 60), notifications=True) as pilot:
        await first_snapshot(pilot)
        assert "f8 greet" in shown(app)
        await pilot.press("f8")
        await until_shown(pilot, "Hello, 2!")


def empty(directory: Path) -> TfckptApp:
    directory.mkdir()
    return app_on(RunFactory(directory))


def unread(directory: Path) -> TfckptApp:
    """The app on a directory that does not answer."""
    run = two_branches(directory).run
    monitor = StillMonitor(SnapshotReader(run).read(time.time()))
    monitor.start = lambda *_: None  # type: ignore[method-assign]
    return TfckptApp(run, monitor=monitor)


def without_a_checkpoint(directory: Path) -> TfckptApp:
    return app_on(RunFactory(directory).create())


def with_one_checkpoint(directory: Path) -> TfckptApp:
    """A checkpoint of another program, and no run."""
    directory.mkdir()
    made = RunFactory(directory)
    made.checkpoint(1, recorded=False, listed=False, seconds_ago=7200)
    return app_on(made)


def with_version_one(directory: Path) -> TfckptApp:
    directory.mkdir()
    index = write(directory.parent / "made", {"a": array([1.0])})[-1].read_bytes()
    (directory / "model.ckpt-100").write_bytes(index)
    (directory / "model.ckpt-100.meta").write_bytes(b"graph")
    return app_on(RunFactory(directory))


def training(directory: Path) -> TfckptApp:
    """Read only: what changes a run waits for its trainer, and has tests of its own."""
    return app_on(two_branches(directory, live=True), read_only=True)


def over(directory: Path) -> TfckptApp:
    return app_on(two_branches(directory, now=time.time() - 3600))


def without_a_match(directory: Path) -> TfckptApp:
    return over(directory)


def seen(app: TfckptApp) -> tuple[object, ...]:
    """What a user sees change when a key does something."""
    return top(app), app.focused, len(app._notifications), app.clipboard


async def until_answered(pilot: Pilot[int], action: AppAction) -> bool:
    """Presses the key of an action, waits for what it does; returns whether the app goes on."""
    app = pilot.app
    assert isinstance(app, TfckptApp)
    before = seen(app)
    await pilot.press(action.key)

    def has_ended() -> bool:
        return app._exit or app.crash is not None or not app.is_running

    await until(pilot, lambda: has_ended() or seen(app) != before, f"what {action.name} does")
    return not has_ended()


async def back_to_the_dashboard(pilot: Pilot[int], history: History) -> None:
    """Closes what a key opened, and takes back marks and messages."""
    await until_jobs_are_shown(pilot)
    for _ in attempts("back on the dashboard"):
        on_top = len(pilot.app.screen_stack) == 1
        if on_top and pilot.app.focused is history and not history.marked:
            break
        await pilot.press("escape")
    pilot.app.clear_notifications()


STATES = [
    *(empty, unread, training, over),
    *weekly(without_a_checkpoint, with_one_checkpoint, with_version_one, without_a_match),
]


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
async def test_every_key_does_something_in_every_state(
    tmp_path: Path, state: Callable[[Path], TfckptApp]
) -> None:
    app = state(tmp_path / "language-model")
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await until(pilot, lambda: app.snapshot or state is unread, "a first snapshot")
        history = app.screen.query_one(History)
        for action in app.actions:
            if not action.key or action.name == "detach":
                continue
            if state is without_a_match and not history.filter.tests:
                await pilot.press("slash", *"name:no", "enter")
            if not await until_answered(pilot, action):
                break
            await back_to_the_dashboard(pilot, history)
        await pilot.press("q")
    assert app.crash is None, app.crash
    assert app.return_code == 0


def test_reasons_come_in_order() -> None:
    first, second = (require(lambda run, selection: False, reason) for reason in ("one", "two"))
    action = AppAction(
        name="a", key="", label="a", title="A", help="", perform=lambda dashboard: None,
        requires=(first, second), changes_run=True,
    )  # fmt: skip
    snapshot = RunSnapshot(at=0.0, root=Path("run"))
    nothing = Selection()
    assert action.why_unavailable(snapshot, nothing, read_only=False) == "one"
    assert "read only" in action.why_unavailable(None, nothing, read_only=True)
    assert "still being read" in action.why_unavailable(None, nothing, read_only=False)


def test_the_footer_shows_an_action_only_if_that_is_declared() -> None:
    action = AppAction(
        name="a", key="", label="a", title="A", help="", perform=lambda dashboard: None
    )  # fmt: skip
    assert not action.in_footer


def test_names_and_keys_are_unique() -> None:
    assert len({action.name for action in ACTIONS}) == len(ACTIONS)
    keys = [action.key for action in ACTIONS if action.key]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.name)
def test_its_command_exists_and_its_words_are_short(action: AppAction) -> None:
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


async def test_the_configuration_names_the_charts(live: RunFactory) -> None:
    config = Config(app=AppSection(charts=["loss", "accuracy", "step time"]))
    app = app_on(live, config)
    async with app.run_test(size=(140, 50), notifications=True) as pilot:
        await first_snapshot(pilot)
        titles = [chart.measurements[0].name for chart in app.screen.query(Chart) if chart.region]
        assert titles == ["loss", "accuracy", "step time"]
        assert "─ step time " in shown(app)
        assert "─ throughput " not in shown(app)
    misspelled = app_on(live, Config(app=AppSection(charts=["loss", "Accuracy"])))
    async with misspelled.run_test(size=(200, 50), notifications=True) as pilot:
        await until_shown(pilot, "no metric Accuracy yet; there are: ")
