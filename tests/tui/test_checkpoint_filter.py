"""The filter language of checkpoint lists."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint, CheckpointState
from tfckpt_trainer.errors import UsageError
from tfckpt_tui.formats.checkpoint_columns import COLUMNS
from tfckpt_tui.formats.checkpoint_filter import filter_help, parse_filter

NOW = 1_000_000.0


def checkpoint(name: str = "ckpt-100", **changes: Any) -> Checkpoint:
    usual: dict[str, Any] = {
        "step": 100,
        "parent": "ckpt-50",
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
        ("parent:ckpt-50", True),
        ("parent:ckpt-60", False),
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
def test_matches_of_a_filter(text: str, holds: bool) -> None:
    assert parse_filter(text).matches(checkpoint(), NOW, {"ckpt-100"}) is holds


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("step:400", "'step' takes a comparison. Write it like this: step>=400."),
        ("age:old", "'age' takes a comparison. Write it like this: age<2h."),
        ("loss:0.5", "'loss' takes a comparison. Write it like this: loss>=0.5."),
        ("parent>3", "'parent' is text. Write it like this: parent:ckpt-300."),
        ("-why=command", "'why' is text. Write it like this: why:command."),
        ("pinned:yes", "'pinned' takes no value. Write it like this: pinned."),
        ("step>many", r"'step>many' is not a valid comparison.* step>1000"),
        ("size>1XB", r"size>1GB"),
        ("age>1y", r"age<2h"),
        ("state:fine", "'fine' is not a state. Use one of: writing, complete"),
        ("colour:red", "'colour' is not a field. Use one of: name, branch, parent, state, why"),
    ],
)
def test_invalid_words_are_explained(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_filter(text)


def test_an_unknown_parent_matches_no_text() -> None:
    assert not parse_filter("parent:none").matches(checkpoint(parent=None), NOW)


FIELDS = sorted(
    {column.key for column in COLUMNS}
    | {column.flag for column in COLUMNS if column.flag}
    | {column.text_filter.field for column in COLUMNS if column.text_filter}
    | {column.number_filter.field for column in COLUMNS if column.number_filter}
)


def test_the_help_has_a_valid_example_of_every_field() -> None:
    words = {word.rstrip(".") for word in re.findall(r"[\w-]+[<>:][\w.-]+", filter_help())}
    for word in words:
        parse_filter(word)
    for column in COLUMNS:
        for field in (column.number_filter, column.text_filter):
            assert field is None or field.example in words
        assert column.flag in filter_help()


def problem_of(word: str) -> str:
    """Returns why a word is invalid; empty if it is valid."""
    try:
        parse_filter(word)
    except UsageError as error:
        return str(error)
    return ""


@given(
    st.sampled_from(FIELDS),
    st.sampled_from([">", "<", ">=", "<=", "=", ":"]),
    st.sampled_from(["", "400", "2h", "1GB", "0.5", "verified", "x"])
    | st.text("a1:>. -é", max_size=4),
)
def test_what_an_error_says_to_write_is_a_filter(field: str, sign: str, value: str) -> None:
    problem = problem_of(f"{field}{sign}{value}")
    suggested = re.findall(r"Write it like this: (\S+)\.$", problem)
    assert suggested or "Use one of: " in problem or not problem
    for word in suggested:
        parse_filter(word)


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=40))
def test_any_text_is_a_filter_or_a_usage_error(text: str) -> None:
    try:
        wanted = parse_filter(text)
    except UsageError:
        return
    assert wanted.matches(checkpoint(step=None, metrics={}), NOW) in {True, False}
