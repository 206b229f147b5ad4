"""Checkpoints in TensorFlow's V1 format in the list of the app."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from app_driving import opened, shown, top, until, until_shown
from rundir_factory import RunFactory

from bundle_writing import array, write
from tfckpt_tui.app.dashboard import DashboardScreen
from tfckpt_tui.app.widgets.checkpoints.history import History
from tfckpt_tui.monitor.snapshot_reader import SnapshotReader

NAME = "model.ckpt-100"
LINE = f"{NAME}  not supported: TensorFlow's V1 format"


@pytest.fixture
def old(tmp_path: Path) -> RunFactory:
    """A directory with two of them and their graphs."""
    index = write(tmp_path / "made", {"a": array([1.0])})[-1].read_bytes()
    made = RunFactory(tmp_path / "old")
    made.run.root.mkdir()
    (made.run.root / NAME).write_bytes(index)
    (made.run.root / f"{NAME}.meta").write_bytes(b"graph")
    (made.run.root / "model.ckpt-200").write_bytes(index)
    (made.run.root / "model.ckpt-200.meta").write_bytes(b"graph")
    return made


@pytest.mark.parametrize("size", [(60, 20), (120, 40)])
async def test_they_are_listed_last_as_what_they_are(old, size):
    for step in (10, 20):
        old.checkpoint(step, recorded=False, seconds_ago=600)
    async with opened(old.run, size=size) as pilot:
        await until_shown(pilot, LINE)
        rows = [row for row in top(pilot.app).splitlines() if "ckpt" in row]
        assert [next(w for w in row.split() if "ckpt-" in w) for row in rows[-4:]] == [
            *("ckpt-20", "ckpt-10", NAME, "model.ckpt-200"),
        ]
        await pilot.press("end", "up")
        history = pilot.app.screen.query_one(History)
        assert history.selected is None
        assert history.selected_unsupported is not None


async def test_their_size_counts_as_used(old):
    used = sum(path.stat().st_size for path in old.run.root.iterdir())
    assert SnapshotReader(old.run).read(time.time()).disk_used == used


async def test_no_action_applies_to_one(old):
    before = sorted(path.name for path in old.run.root.iterdir())
    async with opened(old.run) as pilot:
        await until_shown(pilot, LINE)
        for key in ("enter", "v", "asterisk", "space", "e", "d", "y", "Y", "M"):
            pilot.app.clear_notifications()
            await pilot.press(key)
            await until(pilot, lambda: pilot.app._notifications, f"a message after {key}")
            messages = [one.message for one in pilot.app._notifications]
            assert messages == [
                f"{NAME} is in TensorFlow's V1 format, which is not supported. Press o to read how "
                "to convert it."
            ]
            assert isinstance(pilot.app.screen, DashboardScreen)
    assert sorted(path.name for path in old.run.root.iterdir()) == before


async def test_a_directory_of_nothing_else_says_how_to_convert_them(old):
    async with opened(old.run) as pilot:
        await until_shown(pilot, LINE)
        assert "no checkpoint" not in shown(pilot.app)
        await pilot.press("p")
        await until_shown(pilot, "There is no checkpoint yet.")
        await pilot.press("o")
        await until_shown(pilot, "import_meta_graph")
        assert "Keep their files" in " ".join(top(pilot.app).split())


async def test_a_filter_shows_checkpoints_only(old):
    old.checkpoint(10, recorded=False)
    async with opened(old.run) as pilot:
        await until_shown(pilot, LINE)
        await pilot.press("slash", *"ckpt")
        await until(pilot, lambda: LINE not in top(pilot.app), "those that match")
        await pilot.press("escape")
        await until_shown(pilot, LINE)
