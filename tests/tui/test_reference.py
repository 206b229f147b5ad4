"""What charts are compared with: another run, or another branch."""

from __future__ import annotations

from pathlib import Path

import pytest
from app_driving import opened, top, until, until_screen, until_shown
from rundir_factory import RunFactory, two_branches
from test_app_charts import charts_of

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.records.event import SeriesPoint
from tfckpt_tui.app.dialogs.reference import ReferenceDialog
from tfckpt_tui.app.screens import charts
from tfckpt_tui.charting.choices import ChartChoices, Compared, kept_choices
from tfckpt_tui.charting.curves import Across
from tfckpt_tui.charting.measurements import metric
from tfckpt_tui.charting.series import STEP, Series
from tfckpt_tui.charting.view import RunSeries, View, curves_in
from tfckpt_tui.formats.sort_order import ListOrder
from tfckpt_tui.monitor.snapshot_reader import SnapshotReader
from tfckpt_tui.services.metrics.metric_tail import read_metrics
from tfckpt_tui.services.runs import reference
from tfckpt_tui.services.runs.recent_runs import (
    LastLook,
    last_look,
    remember_look,
    remember_run,
)
from tfckpt_tui.services.runs.reference import (
    ReferenceReader,
    branch_reference,
    good_branch,
    read_reference,
)
from waiting import wait_until


@pytest.fixture
def other(tmp_path: Path) -> RunFactory:
    made = RunFactory(tmp_path / "yesterday").create()
    made.series(0, 200, 0)
    return made


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFactory:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return two_branches(tmp_path / "run")


def test_of_another_run_only_what_led_to_its_model_is_read(made: RunFactory) -> None:
    read = read_reference(made.run.root)
    assert read.name == "run"
    segments = read.samples.segments("loss")
    assert {segment.branch for segment in segments} == {0, 1}
    steps = [(one.branch, step) for one in segments for step in one.column(STEP)]
    assert max(step for branch, step in steps if branch == 0) <= 300
    assert steps == sorted(steps), "no step is there twice"


def test_a_directory_without_measurements_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no measurements\. Give the directory of a run"):
        read_reference(tmp_path / "nothing")


def test_the_newest_branch_that_ended_well_is_offered(made: RunFactory) -> None:
    points = [one for block in read_metrics(made.run) for one in block]
    assert good_branch(Series(points).samples, present=1) == 0
    assert good_branch(Series(points).samples, present=0) == 1
    broken = SeriesPoint(at=made.now, step=900, branch=2, metrics={"loss": None})
    assert good_branch(Series([*points, broken]).samples, present=0) == 1
    assert good_branch(Series([broken]).samples, present=0) is None


def test_a_branch_is_compared_with_all_that_led_to_it(made: RunFactory) -> None:
    snapshot = SnapshotReader(made.run).read(made.now)
    left = branch_reference(snapshot.samples, snapshot.checkpoints, 0, None)
    (segment,) = left.samples.segments("loss")
    assert (left.name, segment.branch) == ("branch 0", 0)
    assert max(segment.column(STEP)) == 500


def test_on_the_axis_of_time_another_run_begins_where_this_one_does() -> None:
    own, theirs = (
        RunSeries(
            Series(
                SeriesPoint(at=at + n, step=n, branch=0, metrics={"loss": 1.0}) for n in range(3)
            ).samples,
            {0: 9},
            name,
        )
        for at, name in ((1000.0, ""), (5.0, "other"))
    )
    view = View(across=Across.TIME)
    first, second = curves_in(view, own, [metric("loss")], lambda branch, past: "", theirs)
    assert first.label == "other"
    assert [x for x, _ in first.points] == [x for x, _ in second.points] == [1000, 1001, 1002]


