"""Pictures of the main screens at three sizes; nothing in them moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from app_driving import StillMonitor, until
from rundir_factory import RunFactory, two_branches
from textual.pilot import Pilot

from tfckpt_trainer.catalog.prune import move_to_trash
from tfckpt_trainer.rundir.commandbox import CommandBox, advance
from tfckpt_trainer.rundir.records import CommandKind, CommandState, JournalKind
from tfckpt_tui.app import TfckptApp
from tfckpt_tui.look import Look

NOW = 1_790_000_000.0
SIZES = [(80, 24), (120, 40), (200, 50)]
BY_SIZE = pytest.mark.parametrize("size", SIZES, ids=[f"{w}x{h}" for w, h in SIZES])
Compare = Callable[..., bool]


def still(factory: RunFactory, **changes: Any) -> TfckptApp:
    """The app on one snapshot of a run, with what depends on the machine made the same."""
    snapshot = Look(factory.run).snapshot(NOW)
    snapshot = replace(
        snapshot,
        path="/data/runs/language-model",
        disk_total=500_000_000_000,
        disk_free=41_000_000_000,
        **changes,
    )
    return TfckptApp(factory.run, monitor=StillMonitor(snapshot))


def pressing(*keys: str) -> Callable[[Pilot[int]], Any]:
    async def before(pilot: Pilot[int]) -> None:
        await until(pilot, lambda: pilot.app.snapshot, "the snapshot")  # type: ignore[attr-defined]
        await pilot.pause()
        await pilot.press(*keys)
        await pilot.pause(0.2)

    return before


@pytest.fixture
def made(tmp_path: Path) -> RunFactory:
    made = two_branches(tmp_path / "run", now=NOW)
    (made.run.root / "ckpt-200.data-00000-of-00001").unlink()
    made.run.pin("ckpt-100").touch()
    made.journal(JournalKind.WORKER_LOST, "Worker 1 was killed by signal 9.", 100, step=420)
    made.journal(JournalKind.RESTART, "All workers start again.", 90, step=400)
    return made


@BY_SIZE
def test_dashboard(snap_compare: Compare, made: RunFactory, size: tuple[int, int]) -> None:
    assert snap_compare(still(made), terminal_size=size, run_before=pressing())


@BY_SIZE
def test_restore(snap_compare: Compare, made: RunFactory, size: tuple[int, int]) -> None:
    keys = pressing("down", "down", "down", "r", "tab")
    assert snap_compare(still(made), terminal_size=size, run_before=keys)


@BY_SIZE
def test_prune(snap_compare: Compare, made: RunFactory, size: tuple[int, int]) -> None:
    keys = pressing("p", "2", "enter")
    assert snap_compare(still(made), terminal_size=size, run_before=keys)


@BY_SIZE
def test_help(snap_compare: Compare, made: RunFactory, size: tuple[int, int]) -> None:
    assert snap_compare(still(made), terminal_size=size, run_before=pressing("question_mark"))


@BY_SIZE
def test_checkpoint(snap_compare: Compare, made: RunFactory, size: tuple[int, int]) -> None:
    keys = pressing("down", "enter")
    assert snap_compare(still(made), terminal_size=size, run_before=keys)


@BY_SIZE
def test_compare(snap_compare: Compare, made: RunFactory, size: tuple[int, int]) -> None:
    keys = pressing("down", "space", "space", "d", "n")
    assert snap_compare(still(made), terminal_size=size, run_before=keys)


def test_stop(snap_compare: Compare, made: RunFactory) -> None:
    assert snap_compare(still(made), terminal_size=(80, 24), run_before=pressing("x"))


def test_light_theme(snap_compare: Compare, made: RunFactory) -> None:
    app = still(made)
    app.theme = "tfckpt-light"
    assert snap_compare(app, terminal_size=(120, 40), run_before=pressing())


def test_too_small(snap_compare: Compare, made: RunFactory) -> None:
    assert snap_compare(still(made), terminal_size=(50, 12), run_before=pressing())


def test_not_our_run(snap_compare: Compare, tmp_path: Path) -> None:
    factory = RunFactory(tmp_path, now=NOW)
    for step in (10, 20, 30):
        factory.checkpoint(step, recorded=False, seconds_ago=600 - step)
    assert snap_compare(still(factory), terminal_size=(80, 24), run_before=pressing())


def test_progress_and_failure(snap_compare: Compare, made: RunFactory) -> None:
    box = CommandBox(made.run)
    box.submit(CommandKind.SAVE, requested_by="test", now=NOW - 2)
    taken = box.claim(NOW)
    assert taken is not None
    refused = advance(taken, CommandState.REFUSED, "Not enough disk: 38.4 MB are needed. " * 4)
    box.submit(CommandKind.RESTORE, {"name": "ckpt-300"}, requested_by="test", now=NOW - 1)
    agreed = box.claim(NOW)
    assert agreed is not None
    agreed = advance(agreed, CommandState.AGREED, "", step=440, seen_by=[0, 1], worker_count=2)
    app = still(made, working=(agreed,), finished=(refused,))
    assert snap_compare(app, terminal_size=(80, 24), run_before=pressing())


def test_nothing_yet(snap_compare: Compare, tmp_path: Path) -> None:
    factory = RunFactory(tmp_path, now=NOW).create()
    assert snap_compare(still(factory), terminal_size=(80, 24), run_before=pressing())


def test_the_pictures_show_something():
    """A comparison of two empty files would agree for ever."""
    pictures = list((Path(__file__).parent / "__snapshots__").rglob("*.svg"))
    assert len(pictures) == 36
    assert all("<text" in picture.read_text() for picture in pictures)


@BY_SIZE
def test_worker(snap_compare: Compare, made: RunFactory, size: tuple[int, int]) -> None:
    assert snap_compare(still(made), terminal_size=size, run_before=pressing("w", "right"))


@BY_SIZE
def test_events(snap_compare: Compare, made: RunFactory, size: tuple[int, int]) -> None:
    assert snap_compare(still(made), terminal_size=size, run_before=pressing("J", "down"))


@BY_SIZE
def test_trash(snap_compare: Compare, made: RunFactory, size: tuple[int, int]) -> None:
    for names, at in ((["ckpt-100"], NOW - 7200), (["ckpt-300", "ckpt-400"], NOW - 90)):
        made.run.pin(names[0]).unlink(missing_ok=True)
        move_to_trash(made.run, names, by="ada@trainhost", now=at, update_state_file=True)
    assert snap_compare(still(made), terminal_size=size, run_before=pressing("T"))


@BY_SIZE
def test_filtered_and_sorted(
    snap_compare: Compare, made: RunFactory, size: tuple[int, int]
) -> None:
    keys = pressing("greater_than_sign", "slash", *"step>100 -400")
    assert snap_compare(still(made), terminal_size=size, run_before=keys)
