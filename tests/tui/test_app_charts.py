"""The page of charts: the grid, the cursor, marks, views, and charts of several metrics."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import msgspec
import pytest
from app_driving import (
    opened,
    top,
    until,
    until_jobs_are_shown,
    until_screen,
    until_shown,
    until_told,
)
from rundir_factory import RunFactory, two_branches
from textual.pilot import Pilot

from tfckpt_trainer.rundir.records.event import EventKind, SeriesPoint
from tfckpt_trainer.rundir.series_thinner import SeriesThinner
from tfckpt_trainer.rundir.storage.documents import append
from tfckpt_tui.app.app import TfckptApp
from tfckpt_tui.app.screens.charts import ChartsScreen
from tfckpt_tui.app.screens.checkpoint import CheckpointScreen
from tfckpt_tui.app.screens.event_log import EventLogScreen
from tfckpt_tui.app.widgets.charts.chart import Chart
from tfckpt_tui.app.widgets.charts.grid import ChartGrid
from tfckpt_tui.charting.choices import ChartChoices, Compared
from tfckpt_tui.charting.curves import Across
from tfckpt_tui.monitor.snapshot_reader import SeriesReader
from waiting import attempts

WIDE = (200, 50)


@pytest.fixture
def many(tmp_path: Path) -> RunFactory:
    """A run that reports twenty metrics, the epoch and the step time."""
    made = RunFactory(tmp_path / "run", now=1_790_000_000.0).create()
    for step in range(0, 200, 10):
        metrics = {f"layer_{n}/norm": n + step / 100 for n in range(18)}
        metrics |= {"loss": 100 / (step + 1), "val_loss": 120 / (step + 1), "epoch": step / 50}
        point = SeriesPoint(at=made.now - 400 + step, step=step, branch=0, metrics=metrics)
        append(made.run.series, msgspec.structs.replace(point, step_seconds=0.1))
    made.event_log(EventKind.NOTE, "no mark", 100, step=50)
    made.event_log(EventKind.SET, "learning_rate is now 0.1", 90, step=100)
    return made


def titles(pilot: Pilot[int]) -> list[str]:
    """Returns the first measurement of each chart on the screen."""
    charts = pilot.app.screen.query_one(ChartGrid).charts
    return [chart.measurements[0].name for chart in charts]


async def charts_of(pilot: Pilot[int], *keys: str) -> ChartsScreen:
    await pilot.press("c")
    await until_screen(pilot, ChartsScreen)
    await pilot.press(*keys)
    await pilot.pause()
    screen = pilot.app.screen
    assert isinstance(screen, ChartsScreen)
    return screen


@pytest.mark.parametrize(("size", "count"), [((80, 24), 1), ((120, 40), 4), (WIDE, 9)])
async def test_the_grid_fits_the_terminal_and_pages(many, size, count):
    async with opened(many.run, size=size) as pilot:
        await charts_of(pilot)
        first = titles(pilot)
        assert len(first) == count
        assert first[0] == "loss"
        await until_shown(pilot, "1 of 22")
        await pilot.press("pagedown")
        assert not set(titles(pilot)) & set(first)
        await until_shown(pilot, f"{count + 1} of 22")
        await pilot.press("pageup", "pageup")
        assert len(titles(pilot)) == (22 - 1) % count + 1, "the last page"
        assert titles(pilot)[-1] == "step time"


async def test_the_first_frame_of_a_key_does_not_wait_for_all_charts(many, monkeypatch):
    drawn: list[str] = []
    drawn_by_frame: list[int] = []
    draw, display = Chart.draw, TfckptApp._display

    def noted(chart: Chart) -> bool:
        was_stale = draw(chart)
        if was_stale:
            drawn.append(chart.measurements[0].name)
        return was_stale

    def counted(app, screen, renderable) -> None:
        drawn_by_frame.append(len(drawn))
        display(app, screen, renderable)

    async with opened(many.run, size=WIDE) as pilot:
        await charts_of(pilot)
        await until_jobs_are_shown(pilot)
        charts = pilot.app.screen.query_one(ChartGrid).charts
        await until(pilot, lambda: not any(c._is_stale for c in charts), "all charts, before")
        monkeypatch.setattr(Chart, "draw", noted)
        monkeypatch.setattr(TfckptApp, "_display", counted)
        await pilot.press("L")
        await until(pilot, lambda: len(drawn) >= 9 and any(drawn_by_frame), "all charts")
        # The last frame of the page may still come.
        # The chosen one; and another, if a snapshot came just before the key.
        assert next(filter(None, drawn_by_frame)) <= 2, drawn_by_frame
        assert drawn[0] == "loss"


async def test_values_that_are_not_read_yet_are_told(many, monkeypatch):
    async with opened(many.run, size=WIDE) as pilot:
        await charts_of(pilot)
        await until_shown(pilot, "lowest 0.5236")
        assert "still being read" not in top(pilot.app)
    monkeypatch.setattr(SeriesReader, "has_read_all", False)
    async with opened(many.run, size=WIDE) as pilot:
        await charts_of(pilot)
        await until_shown(pilot, "older values are still being read")
        await pilot.press("y")
        await until_told(pilot, "loss): older values are still being read")


async def test_g_shows_more_charts_and_enter_one(many):
    async with opened(many.run, size=(80, 24)) as pilot:
        await charts_of(pilot, "g", "g", "g")
        assert len(titles(pilot)) > 1
        shown = len(titles(pilot))
        await pilot.press("down", "enter")
        assert titles(pilot) == ["epoch"]
        await pilot.press("escape")
        assert len(titles(pilot)) == shown
        assert isinstance(pilot.app.screen, ChartsScreen)
        await pilot.press("escape", "c")
        await pilot.pause()
        assert len(titles(pilot)) == shown, "the app remembers the grid"


async def test_a_filter_is_a_text_or_a_glob(many):
    async with opened(many.run, size=WIDE) as pilot:
        await charts_of(pilot)
        for pattern, count in (("norm", 18), ("*_1*", 9), ("LOSS", 2), ("val_*", 1)):
            await pilot.press("slash", *pattern, "enter")
            await until_shown(pilot, f" of {count}  {pattern}")
            assert len(titles(pilot)) == min(count, 9)
            await pilot.press("escape")
            await until_shown(pilot, "of 22")


async def test_a_filter_without_matches_says_so(many):
    async with opened(many.run) as pilot:
        await charts_of(pilot, "slash", *"[nothing", "enter")
        await until_shown(pilot, "No chart matches the filter.")
        await pilot.press("down", "pagedown", "full_stop", "n", "space", "m", "v", "enter", "y")
        await pilot.press("escape", "escape", "escape")
        await pilot.pause()


async def test_the_cursor_shows_the_values_at_a_step_in_all_charts(many):
    async with opened(many.run) as pilot:
        screen = await charts_of(pilot, "full_stop")
        await until_shown(pilot, "step 190")
        await pilot.press("comma", "comma", "less_than_sign")
        cursor = screen._cursor
        assert cursor is not None
        assert cursor < 170
        step = int(cursor)
        # The charts beside the chosen one follow it.
        await until_shown(pilot, f"{step / 50:.3f}")
        text = top(pilot.app)
        assert f"step {step}" in text
        assert "│" in text
        await pilot.press("escape")
        await until_shown(pilot, "lowest")
        assert isinstance(pilot.app.screen, ChartsScreen)


async def test_a_selection_is_zoomed_to(many):
    async with opened(many.run) as pilot:
        screen = await charts_of(pilot, "full_stop", "v", *["less_than_sign"] * 2)
        await until_shown(pilot, "zooms to the selection")
        start = screen._cursor
        await pilot.press("v")
        window = screen._view.window
        assert window is not None
        assert (window.low, window.high) == (start, 190)
        await until_shown(pilot, "lowest")
        await pilot.press("0")
        assert screen._view.window is None


async def test_views_change_all_charts_and_are_remembered(many):
    async with opened(many.run) as pilot:
        screen = await charts_of(pilot, "s", "L", "o")
        view = screen._view
        assert (view.smoothing, view.logarithmic, view.clips_outliers) == (0.6, True, False)
        await until_shown(pilot, "smoothed 0.6, log, with outliers")
        await pilot.press("s", "s", "s", "s")
        assert screen._view.smoothing == 0
        await pilot.press("t", "t")
        assert screen._view.across is Across.EPOCHS
        await pilot.press("escape")
        again = await charts_of(pilot)
        assert again._view.logarithmic
        assert again._view.across is Across.EPOCHS


async def test_metrics_are_joined_in_one_chart_and_separated(many):
    async with opened(many.run, size=(80, 24)) as pilot:
        await charts_of(pilot, "slash", *"loss", "enter", "space", "space", "m")
        await until_shown(pilot, "1 of 1")
        await until_shown(pilot, "loss  val_loss")
        await pilot.press("full_stop")
        await until_shown(pilot, "loss 0.5236  val_loss 0.6283")
        await pilot.press("y")
        await until_shown(pilot, "Sent 20 rows")
        assert pilot.app.clipboard.startswith("step,branch,at,loss,val_loss\n0,0,")
        await pilot.press("m")
        await until_shown(pilot, "1 of 2")


async def test_a_mark_is_visited_and_opened(many):
    async with opened(many.run) as pilot:
        await charts_of(pilot, "n")
        await until_shown(pilot, "Δ learning_rate is now 0.1")
        await pilot.press("enter")
        await until_screen(pilot, EventLogScreen)
        await until_shown(pilot, "step 100")


async def test_the_text_of_a_mark_is_cut_to_the_line(many):
    many.event_log(EventKind.RESTORE, "went back " * 30, 80, step=150)
    async with opened(many.run, size=(80, 24)) as pilot:
        await charts_of(pilot, "s", "N")
        await until_shown(pilot, "step 150  ↩ went back went back")


async def test_a_mark_of_a_save_opens_its_checkpoint(tmp_path):
    made = two_branches(tmp_path / "run")
    async with opened(made.run) as pilot:
        await charts_of(pilot, "N")
        for _ in attempts("the mark of a save"):
            if "◆" in top(pilot.app).splitlines()[-2]:
                break
            await pilot.press("N")
        await pilot.press("enter")
        await until_screen(pilot, CheckpointScreen)


async def test_branches_are_shown_one_by_one(tmp_path):
    made = two_branches(tmp_path / "run")
    async with opened(made.run) as pilot:
        screen = await charts_of(pilot, "b")
        assert {curve.branch for curve in screen.chart._curves()} == {0}
        await until_shown(pilot, "loss  branch 0 ─")
        await pilot.press("b")
        assert {curve.branch for curve in screen.chart._curves()} == {1}
        await pilot.press("b")
        assert {curve.branch for curve in screen.chart._curves()} == {0, 1}


async def test_after_a_restore_the_cursor_begins_on_the_branch_in_training(tmp_path):
    made = two_branches(tmp_path / "run")
    choices = ChartChoices(compared=Compared(branch=0))
    async with opened(made.run, charts=choices) as pilot:
        screen = await charts_of(pilot)
        await until(pilot, lambda: screen.reference, "the reference")
        await pilot.press("full_stop")
        await until_shown(pilot, "step 436")
        await until_shown(pilot, "Δ")
        assert "branch 1" in top(pilot.app).splitlines()[-2]
        await pilot.press(*["greater_than_sign"] * 3)
        await until_shown(pilot, "step 500")
        assert "Δ" not in top(pilot.app), "the model has not trained as far"


async def test_the_last_value_is_the_newest_even_if_it_is_not_finite(many):
    append(many.run.series, SeriesPoint(at=many.now, step=500, branch=0, metrics={"loss": None}))
    async with opened(many.run) as pilot:
        await charts_of(pilot)
        await until_shown(pilot, "highest 100.0")
        await until_shown(pilot, "last NaN")


async def test_a_copy_says_if_more_values_were_recorded(many):
    with many.run.series.open("ab") as file:
        for step in range(200, 6000):
            metrics = {"loss": 1.0 + step % 9} | ({"val_loss": 1.0} if step % 500 == 0 else {})
            file.write(
                msgspec.json.encode(SeriesPoint(at=1.0, step=step, branch=0, metrics=metrics))
                + b"\n"
            )
    async with opened(many.run, size=WIDE) as pilot:
        screen = await charts_of(pilot)
        await until(pilot, lambda: not screen.charted().lacks_samples, "all values")
        await pilot.press("y")
        await until_shown(pilot, "series.jsonl")
        rows = pilot.app.clipboard.splitlines()
        assert rows[0] == "step,branch,at,loss"
        assert 1000 < len(rows) < 5000
        screen._chosen = "val_loss"
        await pilot.press("y")
        await until(pilot, lambda: "val_loss" in pilot.app.clipboard, "the other values")
        assert len(pilot.app.clipboard.splitlines()) == 1 + 20 + 11, "a rare metric is whole"


async def test_charts_and_a_copy_say_if_the_record_is_thinned(many):
    with many.run.series.open("ab") as file:
        for step in range(200, 6000):
            point = SeriesPoint(at=many.now, step=step, branch=0, metrics={"loss": float(step)})
            file.write(msgspec.json.encode(point) + b"\n")
    SeriesThinner(many.run, writing=nullcontext(), pause=lambda: None, limit=600_000).thin()
    async with opened(many.run, size=WIDE) as pilot:
        screen = await charts_of(pilot)
        await until(pilot, lambda: not screen.charted().lacks_samples, "all values")
        await until_shown(pilot, "of older steps, the ends and extremes of intervals are kept")
        await pilot.press("y")
        await until_shown(pilot, "series.jsonl has more")


async def test_the_mouse_points_selects_and_zooms(many):
    async with opened(many.run) as pilot:
        screen = await charts_of(pilot)
        await pilot.hover(Chart, offset=(40, 5))
        await until_shown(pilot, "branch 0")
        assert screen._cursor is not None
        second = pilot.app.screen.query_one(ChartGrid).charts[1]
        await pilot.click(second, offset=(20, 5))
        assert screen.chart is second
        held = screen._cursor
        await pilot.hover(Chart, offset=(50, 5))
        assert screen._cursor == held, "a click holds the cursor"
        await pilot.mouse_down(Chart, offset=(15, 5))
        await pilot.hover(Chart, offset=(30, 5))
        await pilot.mouse_up(Chart, offset=(30, 5))
        await until(pilot, lambda: screen._view.window, "a window")


HOSTILE = ["\x1b]52;c;UFdORUQ=\x07", "[/nope]", "a\nb", "x" * 500, "‮evil", "*[", "日本語" * 30]


async def test_hostile_names_of_metrics_are_only_text(tmp_path: Path):
    made = RunFactory(tmp_path / "run").create()
    for step in range(4):
        metrics = dict.fromkeys(HOSTILE, step * 1e308) | {"nan": None}
        point = SeriesPoint(at=made.now - 40 + step, step=step, branch=0, metrics=metrics)
        append(made.run.series, point)
    async with opened(made.run, size=(80, 24)) as pilot:
        await charts_of(pilot, "g", "full_stop", "s", "L", "o")
        for _ in range(5):
            await pilot.press("space", "pagedown")
            assert "\x1b]" not in top(pilot.app)
        await pilot.press("m", "y", "t", "t", "enter")
        await pilot.pause()
