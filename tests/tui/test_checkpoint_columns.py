"""The columns of checkpoint lists, and all that is made from their one declaration."""

from __future__ import annotations

import json
import math
import shlex
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from app_driving import POLL, opened, shown, top, until, until_jobs_are_shown, until_shown
from hypothesis import given
from hypothesis import strategies as st
from rundir_factory import RunFactory
from textual.pilot import Pilot

from command_running import Tool
from documentation import extension
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint, CheckpointState
from tfckpt_trainer.rundir.paths import is_plain_name
from tfckpt_tui.app.actions.table import DEFAULT_KEYS
from tfckpt_tui.app.app import TfckptApp
from tfckpt_tui.app.widgets.checkpoints.history import History
from tfckpt_tui.cli.main import run
from tfckpt_tui.formats import checkpoint_columns
from tfckpt_tui.formats.checkpoint_columns import (
    CheckpointColumn,
    checkpoint_path,
    copied_row,
    optional_columns,
    sort_orders,
)
from tfckpt_tui.formats.checkpoint_filter import parse_filter
from tfckpt_tui.formats.sort_order import Order
from tfckpt_tui.settings.config import AppSection, Config, read_config

ROOT = Path("/data/runs")
NOW = 1_790_000_000.0


def checkpoint(name: str = "ckpt-b1-400", **changes: Any) -> Checkpoint:
    fields: dict[str, Any] = {
        "name": name,
        "step": 400,
        "branch": 1,
        "state": CheckpointState.VERIFIED,
        "size": 1234,
        "shards": 1,
        "saved_at": NOW,
        "trigger": "every 50 steps",
        "metrics": {"loss": 2.5, "accuracy": None},
    }
    return Checkpoint(**{**fields, **changes})


EPOCH: CheckpointColumn = extension("column")


@pytest.fixture
def with_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    # Its record has the columns at the import. Later tests need it without this one.
    import_module("tfckpt_tui.reports.listing")
    monkeypatch.setattr(checkpoint_columns, "COLUMNS", (*checkpoint_columns.COLUMNS, EPOCH))


@pytest.mark.usefixtures("with_epoch")
def test_a_new_column_is_in_the_commands(
    ended: RunFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    tool = Tool(capsys)
    lines = tool("ls", ended.run.root).data.splitlines()
    assert lines[0].split()[-1] == "EPOCH"
    assert lines[1].split()[-1] == "8"
    # Not by `tool`: the record that it knows has the columns at the import.
    assert run(["ls", str(ended.run.root), "--json", "--filter", "epoch>2 epoch<=8 -epoch:4"]) == 0
    chosen = json.loads(capsys.readouterr().out)
    assert [one["epoch"] for one in chosen["checkpoints"]] == [8, 8, 6]


def headings(pilot: Pilot[int]) -> str:
    """The headings of the history."""
    return next(row for row in top(pilot.app).splitlines() if " checkpoint " in row)


@pytest.fixture
def metered(ended: RunFactory) -> RunFactory:
    """A run of two branches with two metrics; all its checkpoints have one shard and one size."""
    for step in (450, 500, 550):
        metrics: dict[str, float | None] = {"loss": 1.0 / step, "validation_loss": 2.0 / step}
        ended.checkpoint(step, 1, metrics=metrics, duration=step / 1000)
    return ended


@pytest.mark.parametrize(
    ("size", "columns"),
    [
        ((200, 50), {"branch", "loss", "other metrics", "why saved"}),
        ((120, 40), {"branch", "loss", "other metrics", "why saved"}),
        ((80, 24), {"branch", "loss", "took"}),
    ],
)
async def test_columns_that_differ_come_first(
    metered: RunFactory, size: tuple[int, int], columns: set[str]
) -> None:
    async with opened(metered.run, size=size) as pilot:
        titles = {title for title in optional_columns().values() if title in headings(pilot)}
        assert titles >= columns
        # All have one size.
        assert "size" not in titles or size[0] > 80


async def test_columns_are_chosen_by_a_key_and_kept(metered: RunFactory) -> None:
    async with opened(metered.run, size=(80, 24)) as pilot:
        assert "shards" not in headings(pilot)
        assert "branch" in headings(pilot)
        await pilot.press("C")
        await until_shown(pilot, "column: shards")
        assert "polling" not in shown(pilot.app)
        assert "key:" not in shown(pilot.app)
        await pilot.press("left", *["down"] * 3, "right", "escape")
        await until(pilot, lambda: "shards" in headings(pilot), "a column that is always shown")
        assert "branch" in headings(pilot)
        await until_jobs_are_shown(pilot)
    assert read_config(DEFAULT_KEYS).app.columns == {"step": False, "shards": True}


async def test_the_column_of_the_order_is_shown_even_if_it_is_to_be_hidden(
    metered: RunFactory,
) -> None:
    config = Config(app=AppSection(columns={"step": False}))
    app = TfckptApp(metered.run, poll=POLL, config=config)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: " checkpoint " in top(app), "the list")
        assert " step " not in headings(pilot)
        await pilot.press("greater_than_sign")
        await until(pilot, lambda: "step ▼" in headings(pilot), "the column of the order")
        await pilot.press("less_than_sign")
        await until(pilot, lambda: " step " not in headings(pilot), "it is hidden again")


