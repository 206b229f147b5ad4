"""A list of very many checkpoints: what a key costs is told by what it looks at."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import ClassVar

import msgspec
import pytest
from app_driving import StillMonitor, until
from msgspec.structs import replace
from rundir_factory import RunFactory
from textual.pilot import Pilot

from executed_lines import ExecutedLines
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.catalog.scan.lineage import current_lineage
from tfckpt_tui.app.app import TfckptApp
from tfckpt_tui.app.widgets.checkpoints.history import History
from tfckpt_tui.formats.checkpoint_filter import parse_filter
from tfckpt_tui.monitor.snapshot_reader import SnapshotReader

COUNT = 20_000

SMALL = 500

USES = 1_000
"""Comparisons and hashes of names that a key may cost: some for each visible row."""


class CountedName(str):
    """A name that counts how often it is compared with others or hashed."""

    __slots__ = ()
    uses: ClassVar[int] = 0

    def __eq__(self, other: object) -> bool:
        CountedName.uses += 1
        return str.__eq__(self, other)  # type: ignore[arg-type]

    def __hash__(self) -> int:
        CountedName.uses += 1
        return str.__hash__(self)


def many(one: Checkpoint, count: int = COUNT) -> Iterator[Checkpoint]:
    """Checkpoints like another one, newest first."""
    assert one.packed is not None
    for step in range(count, 0, -1):
        name = CountedName(f"ckpt-{step}")
        record = msgspec.structs.replace(
            one.packed, name=name, step=step, parent=f"ckpt-{step - 1}", branch=0
        )
        changes = {"name": name, "step": step, "is_head": step == count, "packed": record}
        yield msgspec.structs.replace(one, branch=0, **changes)


@asynccontextmanager
async def opened(made: RunFactory, count: int = COUNT) -> AsyncIterator[Pilot[int]]:
    snapshot = SnapshotReader(made.run).read(made.now)
    checkpoints = tuple(many(snapshot.checkpoints[0], count))
    lineage = current_lineage(checkpoints, 0)
    snapshot = replace(snapshot, checkpoints=checkpoints, lineage=lineage)
    app = TfckptApp(made.run, monitor=StillMonitor(snapshot))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.snapshot, "the snapshot")
        await pilot.pause()
        yield pilot


async def work_of(pilot: Pilot[int], key: str) -> tuple[int, int]:
    """Presses a key; returns how many lines ran, and how often names were compared or hashed."""
    CountedName.uses = 0
    with ExecutedLines() as lines:
        await pilot.press(key)
        await pilot.pause()
    return lines.count, CountedName.uses


CHEAP_KEYS = ("down", "space", "end", "up", "space", "home", "pagedown", "slash")
LINEAR_KEYS = ("M", "slash", "c", "k", "escape", "M")


async def works_of(made: RunFactory, count: int, keys: Sequence[str]) -> list[tuple[int, int]]:
    async with opened(made, count) as pilot:
        await pilot.press("M")
        return [await work_of(pilot, key) for key in keys]


async def test_keys_with_all_marked_cost_the_same_with_few_and_many(live: RunFactory) -> None:
    few = await works_of(live, SMALL, CHEAP_KEYS)
    many = await works_of(live, COUNT, CHEAP_KEYS)
    for key, (lines_few, _), (lines, uses) in zip(CHEAP_KEYS, few, many, strict=True):
        # One pass over all checkpoints would run a line for each.
        assert lines < lines_few + COUNT // 2, key
        assert uses < USES, key


async def test_keys_that_mark_or_filter_all_pass_over_them_a_few_times(live: RunFactory) -> None:
    few = await works_of(live, SMALL, LINEAR_KEYS)
    many = await works_of(live, COUNT, LINEAR_KEYS)
    for key, (lines_few, _), (lines, uses) in zip(LINEAR_KEYS, few, many, strict=True):
        assert lines < lines_few + 20 * COUNT, key
        assert uses < 3 * COUNT, key


async def test_a_cursor_key_draws_only_the_rows_that_are_visible(
    live: RunFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[int] = []
    row_line = History.row_line

    def counted(history: History, row: int, width: int):
        drawn.append(row)
        return row_line(history, row, width)

    monkeypatch.setattr(History, "row_line", counted)
    async with opened(live) as pilot:
        await pilot.press("M")
        history = pilot.app.screen.query_one(History)
        note = "".join(text for text, _ in history.note())
        assert f"{COUNT:,} marked" in note
        for key in ("down", "pagedown", "end", "space"):
            drawn.clear()
            await pilot.press(key)
            assert 0 < len(drawn) <= 3 * history.visible_rows(), key


def test_each_word_of_a_filter_looks_only_at_what_the_words_before_it_left(
    live: RunFactory,
) -> None:
    checkpoints = list(many(SnapshotReader(live.run).read(live.now).checkpoints[0]))
    wanted = parse_filter("ckpt-1999 -pinned step>19995")
    looked: list[int] = []
    counted = tuple(
        lambda row, test=test, place=place: looked.append(place) or test(row)
        for place, test in enumerate(wanted.tests)
    )
    found = replace(wanted, tests=counted).choose(checkpoints, live.now, frozenset())
    assert [checkpoint.step for checkpoint in found] == [19999, 19998, 19997, 19996]
    assert [looked.count(place) for place in range(3)] == [COUNT, 11, 11]
