"""A list of very many checkpoints: what a key costs is told by what it looks at."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import ClassVar

import msgspec
import pytest
from app_driving import StillMonitor, until
from rundir_factory import RunFactory
from textual.pilot import Pilot

from tfckpt_trainer.catalog.scan.checkpoints import Checkpoint
from tfckpt_tui.app.app import TfckptApp
from tfckpt_tui.app.widgets.checkpoints.history import History
from tfckpt_tui.formats.checkpoint_filter import parse_filter
from tfckpt_tui.monitor.snapshot_reader import SnapshotReader

COUNT = 500


class CountedName(str):
    """A name that counts how often it is compared with others."""

    __slots__ = ()
    compared: ClassVar[int] = 0

    def __eq__(self, other: object) -> bool:
        CountedName.compared += 1
        return str.__eq__(self, other)  # type: ignore[arg-type]

    __hash__ = str.__hash__


def many(one: Checkpoint) -> Iterator[Checkpoint]:
    """Checkpoints like another one, newest first."""
    assert one.record is not None
    for step in range(COUNT, 0, -1):
        name = CountedName(f"ckpt-{step}")
        record = msgspec.structs.replace(
            one.record, name=name, step=step, parent=f"ckpt-{step - 1}", branch=0
        )
        yield replace(one, name=name, step=step, branch=0, is_head=step == COUNT, record=record)


@asynccontextmanager
async def opened(made: RunFactory) -> AsyncIterator[Pilot[int]]:
    snapshot = SnapshotReader(made.run).read(made.now)
    snapshot = replace(snapshot, checkpoints=tuple(many(snapshot.checkpoints[0])))
    app = TfckptApp(made.run, monitor=StillMonitor(snapshot))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.snapshot, "the snapshot")
        await pilot.pause()
        yield pilot


async def test_a_key_with_all_marked_searches_no_list(live: RunFactory) -> None:
    async with opened(live) as pilot:
        for key in ("M", "down", "space", "end", "up", "space", "M"):
            CountedName.compared = 0
            await pilot.press(key)
            assert CountedName.compared < 20 * COUNT, key
        assert len(pilot.app.screen.query_one(History).marked) == COUNT


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
        for key in ("down", "pagedown", "end", "space"):
            drawn.clear()
            await pilot.press(key)
            assert 0 < len(drawn) <= 3 * history.visible_rows(), key


def test_each_word_of_a_filter_looks_only_at_what_the_words_before_it_left(
    live: RunFactory,
) -> None:
    checkpoints = list(many(SnapshotReader(live.run).read(live.now).checkpoints[0]))
    wanted = parse_filter("ckpt-49 -pinned step>495")
    looked: list[int] = []
    counted = tuple(
        lambda row, test=test, place=place: looked.append(place) or test(row)
        for place, test in enumerate(wanted.tests)
    )
    found = replace(wanted, tests=counted).choose(checkpoints, live.now, frozenset())
    assert [checkpoint.step for checkpoint in found] == [499, 498, 497, 496]
    assert [looked.count(place) for place in range(3)] == [COUNT, 11, 11]
