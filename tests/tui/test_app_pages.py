"""The whole screens: their keys, their help, and what they show of a run."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import cast

import pytest
from app_driving import (
    POLL,
    StillMonitor,
    opened,
    shown,
    top,
    until,
    until_jobs_are_shown,
    until_screen,
    until_shown,
)
from rundir_factory import RunFactory, two_branches
from textual import events
from textual.pilot import Pilot
from textual.widgets import Input

from tfckpt_trainer.catalog.retention.prune import move_to_trash
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.rundir.heartbeats.reading import read_supervisor
from tfckpt_trainer.rundir.log_times import LogTimesRecorder
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.storage.documents import load, store
from tfckpt_tui.app.actions.table import DEFAULT_KEYS
from tfckpt_tui.app.app import TfckptApp
from tfckpt_tui.app.dashboard import DashboardScreen
from tfckpt_tui.app.dialogs.launch import LaunchDialog
from tfckpt_tui.app.screens.charts import ChartsScreen
from tfckpt_tui.app.screens.logs import LogsScreen
from tfckpt_tui.app.screens.page import Page
from tfckpt_tui.app.widgets.base.search_input import SearchInput
from tfckpt_tui.app.widgets.charts.chart import Chart
from tfckpt_tui.app.widgets.checkpoints.history import History
from tfckpt_tui.app.widgets.run.log_view import LogView
from tfckpt_tui.formats.sort_order import ListOrder, Order
from tfckpt_tui.monitor.snapshot_reader import SnapshotReader
from tfckpt_tui.services.runs.recent_runs import LastLook, last_look, remember_look, remember_run
from tfckpt_tui.settings.config import config_path, read_config

PAGES = {
    "enter": "Keys of a checkpoint",
    "d": "Keys of the comparison",
    "w": "Keys of a worker",
    "c": "Keys of the charts",
    "J": "Keys of the event log",
    "H": "Keys of the hyperparameters",
    "G": "Keys of the guards",
    "A": "Keys of your own actions",
    "P": "Keys of the profile",
    "T": "Keys of the trash",
    "l": "Keys of the logs",
    "comma": "Keys of the settings",
}


@pytest.fixture(autouse=True)
def _own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.parametrize("key", PAGES)
async def test_each_page_has_help_for_its_keys_and_closes(live: RunFactory, key: str) -> None:
    async with opened(live.run, size=(120, 60)) as pilot:
        await pilot.press(key)
        page = await until_screen(pilot, Page)
        await pilot.pause()
        bindings = page.shown_bindings()
        footer = top(pilot.app).splitlines()[-1]
        assert "esc back" in footer
        assert "? help" in footer
        await pilot.press("question_mark")
        await until_shown(pilot, PAGES[key])
        help_text = " ".join(top(pilot.app).split())
        for binding in bindings:
            assert binding.tooltip, f"{binding.key} has no words for the help"
            # A long text takes several lines.
            assert binding.tooltip.partition(",")[0].partition(".")[0][:30] in help_text
        await pilot.press("escape")
        await until(pilot, lambda: pilot.app.screen is page, "the help is closed")
        await pilot.press("q")
        await until_screen(pilot, DashboardScreen)


async def until_on_top(pilot: Pilot[int], text: str) -> None:
    await until(pilot, lambda: text in top(pilot.app), f"{text!r} on the topmost screen")


async def test_a_chart_is_zoomed_moved_and_turned(ended: RunFactory) -> None:
    async with opened(ended.run) as pilot:
        await pilot.press("c")
        await until_on_top(pilot, "steps 0 to 500")
        await pilot.press("plus")
        await until_on_top(pilot, "steps 252 to 500")
        await pilot.press("left", "left")
        await until_on_top(pilot, "steps 128 to 372")
        await pilot.press("minus")
        await until_on_top(pilot, "steps 0 to 500")
        await pilot.press("down")
        await until_on_top(pilot, "examples/s")
        await pilot.press("down")
        await until_on_top(pilot, "118 ms")
        await pilot.press("up", "up", "t")
        chart = pilot.app.screen.query_one(Chart)
        whole = chart.whole
        assert whole is not None
        assert whole.low > 1_000_000_000
        await pilot.press("plus", "plus", "0")
        await until_on_top(pilot, "steps 0 to 500")
        assert isinstance(pilot.app.screen, ChartsScreen)


async def test_a_run_without_a_metric_named_loss_shows_another_one(tmp_path: Path) -> None:
    made = RunFactory(tmp_path / "run").create()
    made.series(4, 200, 0, metric="g_loss")
    async with opened(made.run, size=(120, 40)) as pilot:
        await until_shown(pilot, "─ g_loss ")
        assert "NaN" not in shown(pilot.app)
        await pilot.press("c")
        await until_shown(pilot, "lowest")


async def test_a_directory_without_logs_says_who_keeps_them(tmp_path: Path) -> None:
    made = RunFactory(tmp_path / "run")
    made.run.root.mkdir()
    made.checkpoint(10, recorded=False)
    async with opened(made.run, size=(120, 40)) as pilot:
        await until_shown(pilot, "ckpt-10")
        await pilot.press("l")
        await until_shown(pilot, "There are no logs: only `tfckpt-tui launch` keeps logs.")
        assert "following" not in shown(pilot.app)


async def test_the_last_words_of_a_process_are_shown_without_a_newline(live: RunFactory) -> None:
    log = live.run.worker_log(0)
    log.write_text("loading\nFATAL: no licence")
    async with opened(live.run) as pilot:
        await pilot.press("l")
        await until_shown(pilot, "FATAL: no licence")
        with log.open("a") as file:
            file.write(" for this host\nnext")
        await until_shown(pilot, "FATAL: no licence for this host")
        await until_shown(pilot, "next")
        assert top(pilot.app).count("FATAL") == 1


async def test_the_mouse_selects_text_of_a_log(live: RunFactory) -> None:
    log = live.run.worker_log(0)
    log.write_text("first line\n  second line\nthird line\n")
    async with opened(live.run) as pilot:
        await pilot.press("l", "right")
        await until_shown(pilot, "third line")
        rows = top(pilot.app).splitlines()
        first = next(y for y, row in enumerate(rows) if "first line" in row)
        x = rows[first].index("first line")
        await pilot.mouse_down(offset=(x + 6, first))
        await pilot.hover(offset=(x + 5, first + 2))
        await pilot.mouse_up(offset=(x + 5, first + 2))
        await pilot.press("ctrl+c")
        lines = pilot.app.clipboard.splitlines()
        assert (lines[0], lines[-1][-5:]) == ("line", "third")
        assert lines[1].endswith("  second line")
        assert not {"│", "#"} & set(pilot.app.clipboard)


async def test_lines_of_a_log_and_an_event_are_copied(live: RunFactory) -> None:
    log = live.run.worker_log(0)
    log.write_text("first \x1b]52;c;eA==\x07line\n" + "second " * 50 + "\n")
    async with opened(live.run) as pilot:
        await pilot.press("l", "right")
        await until_shown(pilot, "second")
        await pilot.press("y")
        await until_shown(pilot, "Sent 2 lines to the clipboard of the terminal.")
        first, second = pilot.app.clipboard.split("\n")
        assert second == "second " * 50, "in full"
        assert "\x1b" not in first
        await pilot.press("escape", "J")
        await until_shown(pilot, "logs at that time")
        await pilot.press("y")
        await until_shown(pilot, "Sent the event to the clipboard of the terminal.")
        assert "Back to ckpt-300; branch 1 begins." in pilot.app.clipboard
        assert "ada@trainhost" in pilot.app.clipboard


async def test_logs_of_all_are_in_the_order_of_time_and_by_level(live: RunFactory) -> None:
    now = time.time()
    moments = iter(now - 300 + 10 * n for n in range(9))
    clock = LogTimesRecorder(lambda: next(moments))
    logs = [live.run.worker_log(index) for index in range(2)]
    for text, index in (
        ("zero begins", 0),
        ("one begins", 1),
        ("WARNING: zero is slow", 0),
        ("ValueError: one is wrong", 1),
    ):
        with logs[index].open("a") as file:
            file.write(f"{text}\n")
        clock.record(logs)
    async with opened(live.run) as pilot:
        await pilot.press("l")
        await until_shown(pilot, "ValueError: one is wrong")
        view = pilot.app.screen.query_one(LogView)
        assert [row.text.split()[0] for row in view.rows] == [
            *("zero", "one", "WARNING:", "ValueError:"),
        ]
        assert "w1  ValueError" in top(pilot.app)
        await pilot.press("e")
        await until(pilot, lambda: view.row_count() == 2, "warnings and errors")
        assert "warnings and errors" in top(pilot.app)
        await pilot.press("e")
        await until(pilot, lambda: view.row_count() == 1, "errors alone")
        await pilot.press("e")
        await until(pilot, lambda: view.row_count() == 4, "all again")


async def test_an_event_leads_to_what_was_printed_then(live: RunFactory) -> None:
    now = time.time()
    moments = iter((now - 1000, now - 500, now - 100))
    clock = LogTimesRecorder(lambda: next(moments))
    log = live.run.worker_log(1)
    for text in ("long before", "it broke here", "long after"):
        with log.open("a") as file:
            file.writelines(f"{text} {n}\n" for n in range(200))
        clock.record([log])
    live.event_log(EventKind.WORKER_LOST, "Worker 1 was killed.", 501, details={"worker": 1})
    async with opened(live.run) as pilot:
        await pilot.press("J", "slash", *"killed", "enter")
        await until_shown(pilot, "1 of")
        await pilot.press("l")
        await until_shown(pilot, "it broke here 0")
        assert isinstance(pilot.app.screen, LogsScreen)
        assert "it broke here 0" in top(pilot.app)
        assert "held" in top(pilot.app)
        await pilot.press("escape", "escape", "escape")
        await until_screen(pilot, DashboardScreen)


async def test_a_moment_that_nobody_noted_is_said(live: RunFactory) -> None:
    live.run.worker_log(0).write_text("no time is known of this\n")
    async with opened(live.run) as pilot:
        await pilot.press("J", "l")
        await until_shown(pilot, "was not recorded")


OWN_ACTION = "[actions.evaluate]\ncommand = 'true'\n"


async def test_settings_are_in_force_at_once_and_kept(ended: RunFactory) -> None:
    path = config_path()
    path.parent.mkdir(parents=True)
    path.write_text("# mine\n[retention]  # rules\nkeep_last = 7\n" + OWN_ACTION)
    config = read_config(DEFAULT_KEYS)
    async with opened(ended.run, config=config) as pilot:
        before = pilot.app.theme
        await pilot.press("comma", "right")
        await until(pilot, lambda: pilot.app.theme != before, "another theme")
        await pilot.press("down", "right", "down", "right", "down", "right")
        await until(
            pilot,
            lambda: EventKind.START in read_config(DEFAULT_KEYS).app.bell,
            "the bell is kept",
        )
    config = read_config(DEFAULT_KEYS)
    assert config.app.theme == pilot.app.theme
    assert config.app.poll == 0.5
    assert config.app.notify == pilot.app.config.app.notify == "osc9"
    assert config.app.bell == [EventKind.START, EventKind.WORKER_LOST]
    assert path.read_text().startswith("# mine\n[retention]  # rules\nkeep_last = 7\n")


async def test_the_settings_say_whether_their_file_exists(ended: RunFactory) -> None:
    assert not config_path().exists()
    # Wide enough for the path.
    async with opened(ended.run, size=(240, 40)) as pilot:
        await pilot.press("comma")
        await until_shown(pilot, "; create it")
        await pilot.press("right")
        await until_shown(pilot, "; edit it")
        assert config_path().exists()


async def test_a_run_is_started_again_from_the_form(ended: RunFactory, tmp_path: Path) -> None:
    for index in range(2):
        ended.run.worker_status(index).unlink()
    script = tmp_path / "script.py"
    script.write_text("import time; print('hello', flush=True); time.sleep(60)\n")
    options = LaunchOptions(
        run_directory=str(ended.run.root),
        command=(sys.executable, str(script)),
        working_directory=str(tmp_path),
        workers=2,
        max_restarts=7,
        hang_seconds=1234.0,
    )
    store(ended.run.launch_file, options)
    async with opened(ended.run) as pilot:
        await pilot.press("L")
        await until_shown(pilot, "Starts 2 workers")
        assert isinstance(pilot.app.screen, LaunchDialog)
        field = pilot.app.screen.query_one("#workers")
        field.focus()
        await pilot.press("0")
        await until_shown(pilot, "a run has at least 1")
        await pilot.press("ctrl+u", "1", "enter")
        supervisor = await until(
            pilot, lambda: read_supervisor(ended.run), "a supervisor", timeout=30
        )
        launched = load(ended.run.launch_file, LaunchOptions)
        assert (launched.workers, launched.max_restarts) == (1, 7)
        assert launched.hang_seconds == 1234.0
        from tfckpt_trainer.launch.supervision.stop import stop_supervisor

        stop_supervisor(ended.run, 30)
        assert supervisor is not None


async def test_what_runs_is_not_started_again(live: RunFactory) -> None:
    async with opened(live.run) as pilot:
        await pilot.press("L")
        await until_shown(pilot, "The run is active. Press x to stop it first.")


async def test_the_next_app_lists_as_the_last_one_with_the_cursor_on_the_first_row(
    ended: RunFactory,
) -> None:
    remember_run(ended.run.root)
    async with opened(ended.run, select="ckpt-300") as pilot:
        await pilot.press(
            "slash", *"step<", *"400", "enter", "greater_than_sign", "greater_than_sign"
        )
        await pilot.pause()
        app = cast(TfckptApp, pilot.app)
        order = app.listing.order
        assert order is not None
        assert app.listing == ListOrder("step<400", order)
        remember_look(ended.run.root, LastLook(app.listing))
    last = last_look(ended.run.root)
    async with opened(ended.run, listing=last.listing) as pilot:
        await until_shown(pilot, "match step<400")
        history = pilot.app.screen.query_one(History)
        assert history.cursor == 0
        assert f"{order.arrow}" in top(pilot.app)
        await pilot.press("slash")
        assert pilot.app.screen.query_one("#filter", Input).value == "step<400"
        await pilot.press("escape")
        await until(pilot, lambda: not history.filter.tests, "all checkpoints")
    strange = ListOrder("step<", Order("no such column", descending=True))
    async with opened(ended.run, listing=strange) as pilot:
        await until_shown(pilot, "ckpt-300")


@pytest.mark.parametrize(
    ("keys", "stays"), [(("v",), True), (("asterisk",), True), (("o", "escape"), False)]
)
async def test_a_save_moves_the_cursor_from_no_row_that_a_key_acted_on(
    live: RunFactory, keys: tuple[str, ...], stays: bool
) -> None:
    async with opened(live.run) as pilot:
        history = pilot.app.screen.query_one(History)
        first = history.selected
        assert first is not None
        await pilot.press(*keys)
        await until_jobs_are_shown(pilot)
        live.checkpoint(440, branch=1, parent=first.name)
        await until_shown(pilot, "ckpt-b1-440")
        selected = history.selected
        assert selected is not None
        assert (selected.name == first.name) is stays
        await pilot.press("home")
        assert not history.cursor
        live.checkpoint(450, branch=1, parent="ckpt-b1-440")
        await until(pilot, lambda: history.selected and history.selected.step == 450, "the newest")


async def test_a_worker_that_waits_for_a_core_keeps_its_measurements(live: RunFactory) -> None:
    live.live_worker(1, cpu_stall_ratio=0.43)
    async with opened(live.run, size=(80, 24)) as pilot:
        await until_shown(pilot, "! worker 1 waits for a free core 43%")
        assert all(part in top(pilot.app) for part in ("2.144", "98%", "912 MB", "2 of 2 live"))


async def test_a_directory_that_does_not_answer_is_said_on_every_screen(ended: RunFactory) -> None:
    monitor = StillMonitor(SnapshotReader(ended.run).read(time.time()), snapshot_timeout=0.2)
    app = TfckptApp(ended.run, monitor=monitor)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.snapshot, "a first snapshot")
        await until_shown(pilot, "the disk has not answered for ")
        await pilot.press("J")
        await until(pilot, lambda: "has not answered" in top(app), "it is on the page too")
        monitor.give(SnapshotReader(ended.run).read(time.time()))
        await until(pilot, lambda: "has not answered" not in shown(app), "it answers again")


async def test_with_read_only_no_page_offers_what_changes_the_run(tmp_path: Path) -> None:
    made = two_branches(tmp_path / "run", now=time.time() - 3600)
    move_to_trash(made.run, ["ckpt-100"], by="ada", now=time.time(), update_state_file=True)
    app = TfckptApp(made.run, poll=POLL, read_only=True)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await until(pilot, lambda: app.snapshot, "a first snapshot")
        await pilot.pause()
        offered = ""
        for key in PAGES:
            await pilot.press(key)
            await until_screen(pilot, Page)
            await pilot.pause()
            offered += top(app).splitlines()[-1]
            await pilot.press("q")
            await until_screen(pilot, DashboardScreen)
        assert "bring back" not in offered
        assert "delete" not in offered
        await pilot.press("T", "u", "E")
        await until_shown(pilot, "opened to read only")
        assert len(list(made.run.trash.iterdir())) == 1


async def test_the_help_is_searched(live: RunFactory) -> None:
    async with opened(live.run, size=(80, 24)) as pilot:
        await pilot.press("question_mark", "slash", *"quota")
        await until_shown(pilot, "Nothing contains quota.")
        await pilot.press("escape", "slash", *"tensorboard", "enter")
        await until_shown(pilot, "Open TensorBoard on this run")
        assert "Keys of the dashboard" in top(pilot.app)
        assert "Pin or unpin" not in top(pilot.app)
        await pilot.press("escape")
        await until_shown(pilot, "Save a checkpoint now")
        await pilot.press("escape")
        await until_screen(pilot, DashboardScreen)


@pytest.mark.parametrize(("key", "typed"), [("enter", "v"), ("J", "restore"), ("l", "kernel")])
async def test_what_is_typed_right_behind_the_slash_is_searched_for(
    live: RunFactory, key: str, typed: str
) -> None:
    log = live.run.worker_log(0)
    log.parent.mkdir(exist_ok=True)
    log.write_text("a kernel was launched\n")
    async with opened(live.run) as pilot:
        await pilot.press(key)
        await until_screen(pilot, Page)
        await pilot.pause()
        screen = pilot.app.screen
        for character in ("slash", *typed, "enter"):
            # Not `press`, which waits between keys: somebody who types is quicker.
            pilot.app.post_message(
                events.Key(character, character if len(character) == 1 else None)
            )
        line = screen.query_one(SearchInput)
        await until(pilot, lambda: line.value == typed and not line.display, "it is kept")
