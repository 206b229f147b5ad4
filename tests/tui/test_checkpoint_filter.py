"""The filter language of checkpoint lists."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfckpt_trainer.catalog.scan.checkpoints import Checkpoint, CheckpointState
from tfckpt_trainer.errors import UsageError
from tfckpt_tui.formats.checkpoint_filter import parse_filter

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
def test_matches_of_a_filter(text: str, holds: bool) -> None:
    assert parse_filter(text).matches(checkpoint(), NOW, {"ckpt-100"}) is holds


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("step>many", r"'step>many' is not a valid comparison.* step>1000"),
        ("size>1XB", r"size>1GB"),
        ("age>1y", r"age<2h"),
        ("state:fine", "'fine' is not a state. Use one of: writing, complete"),
        ("colour:red", "'colour' is not a field. Use one of: name, branch, state, why"),
    ],
)
def test_invalid_words_are_explained(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_filter(text)


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=40))
def test_any_text_is_a_filter_or_a_usage_error(text: str) -> None:
    try:
        wanted = parse_filter(text)
    except UsageError:
        return
    assert wanted.matches(checkpoint(step=None, metrics={}), NOW) in {True, False}
