"""Several runs side by side: their curves, and what differs between their settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from app_driving import top, until, until_shown
from rundir_factory import HYPERPARAMETERS, RunFactory, two_branches

from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.rundir.records.run import CodeVersion
from tfckpt_trainer.rundir.storage.documents import store
from tfckpt_tui.app.runs_app import RunsApp
from tfckpt_tui.charting.series import STEP
from tfckpt_tui.services.runs.compare_runs import compare_runs
from tfckpt_tui.settings.config import Config


@pytest.fixture
def pair(tmp_path: Path) -> tuple[RunFactory, RunFactory]:
    """Two runs with other strategies, commands and commits."""
    first = two_branches(tmp_path / "runs" / "first", live=True)
    second = RunFactory(tmp_path / "runs" / "deep" / "second").create(
        strategy="OneDeviceStrategy", worker_count=1, code=CodeVersion(commit="c0ffee" * 6)
    )
    second.series(0, 300, 0)
    second.series(0, 100, 0, metric="accuracy")
    second.live_worker(0, branch=0, step=300)
    for made, rate in ((first, "0.1"), (second, "0.2\x1b[31m")):
        options = LaunchOptions(
            run_directory=str(made.run.root),
            command=("python", "train.py", rate),
            working_directory="/",
            workers=1,
        )
        store(made.run.launch_file, options)
    first.tells(*HYPERPARAMETERS)
    return first, second


def test_settings_that_differ_are_told_apart_from_equal_ones(
    pair: tuple[RunFactory, RunFactory],
) -> None:
    compared = compare_runs([made.run.root for made in pair])
    assert [run.name for run in compared.runs] == ["first", "deep/second"]
    settings = {setting.name: setting for setting in compared.settings}
    assert settings["learning_rate"].values == ("0.0003", "")
    assert settings["strategy"].differs
    assert settings["Git commit"].values == ("", "c0ffeec0ffee")
    assert not settings["steps"].differs
    assert "\x1b" not in "".join(settings["command"].values)


def test_the_steps_that_a_run_left_are_not_compared(pair: tuple[RunFactory, RunFactory]) -> None:
    first, _ = compare_runs([made.run.root for made in pair]).runs
    segments = first.series.samples.segments("loss")
    kept = {(one.branch, step) for one in segments for step in one.column(STEP)}
    assert max(step for branch, step in kept if branch == 0) == 300
    assert max(step for branch, step in kept if branch == 1) > 400


def test_a_run_that_is_gone_or_empty_has_no_curve(tmp_path: Path) -> None:
    RunFactory(tmp_path / "empty").create()
    gone, empty = compare_runs([tmp_path / "gone", tmp_path / "empty"]).runs
    assert not gone.series.samples
    assert not empty.series.samples


async def test_marked_runs_are_drawn_in_one_chart_with_their_settings(
    pair: tuple[RunFactory, RunFactory], tmp_path: Path
) -> None:
    app = RunsApp(tmp_path / "runs", Config())
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await until_shown(pilot, "2 runs")
        await pilot.press("d")
        await until_shown(pilot, "Mark 2 to 6 runs")
        await pilot.press("M", "d")
        await until_shown(pilot, "MultiWorkerMirrored")
        screen = top(app)
        assert "loss" in screen
        assert "strategy" in screen
        assert "steps" not in screen
        assert any("\u2801" <= letter <= "\u28ff" for letter in screen)
        await pilot.press("a")
        await until_shown(pilot, "5,000")
        await pilot.press("right")
        await until_shown(pilot, "accuracy")
        await pilot.press("L", "y")
        await until_shown(pilot, "to the clipboard")
        assert "strategy\t" in app.clipboard
        await pilot.press("escape")
        await until(pilot, lambda: len(app.screen_stack) == 1, "back in the list")
        assert len(app.runs.marked) == 2
