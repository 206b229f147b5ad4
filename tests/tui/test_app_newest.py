"""The newest checkpoints of a large directory are shown before all are read."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from app_driving import StillMonitor, shown, until, until_shown
from rundir_factory import RunFactory

from tfckpt_trainer.catalog.directory.remembered_listing import recall_newest
from tfckpt_trainer.catalog.directory.stored_results import verification_directories
from tfckpt_tui.app.actions.table import ACTIONS
from tfckpt_tui.app.app import TfckptApp
from tfckpt_tui.app.dashboard import DashboardScreen
from tfckpt_tui.app.widgets.checkpoints.history import History
from tfckpt_tui.monitor import snapshot_reader
from tfckpt_tui.monitor.run_monitor import Monitor
from tfckpt_tui.monitor.snapshot import NewestRows, RunSnapshot
from tfckpt_tui.monitor.snapshot_reader import SnapshotReader
from waiting import wait_until

READING = "the newest checkpoints, reading all"
COUNT = 12


class SlowMonitor(StillMonitor):
    """Hands over the newest checkpoints, and the snapshot only when told to."""

    def __init__(self, snapshot: RunSnapshot, newest: NewestRows) -> None:
        super().__init__(snapshot)
        self._newest = newest
        self.refreshed = 0

    def start(
        self,
        on_snapshot: Callable[[RunSnapshot], None],
        on_newest: Callable[[NewestRows], None],
        count: int,
    ) -> None:
        self._take = on_snapshot
        on_newest(self._newest)

    def refresh(self) -> None:
        self.refreshed += 1

    def read_all(self) -> None:
        self.give(self._snapshot)


@pytest.fixture
def many(tmp_path: Path) -> RunFactory:
    made = RunFactory(tmp_path / "run").create()
    for step in range(1, COUNT + 1):
        made.checkpoint(step, seconds_ago=3600 - step, listed=step > COUNT - 5)
    return made


def monitor_of(made: RunFactory) -> SlowMonitor:
    reader = SnapshotReader(made.run)
    newest = reader.read_newest(5, made.now)
    assert newest is not None
    return SlowMonitor(reader.read(made.now), newest)


async def test_they_are_listed_until_all_are(many: RunFactory) -> None:
    monitor = monitor_of(many)
    app = TfckptApp(many.run, monitor=monitor)
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, f"ckpt-{COUNT}")
        text = shown(app)
        assert READING in text
        assert "ckpt-8 " in text
        assert "ckpt-7 " not in text
        assert "reading the run directory" in text
        # The rest is read once these are on the screen.
        await until(pilot, lambda: monitor.refreshed, "the monitor is told to read all")
        await pilot.press("down", "down")
        monitor.read_all()
        await until_shown(pilot, f"{COUNT} checkpoints")
        assert READING not in shown(app)
        assert "ckpt-1 " in shown(app)
        selected = app.screen.query_one(History).selected
        assert selected is not None
        assert selected.name == "ckpt-10"


async def test_no_action_on_checkpoints_is_available_meanwhile(many: RunFactory) -> None:
    app = TfckptApp(many.run, monitor=monitor_of(many))
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await until_shown(pilot, f"ckpt-{COUNT}")
        dashboard = app.screen
        assert isinstance(dashboard, DashboardScreen)
        assert app.snapshot is dashboard.snapshot is None
        for action in ACTIONS:
            is_refused = bool(dashboard.why_unavailable(action.name))
            assert is_refused is not action.before_first_snapshot, action.name
        for key in ("p", "M", "space", "r", "asterisk", "v", "enter"):
            await pilot.press(key)
        await until_shown(pilot, "The run directory is still being read.")
        assert app.screen is dashboard
        assert not dashboard.panes.history.marked


async def test_older_checkpoints_are_not_taken_for_new_ones(many: RunFactory) -> None:
    """New ones are verified, and the user's own actions run for them."""
    monitor = monitor_of(many)
    app = TfckptApp(many.run, monitor=monitor)
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, READING)
        monitor.read_all()
        await until_shown(pilot, f"{COUNT} checkpoints")
        assert not app.verifier.is_busy
        assert not any(place.exists() and any(place.iterdir()) for place in places_of(many))


def places_of(made: RunFactory) -> tuple[Path, ...]:
    return verification_directories(made.run)


async def test_the_app_reads_all_by_itself(many: RunFactory) -> None:
    app = TfckptApp(many.run, poll=0.2)
    # 12 are more than two screens of 5 rows, as far as the monitor is told.
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, f"{COUNT} checkpoints")
        assert app.newest is None


def test_the_monitor_reads_the_newest_first(many: RunFactory) -> None:
    seen: list[object] = []
    monitor = Monitor(many.run, poll=0.05)
    monitor.start(seen.append, seen.append, 5)
    try:
        wait_until(lambda: seen, 10, "the newest")
        monitor.refresh()
        wait_until(lambda: len(seen) > 1, 10, "a snapshot")
    finally:
        monitor.stop()
    newest, snapshot = seen[:2]
    assert isinstance(newest, NewestRows)
    assert isinstance(snapshot, RunSnapshot)
    assert [c.name for c in newest.checkpoints] == [c.name for c in snapshot.checkpoints[:5]]
    assert len(snapshot.checkpoints) == COUNT
    assert snapshot.problems == ()


def test_if_they_cannot_be_read_all_are(many: RunFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(snapshot_reader, "scan_newest", broken)
    seen: list[object] = []
    monitor = Monitor(many.run, poll=0.05)
    monitor.start(seen.append, seen.append, 5)
    try:
        wait_until(lambda: seen, 10, "a snapshot")
    finally:
        monitor.stop()
    assert isinstance(seen[0], RunSnapshot)
    assert len(seen[0].checkpoints) == COUNT


def test_a_directory_that_is_missing_has_none(tmp_path: Path) -> None:
    missing = RunFactory(tmp_path / "run").run
    assert SnapshotReader(missing).read_newest(5, time.time()) is None


def test_the_newest_are_remembered_once_the_directory_is_at_rest(
    many: RunFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_reader, "NAMES_REMEMBERED", COUNT - 1)
    reader = SnapshotReader(many.run)
    names = [checkpoint.name for checkpoint in reader.read(time.time()).checkpoints]
    assert recall_newest(many.run.root) == ()
    reader.read(time.time() + 60)
    assert list(recall_newest(many.run.root)) == names


def test_few_are_not_remembered(many: RunFactory) -> None:
    SnapshotReader(many.run).read(time.time() + 60)
    assert recall_newest(many.run.root) == ()