@pytest.mark.usefixtures("with_epoch")
async def test_a_new_column_is_in_the_app(ended: RunFactory) -> None:
    async with opened(ended.run, size=(160, 40)) as pilot:
        await until_shown(pilot, "epoch")
        history = pilot.app.screen.query_one(History)
        assert history.selected is not None
        assert history.selected.name == "ckpt-b1-400"
        await pilot.press("greater_than_sign")
        await until_shown(pilot, "epoch ▲")
        await pilot.press("home")
        assert history.selected.name == "ckpt-100"
        await pilot.press("slash", *"epoch>=10", "enter")
        await until_shown(pilot, "1 of 6")
        await pilot.press("Y")
        await until(pilot, lambda: "epoch 10" in pilot.app.clipboard, shown(pilot.app))


async def test_a_new_column_may_come_first(
    ended: RunFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_module("tfckpt_tui.reports.listing")
    monkeypatch.setattr(checkpoint_columns, "COLUMNS", (EPOCH, *checkpoint_columns.COLUMNS))
    ended.checkpoint(450, 1, name=(name := "a-name-longer-than-a-quarter-of-the-list"))
    async with opened(ended.run, size=(130, 40)) as pilot:
        await until_shown(pilot, name)
        assert headings(pilot).index("epoch") < headings(pilot).index("checkpoint")


def test_keys_and_fields_of_columns_are_unique() -> None:
    columns = checkpoint_columns.COLUMNS
    for names in (
        [column.key for column in columns],
        [column.json.name for column in columns if column.json],
        [column.ls for column in columns if column.ls],
        [column.flag for column in columns if column.flag],
        [column.number_filter.field for column in columns if column.number_filter],
        [column.text_filter.field for column in columns if column.text_filter],
    ):
        assert len(set(names)) == len(names)


def test_a_plain_path_is_copied_as_it_is() -> None:
    assert checkpoint_path(ROOT, checkpoint()) == "/data/runs/ckpt-b1-400"


@given(st.text(st.characters(exclude_characters="\0/"), min_size=1).filter(is_plain_name))
def test_a_shell_takes_a_path_for_one_word(name: str) -> None:
    assert shlex.split(checkpoint_path(ROOT, checkpoint(name))) == [f"/data/runs/{name}"]


def test_a_copied_row_has_all_that_is_known() -> None:
    assert copied_row(ROOT, checkpoint()).split("\t") == [
        *("ckpt-b1-400", "400", "1", "verified", "2026-09-21T14:13:20+00:00", "1234"),
        *("accuracy=None loss=2.5", "every 50 steps", "/data/runs/ckpt-b1-400"),
    ]


@given(st.text(), st.text(), st.floats())
def test_a_copied_row_is_one_line(trigger: str, metric: str, saved_at: float) -> None:
    row = copied_row(ROOT, checkpoint(trigger=trigger, metrics={metric: 1.0}, saved_at=saved_at))
    copied = [column for column in checkpoint_columns.COLUMNS if column.copied is not None]
    assert len(row.split("\t")) == len(copied)
    assert len(row.splitlines()) == 1


SOME = st.lists(
    st.builds(
        checkpoint,
        name=st.text("abc", min_size=1, max_size=3),
        step=st.none() | st.integers(0, 9),
        size=st.integers(0, 5),
        metrics=st.sampled_from([{}, {"loss": 1.0}, {"loss": 0.5}, {"loss": math.nan}]),
    ),
    max_size=8,
)


@given(SOME, st.sampled_from(list(sort_orders().columns)), st.booleans())
def test_sorting_keeps_all_rows_and_puts_unknown_values_last(
    rows: list[Checkpoint], column: str, descending: bool
) -> None:
    ordered = sort_orders().apply(Order(column, descending), rows)
    assert sorted(map(id, ordered)) == sorted(map(id, rows))
    values = [sort_orders().columns[column].key(row) for row in ordered]
    known = [value for value in values if value is not None]
    assert values[: len(known)] == known
    assert known == sorted(known, reverse=descending)  # type: ignore[type-var]


def test_sort_orders_come_round_to_the_order_of_the_history() -> None:
    order = None
    seen = []
    for _ in range(len(sort_orders().columns) + 1):
        order = sort_orders().next(order, 1)
        seen.append(order.column if order is not None else None)
    names = list(sort_orders().columns)
    assert names[:4] == ["step", "age", "size", "loss"]
    assert seen == [*names, None]
    back = sort_orders().next(None, -1)
    assert back is not None
    assert back.column == names[-1]


def test_filters_match_columns_that_the_history_does_not_show() -> None:
    row = checkpoint(pinned=True)
    assert parse_filter("pinned").matches(row, NOW)
    assert not parse_filter("current").matches(row, NOW)
