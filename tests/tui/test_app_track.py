"""The chart of one tensor over all checkpoints."""

from __future__ import annotations

import csv
import math
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from app_driving import opened, shown, top, until, until_screen, until_shown
from rundir_factory import RunFactory
from textual.pilot import Pilot

from bundle_writing import array, key_of, strings, write, write_floats
from command_running import Tool
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.app.dashboard import DashboardScreen
from tfckpt_tui.app.screens import track as track_screen
from tfckpt_tui.app.screens.chart_page import ChartPage
from tfckpt_tui.app.screens.checkpoint import CheckpointScreen
from tfckpt_tui.app.screens.track import TrackScreen
from waiting import MOST_SECONDS


@pytest.fixture
def made(tmp_path: Path) -> RunFactory:
    """Three checkpoints, each with the tensor v = (step, 0.5)."""
    factory = RunFactory(tmp_path)
    for step in (10, 20, 30):
        factory.checkpoint(step, recorded=False, seconds_ago=600 - step)
    return factory


def points_of(pilot: Pilot[int]) -> list[tuple[float, float | None]]:
    """Returns all points that the chart draws."""
    assert isinstance(pilot.app.screen, ChartPage)
    chart = pilot.app.screen.chart
    return [point for curve in chart._curves() for point in curve.points]


async def opened_chart(pilot: Pilot[int]) -> None:
    await pilot.press("enter")
    await until_shown(pilot, "float32")
    await pilot.press("c")
    await until_screen(pilot, TrackScreen)
    await until(pilot, lambda: " read " in top(pilot.app) and "◌" not in top(pilot.app), "all read")


async def test_c_charts_the_variable_under_the_cursor_over_all_checkpoints(made, capsys):
    async with opened(made.run) as pilot:
        await opened_chart(pilot)
        assert "v  float32 2   3 of 3 checkpoints read" in top(pilot.app)
        norms = [math.hypot(step, 0.5) for step in (10, 20, 30)]
        assert points_of(pilot) == list(zip((10, 20, 30), map(pytest.approx, norms), strict=True))
        assert "steps 10 to 30  in 20 s   lowest 10.01   highest 30.00" in top(pilot.app)
        await pilot.press("down")
        await until_shown(pilot, "2 of 4")
        assert points_of(pilot) == [
            (20, pytest.approx(10 / norms[0])),
            (30, pytest.approx(10 / norms[1])),
        ]
        await pilot.press("y")
        await until_shown(pilot, "Sent 3 rows of CSV (name, step, branch")
        copied = pilot.app.clipboard
        await pilot.press("escape")
        assert isinstance(pilot.app.screen, CheckpointScreen)
    printed = Tool(capsys)("track", made.run.root, "v", "--csv").data
    assert copied == printed.rstrip("\n")


async def test_the_help_of_the_chart_says_what_up_and_down_do(made):
    async with opened(made.run) as pilot:
        await opened_chart(pilot)
        await pilot.press("question_mark")
        await until_shown(pilot, "Shows the next chart; ↑ the previous one.")
        assert "↑ ↓        move" not in top(pilot.app)


async def test_the_update_ratio_of_a_single_checkpoint_is_explained(tmp_path):
    made = RunFactory(tmp_path)
    made.checkpoint(10, recorded=False)
    async with opened(made.run) as pilot:
        await opened_chart(pilot)
        assert "1 of 1 checkpoint read" in top(pilot.app)
        assert "•" in top(pilot.app), "a single value is a dot that can be seen"
        await until_shown(pilot, "The update ratio needs two checkpoints that follow each")


async def test_checkpoints_that_cannot_be_read_and_nan_are_told(made):
    write_floats(made.run.root / "ckpt-40", (math.nan, 1.0))
    write(made.run.root / "ckpt-50", {"w": array(np.ones(2, np.float32))})
    (made.run.root / "ckpt-20.data-00000-of-00001").write_bytes(b"x" * 8)
    async with opened(made.run, select="ckpt-10") as pilot:
        await opened_chart(pilot)
        # The lines above the chart are laid out one refresh later than their number is known.
        await until_shown(pilot, "ckpt-20: ")
        await until_shown(pilot, "values in this tensor")
        text = top(pilot.app)
        assert "1 other checkpoint could not be read either" in text
        assert "1 checkpoint with NaN or infinite values in this tensor" in text
        assert points_of(pilot)[-1] == (40, None), "NaN is a mark"
        assert "✗" in text.splitlines()[-6]


