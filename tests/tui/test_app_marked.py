"""Actions on several marked checkpoints."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from app_driving import opened, shown, top, until, until_shown
from msgspec.structs import replace
from rundir_factory import RunFactory, two_branches
from textual.pilot import Pilot

from command_running import Tool
from tfckpt_trainer.catalog.directory.checkpoints import CheckpointState
from tfckpt_trainer.catalog.directory.pins import pinned_names
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.records.command import CommandKind
from tfckpt_tui.app.widgets.base import table_pane
from tfckpt_tui.app.widgets.base.marks import Marks
from tfckpt_tui.app.widgets.checkpoints.history import History


def mark(pilot: Pilot[int], *names: str) -> None:
    history = pilot.app.screen.query_one(History)
    for name in names:
        history.select(name)
        history.toggle_mark()


async def lose(pilot: Pilot[int], made: RunFactory, name: str) -> None:
    """Deletes one of six checkpoints, as another program does, and waits until the app shows it."""
    for path in [*made.run.root.glob(f"{name}.*"), made.run.record(name)]:
        path.unlink()
    await until_shown(pilot, "5 checkpoints")


def test_the_marks_of_all_are_removed_only_if_all_are_marked() -> None:
    marks, names = Marks[str](str), ("a", "b", "c")
    marks.toggle_all(names[:2])
    marks.toggle_all(names)
    assert marks.among(names) == names
    marks.toggle_all(names)
    assert marks.among(names) == ()


async def test_prune_deletes_marked_checkpoints_except_required_ones(ended: RunFactory) -> None:
    async with opened(ended.run) as pilot:
        mark(pilot, "ckpt-100", "ckpt-500", "ckpt-b1-400")
        await pilot.press("p")
        await until_shown(pilot, "prune marked checkpoints")
        text = top(pilot.app)
        assert "2 checkpoints go to the trash" in text
        assert "ckpt-300" not in text.split("prune marked checkpoints")[1]
        assert "training continues from it" in text
        assert "Checkpoints take 774 B now and 516 B after this" in text
        await pilot.press("y")
        await until_shown(pilot, "2 checkpoints moved to the trash.")
        left = {path.stem for path in ended.run.root.glob("*.index")}
        assert left == {"ckpt-200", "ckpt-300", "ckpt-400", "ckpt-b1-400"}


async def test_an_undo_brings_no_mark_back(ended: RunFactory) -> None:
    async with opened(ended.run) as pilot:
        mark(pilot, "ckpt-100", "ckpt-500")
        await pilot.press("p")
        await until_shown(pilot, "2 checkpoints go to the trash")
        await pilot.press("y")
        await until_shown(pilot, "2 in the trash")
        await pilot.press("u")
        await until_shown(pilot, "undo")
        await pilot.press("y")
        await until_shown(pilot, "6 checkpoints")
        assert not pilot.app.screen_stack[0].query_one(History).marked


async def test_a_mark_goes_while_a_prune_moves_its_checkpoint(ended: RunFactory) -> None:
    """An app that reads seldom sees no moment without the checkpoint."""
    async with opened(ended.run) as pilot:
        mark(pilot, "ckpt-100", "ckpt-500")
        history, snapshot = pilot.app.screen.query_one(History), pilot.app.snapshot
        moving = [
            replace(one, state=CheckpointState.TRASHED) if one.name == "ckpt-100" else one
            for one in snapshot.checkpoints
        ]
        trash = (SimpleNamespace(names=["ckpt-100"], checkpoints=[moving[0]]),)
        history.show(replace(snapshot, checkpoints=tuple(moving), trash=trash))
        assert [one.name for one in history.marked] == ["ckpt-500"]


async def test_prune_deletes_nothing_if_all_marked_are_required(ended: RunFactory) -> None:
    async with opened(ended.run) as pilot:
        mark(pilot, "ckpt-b1-400")
        await pilot.press("p")
        await until_shown(pilot, "This checkpoint is protected.")
        await pilot.press("y", "escape")
        assert len(list(ended.run.root.glob("*.index"))) == 6


async def test_the_trainer_is_asked_to_prune_exactly_the_marked_ones(tmp_path: Path) -> None:
    made = two_branches(tmp_path / "run", live=True)
    async with opened(made.run) as pilot:
        mark(pilot, "ckpt-200", "ckpt-100")
        await pilot.press("p")
        await until_shown(pilot, "2 checkpoints go to the trash")
        await pilot.press("y")
        box = CommandQueue(made.run)
        command = await until(pilot, lambda: box.claim(time.time()), "a command")
        assert command.kind is CommandKind.PRUNE
        assert sorted(command.arguments["names"]) == ["ckpt-100", "ckpt-200"]


async def test_marked_checkpoints_are_pinned_and_unpinned_together(ended: RunFactory) -> None:
    async with opened(ended.run) as pilot:
        ended.run.pin("ckpt-100").touch()
        await until_shown(pilot, "★ 1 pinned")
        mark(pilot, "ckpt-100", "ckpt-200", "ckpt-300")
        await pilot.press("*")
        await until_shown(pilot, "★ 3 pinned")
        await until_shown(pilot, "unpin marked")
        await pilot.press("*")
        await until(pilot, lambda: not list(ended.run.pins_directory.iterdir()), "no pin is left")


async def test_all_matching_checkpoints_are_marked(ended: RunFactory) -> None:
    async with opened(ended.run) as pilot:
        await pilot.press("slash", *"branch:0 step>200", "enter", "M")
        await until_shown(pilot, "3 marked")
        await pilot.press("M")
        await until(pilot, lambda: "marked" not in shown(pilot.app), "no mark is left")
        await pilot.press("M", "escape")
        await until_shown(pilot, "6 checkpoints")
        assert "3 marked" in shown(pilot.app)
        await pilot.press("escape")
        await until(pilot, lambda: "3 marked" not in shown(pilot.app), "esc takes marks off")


async def test_marked_checkpoints_are_verified_in_turn(tmp_path: Path) -> None:
    foreign = RunFactory(tmp_path)
    for step in (10, 20, 30):
        foreign.checkpoint(step, recorded=False, seconds_ago=600 - step)
    async with opened(foreign.run) as pilot:
        mark(pilot, "ckpt-10", "ckpt-30")
        await until_shown(pilot, "verify marked")
        await pilot.press("v")

        def verified() -> set[str]:
            snapshot = pilot.app.snapshot  # type: ignore[attr-defined]
            return {c.name for c in snapshot.checkpoints if c.state == "verified"}

        await until(pilot, lambda: verified() == {"ckpt-10", "ckpt-30"}, "both are verified")


async def test_paths_and_rows_of_marked_checkpoints_are_copied(ended: RunFactory) -> None:
    async with opened(ended.run) as pilot:
        mark(pilot, "ckpt-100", "ckpt-300")
        await pilot.press("y")
        root = ended.run.root
        assert pilot.app.clipboard == f"{root / 'ckpt-100'}\n{root / 'ckpt-300'}"
        await until_shown(pilot, "and 1 more")
        await pilot.press("Y")
        rows = [row.split("\t") for row in pilot.app.clipboard.split("\n")]
        assert [(row[0], row[1], row[3]) for row in rows] == [
            ("ckpt-100", "100", "verified"),
            ("ckpt-300", "300", "verified"),
        ]


async def test_actions_on_one_checkpoint_explain_that_the_filter_shows_none(
    ended: RunFactory,
) -> None:
    async with opened(ended.run) as pilot:
        mark(pilot, "ckpt-100")
        await pilot.press("slash", *"name:nothing", "enter", "enter")
        await until_shown(pilot, "No checkpoint matches the filter. Press esc")
        assert len(pilot.app.screen_stack) == 1


async def test_numbers_without_room_are_cut_and_not_left_out(ended: RunFactory) -> None:
    async with opened(ended.run, size=(80, 24)) as pilot:
        mark(pilot, "ckpt-100", "ckpt-500")
        await pilot.press("slash", *"step>50 step<650 state:verified", "enter")
        await until_shown(pilot, "checkpoints match step>50 step<650")
        (heading,) = [row for row in top(pilot.app).splitlines() if "checkpoints match" in row]
        assert "… ──" in heading


async def test_no_key_acts_on_a_neighbour_of_what_was_marked_and_is_gone(ended: RunFactory) -> None:
    async with opened(ended.run) as pilot:
        history = pilot.app.screen.query_one(History)
        mark(pilot, "ckpt-100")
        history.select("ckpt-500")
        await lose(pilot, ended, "ckpt-100")
        for key in ("asterisk", "v", "p"):
            await pilot.press(key)
            await until_shown(pilot, "The marked checkpoints are gone: esc unmarks.")
            assert len(pilot.app.screen_stack) == 1
            pilot.app.clear_notifications()
        assert not list(ended.run.pins_directory.iterdir())
        await pilot.press("escape", "asterisk")
        await until(pilot, lambda: pinned_names(ended.run) == {"ckpt-500"}, "it is pinned")


async def test_a_key_for_what_has_just_gone_acts_on_no_other(
    ended: RunFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_pane, "REACTION_SECONDS", float("inf"))
    async with opened(ended.run) as pilot:
        history = pilot.app.screen.query_one(History)
        history.select("ckpt-300")
        await lose(pilot, ended, "ckpt-300")
        await pilot.press("asterisk")
        await until_shown(pilot, "ckpt-300 has just gone.")
        assert not list(ended.run.pins_directory.iterdir())
        neighbour = history.selected
        await pilot.press("asterisk")
        assert neighbour is not None
        await until(pilot, lambda: pinned_names(ended.run) == {neighbour.name}, "it is pinned")


@pytest.mark.parametrize("seconds", [0.0, float("inf")])
async def test_a_row_that_the_user_moved_to_is_meant(
    ended: RunFactory, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr(table_pane, "REACTION_SECONDS", seconds)
    async with opened(ended.run) as pilot:
        history = pilot.app.screen.query_one(History)
        history.select("ckpt-300")
        await lose(pilot, ended, "ckpt-300")
        if seconds:
            history.select("ckpt-500")
        meant = history.selected
        assert meant is not None
        await pilot.press("asterisk")
        await until(pilot, lambda: pinned_names(ended.run) == {meant.name}, "it is pinned")


async def test_a_prune_of_marked_ones_that_have_just_gone_prunes_no_others(
    ended: RunFactory, tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_pane, "REACTION_SECONDS", float("inf"))
    async with opened(ended.run) as pilot:
        history = pilot.app.screen.query_one(History)
        mark(pilot, "ckpt-100")
        assert tool("prune", ended.run.root, "ckpt-100", "--yes").code == 0
        await until(pilot, lambda: history.row_count() == 5, "one less")
        assert not history.marked
        await pilot.press("p")
        await until_shown(pilot, "has just gone")
        assert len(pilot.app.screen_stack) == 1
        await pilot.press("p")
        await until(pilot, lambda: len(pilot.app.screen_stack) == 2, "the rules")
