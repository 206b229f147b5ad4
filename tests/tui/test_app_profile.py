"""The page of traces, and the dialog that traces steps."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from answering_trainer import AnsweringTrainer, done, final
from app_driving import opened, top, until, until_jobs_are_shown, until_screen, until_shown
from rundir_factory import RunFactory, without_heartbeats
from textual.pilot import Pilot
from tiny_trace import SECOND, plane, write_traces

from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import CommandState
from tfckpt_tui.app.dialogs.tensorboard import TensorBoardDialog
from tfckpt_tui.app.dialogs.trace import TraceDialog
from tfckpt_tui.app.screens.profile import ProfileScreen
from tfckpt_tui.services.runs.traces import find_traces

CAN_CRASH = "The profiler can crash workers other than 0. Save first."


@asynccontextmanager
async def on_page(made: RunFactory, *, read_only: bool = False) -> AsyncIterator[Pilot[int]]:
    async with opened(made.run, read_only=read_only) as pilot:
        await pilot.press("P")
        await until_screen(pilot, ProfileScreen)
        await until_jobs_are_shown(pilot)
        # The operations are read when the traces are known.
        await until_jobs_are_shown(pilot)
        yield pilot


async def test_the_page_shows_cost_and_slowest_operations_of_each_worker(live: RunFactory) -> None:
    write_traces(live.run, live.now - 240)
    async with on_page(live) as pilot:
        text = top(pilot.app)
        assert "1     10       500 ms    1.25 s       125 ms" in text
        assert "branch-0/worker-1" in text
        assert "38.5%    500 ms       1  CPU    While" in text
        assert "ampere_sgemm" in text
        await pilot.press("down")
        await until(pilot, lambda: "ampere_sgemm" not in top(pilot.app), "worker 0")
        await until_shown(pilot, "55.6%")


async def test_steps_are_traced_and_the_new_trace_is_shown(live: RunFactory) -> None:
    async with on_page(live) as pilot:
        await until_shown(pilot, "No step was traced yet.")
        await pilot.press("n", *"15", "down", *"0,1")
        await until_shown(pilot, "Traces the next 15 steps on workers 0, 1.")
        await until_shown(pilot, CAN_CRASH)
        write_traces(live.run, live.now, is_recorded=False)
        with AnsweringTrainer(live.run, done("Traced 15 steps on 2 workers.")) as trainer:
            await pilot.press("enter")
            await until_shown(pilot, "profile: done · Traced 15 steps on 2 workers.")
        await until_shown(pilot, "ampere_sgemm")
    (command,) = trainer.taken
    assert command.arguments == {"steps": 15, "workers": [0, 1]}


@pytest.mark.parametrize(("typed", "workers"), [("", [0]), ("all", None)])
async def test_only_the_worker_that_cannot_crash_traces_unless_others_are_named(
    live: RunFactory, typed: str, workers: list[int] | None
) -> None:
    async with on_page(live) as pilot:
        await pilot.press("n", "down", *typed)
        await until_shown(pilot, "on worker 0." if workers else "on 2 workers.")
        assert (CAN_CRASH in top(pilot.app)) == (not workers)
        with AnsweringTrainer(live.run, done("Traced.")) as trainer:
            await pilot.press("enter")
            await until_shown(pilot, "profile: done · Traced.")
    (command,) = trainer.taken
    assert command.arguments == {"steps": 20, "workers": workers}


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        (("0",), "steps is 0; it must be a whole"),
        (("x",), "'x' is no whole number of steps."),
        (("down", *"0,x"), "'0,x' is no list of workers; expected indexes such as 0,1, or all."),
    ],
)
async def test_what_cannot_be_traced_says_why_and_sends_nothing(
    live: RunFactory, keys: tuple[str, ...], problem: str
) -> None:
    async with on_page(live) as pilot:
        await pilot.press("n", *keys)
        await until(
            pilot, lambda: problem in " ".join(top(pilot.app).replace("│", "").split()), problem
        )
        await pilot.press("enter")
        assert isinstance(pilot.app.screen, TraceDialog)
        assert not list(live.run.inbox.iterdir())


async def test_a_trainer_that_goes_away_meanwhile_is_said(live: RunFactory) -> None:
    async with on_page(live) as pilot:
        await pilot.press("n")
        await until_screen(pilot, TraceDialog)
        without_heartbeats(live)
        await until_shown(pilot, "No trainer answers.")


async def test_a_trainer_that_does_not_know_profiles_is_said(live: RunFactory) -> None:
    async with on_page(live) as pilot:
        with AnsweringTrainer(
            live.run, final(CommandState.REFUSED, "This trainer has no command profile.")
        ):
            await pilot.press("n", "enter")
            await until_shown(pilot, "This trainer has no command profile.")
        await until_shown(pilot, "No step was traced yet.")


async def test_without_a_trainer_earlier_traces_are_shown(ended: RunFactory) -> None:
    write_traces(ended.run, ended.now, is_recorded=False)
    async with on_page(ended) as pilot:
        assert "ampere_sgemm" in top(pilot.app)
        assert "new trace" not in top(pilot.app)
        await pilot.press("n")
        await until_shown(pilot, "No trainer answers. Press L to launch training.")
        assert isinstance(pilot.app.screen, ProfileScreen)


async def test_with_read_only_nothing_is_traced(live: RunFactory) -> None:
    async with on_page(live, read_only=True) as pilot:
        await pilot.press("n")
        await until_shown(pilot, "The app was opened to read only.")
        assert isinstance(pilot.app.screen, ProfileScreen)


async def test_tensorboard_opens_from_the_page(live: RunFactory) -> None:
    async with on_page(live) as pilot:
        await pilot.press("t")
        await until_screen(pilot, TensorBoardDialog)


async def test_damaged_and_huge_traces_do_no_harm(live: RunFactory) -> None:
    first, second = write_traces(live.run, live.now)
    first.write_bytes(b"\xff" * 100)
    second.write_bytes(plane("/host:CPU", [("x" * 5000 + "\x1b[2J:MatMul", 0, SECOND)]))
    (live.run.done / "20260101T000000-profile-0.json").write_text("{")
    async with on_page(live) as pilot:
        await until_shown(pilot, "100.0%")
        await pilot.press("down")
        await until_shown(pilot, "is no trace of TensorFlow")


def test_traces_of_any_directory_are_found(live: RunFactory) -> None:
    written = write_traces(live.run, live.now)
    assert {trace.path for trace in find_traces(live.run)} == set(written)
    foreign = RunDirectory(live.run.tensorboard / "branch-0")
    assert {trace.path for trace in find_traces(foreign)} == set(written)