async def test_another_run_is_drawn_with_its_values_and_the_difference(made, other) -> None:
    remember_run(other.run.root)
    async with opened(made.run) as pilot:
        screen = await charts_of(pilot)
        await pilot.press("r")
        await until_shown(pilot, "yesterday")
        await pilot.press("1", "enter")
        await until(pilot, lambda: screen.reference, "the reference")
        await until_shown(pilot, "and yesterday")
        await pilot.press("full_stop", *["less_than_sign"] * 4)
        await until_shown(pilot, "yesterday ")
        assert "Δ " in top(pilot.app)
        await pilot.press("escape", "r")
        await until_shown(pilot, "nothing")
        await pilot.press("tab", "x")
        await until(pilot, lambda: screen.reference is None, "no reference")


async def test_a_branch_is_a_reference_by_one_key(made) -> None:
    async with opened(made.run) as pilot:
        screen = await charts_of(pilot)
        await pilot.press("r")
        await until_screen(pilot, ReferenceDialog)
        await until_shown(pilot, "The list of recent runs has no other run.")
        await pilot.press("tab", "b")
        await until(pilot, lambda: screen.reference, "the reference")
        await until_shown(pilot, "and branch 0")


async def test_the_next_app_shows_charts_as_they_were_left(made, other) -> None:
    remember_run(other.run.root)
    remember_run(made.run.root)
    async with opened(made.run) as pilot:
        screen = await charts_of(pilot, "slash", *"loss", "enter", "L", "s")
        await pilot.press("r")
        await until_shown(pilot, "yesterday")
        await pilot.press("1", "enter")
        await until(pilot, lambda: screen.reference, "the reference")
        await pilot.press("c")
        await until(pilot, lambda: pilot.app.screen is not screen, "the dashboard")
        remember_look(made.run.root, LastLook(ListOrder(), pilot.app.chart_choices.to_keep()))
    choices = kept_choices(last_look(made.run.root).charts)
    async with opened(made.run, charts=choices) as pilot:
        screen = await charts_of(pilot)
        await until(pilot, lambda: screen.reference, "the same reference")
        await until_shown(pilot, "1 of 1  loss")
        await until_shown(pilot, "smoothed 0.6, log")
        await pilot.press("escape")
        await until_shown(pilot, "1 of 3")


async def test_a_reference_that_trains_on_is_read_again(made, other, monkeypatch) -> None:
    monkeypatch.setattr(charts, "_REFERENCE_SECONDS", 0.1)
    monkeypatch.setattr(reference, "_READING_SHARE", 1.0)
    choices = ChartChoices(compared=Compared(str(other.run.root)))
    async with opened(made.run, charts=choices) as pilot:
        screen = await charts_of(pilot)
        await until(pilot, lambda: screen.reference, "the reference")
        first = screen.reference
        other.series(200, 300, 0)
        await until(pilot, lambda: screen.reference.samples.newest.step > 200, "newer points")
        assert screen.reference.samples.points > first.samples.points


def test_a_reference_is_read_again_only_if_its_series_changed(made, monkeypatch) -> None:
    monkeypatch.setattr(reference, "_READING_SHARE", 1.0)
    reader = ReferenceReader(made.run.root)
    assert reader.read_new() is not None
    assert reader.read_new() is None
    made.series(500, 510, 1)
    longer = wait_until(reader.read_new, 10, "the longer series")
    assert longer.samples.newest.step > 500


async def test_a_remembered_reference_that_is_gone_is_told_once(made, tmp_path) -> None:
    choices = ChartChoices(compared=Compared(str(tmp_path / "gone")))
    async with opened(made.run, charts=choices) as pilot:
        screen = await charts_of(pilot)
        await until_shown(pilot, "has no measurements")
        await pilot.press("escape", "c")
        await until(pilot, lambda: pilot.app.screen is not screen, "the dashboard")
        assert pilot.app.chart_choices.compared == Compared()


@pytest.mark.parametrize("typed", ["/nowhere", "[/]"])
async def test_a_run_that_cannot_be_read_is_told(made, typed) -> None:
    async with opened(made.run) as pilot:
        screen = await charts_of(pilot)
        await pilot.press("r")
        await until_screen(pilot, ReferenceDialog)
        pilot.app.screen.query_one("#target").value = typed
        await pilot.press("enter")
        await until_shown(pilot, "✗ compare")
        assert screen.reference is None
