"""Threads of the app: keys that are pressed while one reads, pages closed meanwhile, defects."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from app_driving import opened, top, until, until_jobs_are_shown, until_screen, until_shown
from rundir_factory import RunFactory
from textual.pilot import Pilot
from textual.widgets import Input

from tfckpt_tui.app.actions.table import DEFAULT_KEYS
from tfckpt_tui.app.dashboard import DashboardScreen
from tfckpt_tui.app.dialogs.guard_rule import AddGuardDialog
from tfckpt_tui.app.job_app import JobApp
from tfckpt_tui.app.screens.compare import CompareScreen
from tfckpt_tui.app.screens.guards import GuardsScreen
from tfckpt_tui.services.checkpoints.verify import Verifier
from tfckpt_tui.settings.config import read_config
from waiting import LEAST_SECONDS


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Answers no job before it is set, as a slow disk does."""
    answers = threading.Event()
    start_job = JobApp.start_job

    def start(app: Any, what: str, work: Callable[[], Any], *rest: Any, **options: Any) -> None:
        def work_later() -> Any:
            assert answers.wait(LEAST_SECONDS)
            return work()

        start_job(app, what, work_later, *rest, **options)

    monkeypatch.setattr(JobApp, "start_job", start)
    yield answers
    answers.set()


async def press_on(pilot: Pilot[int], page: type[Any], *keys: str) -> None:
    """Presses a key, waits for the page that it opens, and presses the others."""
    await pilot.press(keys[0])
    await until_screen(pilot, page)
    await pilot.press(*keys[1:])


async def test_a_guard_is_typed_before_the_others_are_read(
    live: RunFactory, disk: threading.Event
) -> None:
    async with opened(live.guarded().run) as pilot:
        await press_on(pilot, GuardsScreen, "G", "a", *"above loss 3: notify")
        await until_screen(pilot, AddGuardDialog)
        assert pilot.app.screen.query_one(Input).value == "above loss 3: notify"
        disk.set()
        await until_jobs_are_shown(pilot)
        await pilot.press("enter")
        await until_shown(pilot, "The run has this guard.")


async def test_no_guard_is_removed_before_they_are_read(
    live: RunFactory, disk: threading.Event
) -> None:
    del disk
    async with opened(live.guarded().run) as pilot:
        await press_on(pilot, GuardsScreen, "G", "x")
        await until_shown(pilot, "The guards are still being read.")


async def test_tensors_are_measured_if_that_was_wanted_before_the_indexes_were_read(
    live: RunFactory, disk: threading.Event
) -> None:
    async with opened(live.run) as pilot:
        await press_on(pilot, CompareScreen, "d", "n")
        disk.set()
        await until(pilot, lambda: "reads what changed" not in top(pilot.app), "a measurement")
        await until_shown(pilot, "all tensors together")


async def test_a_text_that_was_searched_before_the_logs_were_read_is_shown(
    live: RunFactory, disk: threading.Event
) -> None:
    lines = [f"line {n}" for n in range(500)]
    live.run.worker_log(0).write_text("\n".join([*lines, "the needle", *lines]) + "\n")
    async with opened(live.run) as pilot:
        await pilot.press("l", "/", *"needle", "enter")
        disk.set()
        await until(pilot, lambda: "the needle" in top(pilot.app), "the match")


async def test_a_setting_is_saved_after_its_page_was_closed(
    live: RunFactory, disk: threading.Event
) -> None:
    async with opened(live.run) as pilot:
        await pilot.press("C")
        await until_shown(pilot, "column: shards")
        await pilot.press("right", "escape")
        await until_screen(pilot, DashboardScreen)
        assert read_config(DEFAULT_KEYS).app.columns == {}
        disk.set()
        await until_jobs_are_shown(pilot)
    assert len(read_config(DEFAULT_KEYS).app.columns) == 1


async def test_a_defect_in_a_thread_ends_the_app_with_a_report(
    live: RunFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def divide(*arguments: object, **options: object) -> float:
        return len(arguments) / 0

    monkeypatch.setattr(Verifier, "verify", divide)

    async def fail() -> None:
        async with opened(live.run) as pilot:
            app = pilot.app
            assert isinstance(app, JobApp)
            await pilot.press("v")
            crash = await until(pilot, lambda: app.crash, "a report")
            assert "in divide" in crash.trace

    before = threading.excepthook
    # A test of an app raises what ended it.
    with pytest.raises(ZeroDivisionError):
        await fail()
    assert threading.excepthook is before


async def test_a_job_that_waits_for_an_answer_ends_with_the_app(live: RunFactory) -> None:
    def waiting() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "job: save"]

    async with opened(live.run) as pilot:
        await pilot.press(DEFAULT_KEYS["save"])
        await until(pilot, waiting, "a job that follows the command")
        (job,) = waiting()
    await asyncio.to_thread(job.join, LEAST_SECONDS)
    assert not job.is_alive()