async def test_what_has_no_numbers_has_no_chart(tmp_path):
    tensors = {key_of("m/w"): array([1.0]), key_of("m/text"): strings([b"a"])}
    write(tmp_path / "ckpt-1", tensors)
    async with opened(RunDirectory(tmp_path)) as pilot:
        await pilot.press("enter")
        await until_shown(pilot, "string")
        await pilot.press("home", "c")
        await until_shown(pilot, "Select a variable first")
        await pilot.press("slash", *"text", "enter", "end", "c")
        await until_shown(pilot, "VARIABLE_VALUE is string.")
        assert isinstance(pilot.app.screen, CheckpointScreen)


async def test_escape_stops_reading_and_keeps_what_was_read(made, monkeypatch):
    go_on, read_one = threading.Event(), threading.Event()

    def slowly(*arguments: object, **options: object) -> Iterator[object]:
        for point in track(*arguments, **options):
            yield point
            read_one.set()
            go_on.wait(MOST_SECONDS)

    track = track_screen.track
    monkeypatch.setattr(track_screen, "track", slowly)
    async with opened(made.run) as pilot:
        await pilot.press("enter")
        await until_shown(pilot, "float32")
        await pilot.press("c")
        await until(pilot, lambda: read_one.is_set(), "the first checkpoint")
        await until_shown(pilot, "1 of 3 checkpoints read  esc stops")
        await pilot.press("escape")
        await until_shown(pilot, "stopping…")
        go_on.set()
        await until(pilot, lambda: "◌" not in shown(pilot.app), "the end")
        assert isinstance(pilot.app.screen, TrackScreen)
        assert len(points_of(pilot)) < 3
        await pilot.press("escape", "escape")
        await until_screen(pilot, DashboardScreen)


async def test_a_metric_that_is_reported_rarely_has_no_marks_of_nan(tmp_path):
    made = RunFactory(tmp_path / "run").create()
    made.series(0, 200, 0)
    made.series(200, 200, 0, metric="val_loss")
    async with opened(made.run) as pilot:
        await pilot.press("c", "down")
        await until_shown(pilot, "val_loss")
        assert len(points_of(pilot)) == 1
        assert "✗" not in top(pilot.app)


async def test_the_values_of_a_chart_of_the_run_are_copied(tmp_path):
    made = RunFactory(tmp_path / "run").create()
    made.series(0, 8, 0)
    async with opened(made.run) as pilot:
        await pilot.press("c", "y")
        await until_shown(pilot, "Sent 3 rows of CSV (step, branch, at, loss)")
        rows = list(csv.DictReader(pilot.app.clipboard.splitlines()))
        assert [row["step"] for row in rows] == ["0", "4", "8"]
        assert float(rows[0]["loss"]) == pytest.approx(5.5)


async def test_statistics_that_do_not_fit_are_left_out_whole(made):
    async with opened(made.run, size=(60, 20)) as pilot:
        await opened_chart(pilot)
        figures = top(pilot.app).splitlines()[-2]
        assert "lowest 10.01" in figures
        assert "…" not in figures


async def test_i_shows_the_histograms_of_all_checkpoints_as_a_heat_map(made):
    async with opened(made.run) as pilot:
        await opened_chart(pilot)
        await pilot.press("i")
        await until_shown(pilot, "values 0.5000 to 30.00   in 3 checkpoints")
        await until_shown(pilot, "1 of 5")
        screen = pilot.app.screen
        assert isinstance(screen, TrackScreen)
        columns = [row for row in top(pilot.app).splitlines() if "█" in row]
        assert len(columns) >= 4, "two values in each of three checkpoints"
        await pilot.press("full_stop", "less_than_sign")
        await until_shown(pilot, "0.5000 to 20.00")
        await pilot.press("escape", "escape")
        await until_shown(pilot, "update ratio")


async def test_a_heat_map_of_nothing_but_nan_says_so(tmp_path):
    made = RunFactory(tmp_path)
    made.checkpoint(10, recorded=False)
    write_floats(made.run.root / "ckpt-10", (math.nan, math.inf))
    async with opened(made.run) as pilot:
        await opened_chart(pilot)
        await pilot.press("i")
        await until_shown(pilot, "No checkpoint has values of this tensor.")
