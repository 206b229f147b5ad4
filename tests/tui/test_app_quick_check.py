"""The quick check in the app: what it asks, its progress, and its verdict."""

from __future__ import annotations

import time

import msgspec
import pytest
from answering_trainer import AnsweringTrainer, done, final, working_for_ever
from app_driving import opened, top, until, until_shown
from rundir_factory import RunFactory

from command_running import Tool
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.rundir.heartbeats.reading import read_workers
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState
from tfckpt_trainer.rundir.records.exactness import NOT_COVERED, CheckSummary, with_check
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.storage.documents import load, store
from tfckpt_tui.app.dialogs.check_run import QuickCheckDialog
from tfckpt_tui.services.exactness.quick_check import estimated_seconds

SIZES = [(80, 24), (120, 40)]
EXACT = CheckSummary(at=1.7e9, steps=3, workers=2, not_covered=list(NOT_COVERED))
DIFFERENT = msgspec.structs.replace(EXACT, difference="The metric loss differs on worker 0")


def set_step_time(made: RunFactory, seconds: float | None) -> None:
    for worker in read_workers(made.run):
        changed = msgspec.structs.replace(worker, step_seconds=seconds)
        store(made.run.worker_status(worker.index), changed)


def set_save_time(made: RunFactory, seconds: float) -> None:
    for path in made.run.records_directory.glob("*.json"):
        record = load(path, CheckpointRecord)
        store(path, msgspec.structs.replace(record, duration_seconds=seconds))


def estimated(made: RunFactory) -> float | None:
    return estimated_seconds(read_workers(made.run), Catalog(made.run).scan(time.time()))


def test_the_estimate_counts_steps_and_the_last_save_and_nothing_unknown(live: RunFactory) -> None:
    set_step_time(live, None)
    assert estimated(live) is None
    set_step_time(live, 2.0)
    set_save_time(live, 0.0)
    assert estimated(live) == 12
    set_save_time(live, 30.0)
    assert estimated(live) == 72


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_the_dialog_says_what_how_long_and_what_not_and_can_be_refused(
    live: RunFactory, size: tuple[int, int]
) -> None:
    set_step_time(live, 90.0)
    set_save_time(live, 0.0)
    with AnsweringTrainer(live.run, done("Checked: exact.", exact=True)) as trainer:
        async with opened(live.run, size=size) as pilot:
            await pilot.press("K")
            await until_shown(pilot, "9m")
            assert isinstance(pilot.app.screen, QuickCheckDialog)
            said = " ".join(top(pilot.app).split())
            assert "The run saves, trains the next 3 steps, restores in place" in said
            assert "the start of a new process" in said
            await pilot.press("n")
            await until(pilot, lambda: len(pilot.app.screen_stack) == 1, "it is closed")
            await pilot.press("s")
            await until(pilot, lambda: trainer.taken, "the next command")
        assert [one.kind for one in trainer.taken] == [CommandKind.SAVE]


async def test_before_the_first_step_nobody_says_how_long_it_takes(live: RunFactory) -> None:
    set_step_time(live, None)
    async with opened(live.run) as pilot:
        await pilot.press("K")
        await until_shown(pilot, "How long it takes is unknown")


async def test_the_progress_is_shown(live: RunFactory) -> None:
    with AnsweringTrainer(live.run, working_for_ever):
        async with opened(live.run) as pilot:
            await pilot.press("K", "y")
            await until_shown(pilot, "check: working")


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("summary", [EXACT, DIFFERENT], ids=["exact", "not exact"])
async def test_the_verdict_stays_until_it_is_read(
    live: RunFactory, summary: CheckSummary, size: tuple[int, int]
) -> None:
    is_exact = not summary.difference
    answer = done(f"Checked: {summary.words}.", exact=is_exact)
    with AnsweringTrainer(live.run, answer) as trainer:
        async with opened(live.run, size=size) as pilot:
            await pilot.press("K", "y")
            await until(pilot, lambda: trainer.taken, "the command")
            await until_shown(pilot, "Checked:")
            progress = pilot.app.progress
            # Longer than a command that was just done is shown.
            assert progress.verdicts() and not progress.shown_commands()
            assert ("✗ check:" in top(pilot.app)) is not is_exact
            await pilot.press("escape")
            await until(pilot, lambda: "Checked:" not in top(pilot.app), "it is dismissed")


async def test_a_check_that_compared_nothing_is_a_failure(live: RunFactory) -> None:
    answer = final(CommandState.FAILED, "Nothing was compared. The disk is full.")
    with AnsweringTrainer(live.run, answer):
        async with opened(live.run) as pilot:
            await pilot.press("K", "y")
            await until_shown(pilot, "✗ check failed: Nothing was compared.")


@pytest.mark.parametrize("summary", [EXACT, DIFFERENT], ids=["exact", "not exact"])
async def test_header_status_and_inspect_say_it_in_the_same_words(
    tool: Tool, live: RunFactory, summary: CheckSummary
) -> None:
    info = load(live.run.run_file, RunInfo)
    store(live.run.run_file, msgspec.structs.replace(info, check=summary))
    words = summary.words
    assert words == (
        "not exact: The metric loss differs on worker 0"
        if summary.difference
        else "exact over 3 steps, restored in place on 2 workers"
    )
    known = with_check(None, summary)
    assert known is not None and known.words == words
    assert f"exact     {words}" in tool("status", live.run.root).data
    assert words in " ".join(tool("inspect", live.run.root, "ckpt-200").data.split())
    async with opened(live.run, size=(120, 40)) as pilot:
        await until_shown(pilot, f"resume {words}")
    async with opened(live.run, size=(80, 24)) as pilot:
        await until_shown(pilot, f"resume {words[:9]}")
