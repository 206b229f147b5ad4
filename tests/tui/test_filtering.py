"""The filter language and the orders of lists of checkpoints."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfckpt_trainer.catalog.scan.checkpoints import Checkpoint, CheckpointState
from tfckpt_trainer.errors import UsageError
from tfckpt_tui.formats.checkpoint_filter import parse_filter
from tfckpt_tui.formats.checkpoint_order import COLUMNS, Order, next_order

NOW = 1_000_000.0


def checkpoint(name: str = "ckpt-100", **changes: Any) -> Checkpoint:
    usual: dict[str, Any] = {
        "step": 100,
        "branch": 0,
        "state": CheckpointState.VERIFIED,
        "size": 2_000_000,
        "shards": 1,
        "saved_at": NOW - 7200,
        "trigger": "every 100 steps",
        "metrics": {"loss": 0.25, "accuracy": math.nan},
    }
    return Checkpoint(name, **{**usual, **changes})


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("", True),
        ("step>99", True),
        ("step>100", False),
        ("step>=100 step<=100 step=100", True),
        ("step>1,000", False),
        ("size>1.5MB", True),
        ("size>2MB", False),
        ("age>1h age<3h", True),
        ("age<30m", False),
        ("loss<0.5", True),
        ("loss>1e-3", True),
        ("accuracy<1", False),
        ("accuracy>=0", False),
        ("unheard>0", False),
        ("-unheard>0", True),
        ("state:verified", True),
        ("state:v", True),
        ("state:corrupt", False),
        ("-state:corrupt", True),
        ("branch:0", True),
        ("branch:1", False),
        ("name:PT-1", True),
        ("why:every", True),
        ("why:command", False),
        ("100", True),
        ("b1", False),
        ("pinned", False),
        ("-pinned", True),
        ("marked", True),
        ("restorable", True),
        ("current", False),
        ("step>", True),
        ("step>50 pinned", False),
    ],
)
def test_what_a_filter_lets_through(text: str, holds: bool) -> None:
    assert parse_filter(text).matches(checkpoint(), NOW, {"ckpt-100"}) is holds


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("step>many", r"'step>many' is not understood; .* step>1000"),
        ("size>1XB", r"size>1GB"),
        ("age>1y", r"age<2h"),
        ("state:fine", "'fine' is no state; there are writing, complete"),
        ("colour:red", "'colour' is no field; there are state, name"),
    ],
)
def test_what_makes_no_sense_is_said(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_filter(text)


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=40))
def test_any_text_is_a_filter_or_is_refused(text: str) -> None:
    try:
        wanted = parse_filter(text)
    except UsageError:
        return
    assert wanted.matches(checkpoint(step=None, metrics={}), NOW) in {True, False}


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


@given(SOME, st.sampled_from(list(COLUMNS)), st.booleans())
def test_sorted_rows_are_the_same_rows_with_what_is_unknown_last(
    rows: list[Checkpoint], column: str, descending: bool
) -> None:
    ordered = Order(column, descending).apply(rows)
    assert sorted(map(id, ordered)) == sorted(map(id, rows))
    values = [COLUMNS[column].value(row) for row in ordered]
    known = [v for v in values if v is not None and not (isinstance(v, float) and math.isnan(v))]
    assert values[: len(known)] == known
    assert known == sorted(known, reverse=descending)  # type: ignore[type-var]


def test_the_orders_come_round_to_the_history_itself() -> None:
    order = None
    seen = []
    for _ in range(len(COLUMNS) + 1):
        order = next_order(order, 1)
        seen.append(order.column if order is not None else None)
    assert seen == [*COLUMNS, None]
    back = next_order(None, -1)
    assert back is not None
    assert back.column == list(COLUMNS)[-1]
