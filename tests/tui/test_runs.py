"""Lists of runs: what was open lately, and what lies below a directory."""

from __future__ import annotations

import errno
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from app_driving import until, until_shown
from json_reference import check
from rundir_factory import RunFactory, two_branches
from textual.widgets import Input

from bundle_writing import array, write
from command_running import Tool
from tfckpt_trainer.rundir.heartbeats.health import RunState
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.worker import SaveStatus
from tfckpt_tui.app.runs_app import RunsApp
from tfckpt_tui.app.widgets.base.keybar import KeyBar
from tfckpt_tui.app.widgets.run.run_list import RunList
from tfckpt_tui.reports.run_facts import RunsReport
from tfckpt_tui.services.runs.brief_reading import brief_account
from tfckpt_tui.services.runs.job_list import JobList
from tfckpt_tui.services.runs.recent_runs import MOST_RECENT, remember_run, remembered_runs
from tfckpt_tui.services.runs.search import SearchProgress, runs_below
from tfckpt_tui.settings.config import Config


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(place))
    return place


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A directory with a run of ours, one of somebody else, and other things."""
    root = tmp_path / "runs"
    two_branches(root / "deep" / "digits", time.time())
    foreign = RunFactory(root / "foreign", time.time() - 9000)
    foreign.run.root.mkdir(parents=True)
    foreign.checkpoint(70, recorded=False)
    os.utime(foreign.run.state_file, (foreign.now, foreign.now))
    (root / "notes").mkdir()
    (root / ".hidden" / "run" / ".tfckpt").mkdir(parents=True)
    (root / "deep" / "digits" / "inner" / ".tfckpt").mkdir(parents=True)
    return root


def test_runs_are_found_below_a_directory_and_not_in_each_other(runs: Path) -> None:
    assert runs_below(runs) == [runs / "foreign", runs / "deep" / "digits"]
    assert runs_below(runs / "foreign") == [runs / "foreign"]
    assert runs_below(runs / "nowhere") == []


@pytest.fixture
def hiding(runs: Path) -> Path:
    """A directory with runs in places that are not searched."""
    (runs / "a" / "b" / "c" / "d" / "run" / ".tfckpt").mkdir(parents=True)
    (runs / "a" / "b" / "c" / "e").mkdir()
    elsewhere = runs.parent / "elsewhere"
    (elsewhere / ".tfckpt").mkdir(parents=True)
    (runs / "linked").symlink_to(elsewhere)
    (runs / "file").symlink_to(__file__)
    return runs


def test_places_that_are_not_searched_are_told(hiding: Path, tool: Tool) -> None:
    told = "1 symbolic link, 2 directories deeper than 3 levels"
    said = tool("runs", hiding)
    assert said.words == f"Not searched: {told}. To search one, give it to this command.\n"
    assert len(said.data.splitlines()) == 3
    assert tool("runs", hiding / "foreign").words == ""


def test_an_unreadable_directory_is_told(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = os.scandir

    def refusing(place: str) -> Any:
        if place == str(runs / "notes"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), place)
        return scan(place)

    monkeypatch.setattr(os, "scandir", refusing)
    progress = SearchProgress()
    assert runs_below(runs, progress) == [runs / "foreign", runs / "deep" / "digits"]
    assert progress.left_out == "1 unreadable directory"


def test_a_link_that_leads_nowhere_hides_no_run_beside_it(runs: Path) -> None:
    before = runs_below(runs, SearchProgress())
    (runs / "loop").symlink_to("loop")
    progress = SearchProgress()
    assert runs_below(runs, progress) == before
    assert progress.left_out == ""


async def test_the_list_of_runs_tells_what_was_not_searched(hiding: Path) -> None:
    app = RunsApp(hiding, Config())
    async with app.run_test(size=(160, 20)) as pilot:
        await until_shown(pilot, "· not searched: 1 symbolic link, 2 directories deeper")


def test_a_directory_without_a_state_file_is_found_by_its_checkpoints(runs: Path) -> None:
    write(runs / "notes" / "ckpt-5", {"w": array([1.0])})
    place = runs / "model" / "variables"
    place.mkdir(parents=True)
    (place.parent / "saved_model.pb").touch()
    write(place / "variables", {"w": array([1.0])})
    (runs / "book").mkdir()
    (runs / "book" / "words.index").touch()
    found = {path.name for path in runs_below(runs)}
    assert found == {"foreign", "digits", "notes"}


def test_a_directory_of_only_keras_files_is_found_with_the_time_of_the_newest(
    tool: Tool, runs: Path
) -> None:
    for name in ("w-01.weights.h5", "w-02.weights.h5"):
        (runs / "notes" / name).touch()
    os.utime(runs / "notes" / "w-01.weights.h5", (1e9, 1e9))
    os.utime(runs / "notes" / "w-02.weights.h5", (2e9, 2e9))
    (runs / "data").mkdir()
    (runs / "data" / "train.h5").touch()
    found = tool("runs", runs, "--json").json["runs"]
    assert {Path(one["directory"]).name for one in found} == {"foreign", "digits", "notes"}
    (active,) = (one["active_at"] for one in found if one["directory"].endswith("notes"))
    assert active == 2e9


async def test_the_list_below_a_directory_is_that_of_the_command(
    runs: Path, tmp_path: Path
) -> None:
    two_branches(tmp_path / "elsewhere")
    remember_run(tmp_path / "elsewhere")
    app = RunsApp(runs, Config())
    async with app.run_test(size=(100, 20)) as pilot:
        listed = app.query_one(RunList)
        await until(pilot, lambda: listed.row_count() == 2, "the runs below it alone")


def test_what_was_opened_last_comes_first_and_what_is_gone_not_at_all(tmp_path: Path) -> None:
    assert remembered_runs() == []
    for number in range(MOST_RECENT + 5):
        place = tmp_path / f"run-{number}"
        place.mkdir()
        remember_run(place)
    remember_run(tmp_path / "run-20")
    os.rmdir(tmp_path / "run-54")
    assert remembered_runs()[:3] == [tmp_path / f"run-{number}" for number in (20, 54, 53)]
    found = [one.root for one in JobList().read(remembered_runs(), with_others=False)]
    assert tmp_path / "run-54" not in found
    assert len(found) == MOST_RECENT - 1


async def test_a_run_whose_saves_fail_is_marked(runs: Path, tool: Tool) -> None:
    made = RunFactory(runs / "deep" / "digits")
    made.live_worker(0, saves=SaveStatus(failed=7, problem="no room"))
    made.live_worker(1)
    said = tool("runs", runs)
    assert "training: 7 saves failed" in said.data
    listed = {one["directory"]: one["alerts"] for one in tool("runs", runs, "--json").json["runs"]}
    assert listed == {str(made.run.root): ["7 saves failed"], str(runs / "foreign"): []}
    app = RunsApp(runs, Config())
    async with app.run_test(size=(120, 24)) as pilot:
        await until_shown(pilot, "✗ training")
        await until_shown(pilot, "7 saves failed")


@pytest.mark.parametrize("content", [b"{", b'{"directories": 3}', b"\xff"])
def test_a_damaged_list_is_an_empty_one(state: Path, tmp_path: Path, content: bytes) -> None:
    (state / "tfckpt-tui").mkdir(parents=True)
    (state / "tfckpt-tui" / "runs.json").write_bytes(content)
    assert remembered_runs() == []


def test_a_name_that_no_json_holds_is_left_out(tmp_path: Path) -> None:
    place = tmp_path / os.fsdecode(b"bad-\xff")
    place.mkdir()
    remember_run(place)
    assert remembered_runs() == []


def test_a_glance_tells_how_a_run_is(runs: Path) -> None:
    ours = brief_account(runs / "deep" / "digits")
    assert (ours.step, ours.total_steps, ours.loss) == (438, 5000, 2.144)
    foreign = brief_account(runs / "foreign")
    assert (foreign.state, foreign.step) == (RunState.UNATTENDED, 70)


def test_the_command_lists_them(tool: Tool, runs: Path) -> None:
    said = tool("runs", runs, "--json")
    check(RunsReport, said.json)
    names = [Path(one["directory"]).name for one in said.json["runs"]]
    assert names == ["digits", "foreign"]
    assert "digits" in tool("runs", runs).data
    assert tool("runs").data.startswith("There are no recent runs. Name a directory")
    assert tool("runs", runs / "nowhere").code == 2


def test_a_terminal_shows_that_runs_are_read(
    tool: Tool, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tool("runs", runs).words == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert tool("runs", runs).words == "\r\x1b[Kreading 2 runs …\r\x1b[K"


async def test_a_run_is_chosen_from_the_list(runs: Path) -> None:
    remember_run(runs / "foreign")
    app = RunsApp(runs, Config())
    async with app.run_test(size=(100, 20)) as pilot:
        listed = app.query_one(RunList)
        await until(pilot, lambda: listed.row_count() == 2, "both runs")
        await pilot.press("down", "enter")
        await until(pilot, lambda: app.return_value is not None, "the end of the list")
    assert app.return_value == RunDirectory(runs / "foreign")


async def test_a_list_without_a_run_says_how_to_begin(tmp_path: Path) -> None:
    app = RunsApp(None, Config())
    async with app.run_test(size=(100, 20)) as pilot:
        await until(
            pilot,
            lambda: (
                "tfckpt-tui demo"
                in "".join(strip.text for strip in app.screen._compositor.render_strips())
            ),
            "what to do",
        )
        await pilot.press("enter", "q")
    assert app.return_value is None


async def test_the_list_is_searched_and_explains_its_keys(runs: Path) -> None:
    app = RunsApp(runs, Config())
    async with app.run_test(size=(100, 24)) as pilot:
        await until_shown(pilot, "foreign")
        await pilot.press("slash", *"digits")
        await until_shown(pilot, "1 of 2 match")
        selected = app.query_one(RunList).selected
        assert selected is not None
        assert selected.root.name == "digits"
        await pilot.press(*" nowhere", "enter")
        await until_shown(pilot, "no run matches digits nowhere")
        await pilot.press("escape")
        await until_shown(pilot, "2 runs")
        await pilot.press("question_mark")
        await until_shown(pilot, "Keys of the list of runs")
        await until_shown(pilot, "Opens the selected run.")
        await pilot.press("end")
        await until_shown(pilot, " ?          help")
        await pilot.press("escape")
        await until(pilot, lambda: len(app.screen_stack) == 1, "the help is closed")
        await pilot.press("escape")
    assert app.return_value is None


async def test_a_click_on_a_key_of_the_list_is_that_key(runs: Path) -> None:
    remember_run(runs / "foreign")
    app = RunsApp(runs, Config())
    async with app.run_test(size=(100, 20)) as pilot:
        await until_shown(pilot, "2 runs")
        line = "".join(strip.text for strip in app.screen._compositor.render_strips()[-1:])
        await pilot.click(KeyBar, offset=(line.index("search"), 0))
        await until(pilot, lambda: isinstance(app.focused, Input), "the search has the focus")
        await pilot.press("escape")
        await pilot.click(KeyBar, offset=(line.index("help"), 0))
        await until_shown(pilot, "Keys of the list of runs")
        await pilot.press("escape")
        await until(pilot, lambda: len(app.screen_stack) == 1, "the help is closed")
        await pilot.click(KeyBar, offset=(line.index("leave"), 0))
    assert app.return_value is None


def test_every_run_that_is_found_is_listed_and_live_ones_come_first(
    tool: Tool, tmp_path: Path
) -> None:
    for number in range(230):
        (tmp_path / "runs" / f"{number:03}" / ".tfckpt" / "control").mkdir(parents=True)
    live = two_branches(tmp_path / "runs" / "zz", time.time() - 50, live=True)
    said = tool("runs", tmp_path / "runs", "--json").json["runs"]
    assert len(said) == 231
    assert said[0]["directory"] == str(live.run.root)
    assert said[0]["state"] == "training"
