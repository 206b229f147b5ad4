"""Times as text: whatever number a document gives for one, it is shown."""

from __future__ import annotations

import ast
import math
from pathlib import Path
from typing import TypeGuard

from hypothesis import example, given
from hypothesis import strategies as st

import tfckpt_trainer
import tfckpt_tui
from tfckpt_trainer.words import times
from tfckpt_tui.charting.axis import clock_labels

ANY_TIME = st.one_of(st.floats(), st.integers(), st.integers(-(10**400), 10**400))

SOURCES = [
    path
    for package in (tfckpt_trainer, tfckpt_tui)
    for path in Path(*package.__path__).rglob("*.py")
    if path != Path(times.__file__)
]


@given(ANY_TIME)
@example(math.nan)
@example(math.inf)
@example(-math.inf)
@example(1e300)
@example(-1e300)
@example(1e308)
@example(10**400)
@example(1e17)
def test_whatever_number_is_a_time_is_shown(at: float) -> None:
    for text in (times.local_time(at), times.utc_time(at, times.CLOCK)):
        assert text
    assert abs(times.seconds_ahead_of_utc(at)) <= 86_400


def test_an_impossible_time_is_said_to_be_unknown() -> None:
    assert times.utc_time(0) == "1970-01-01 00:00:00"
    for at in (1e300, -1e300, math.inf, math.nan, 10**400):
        assert times.local_time(at) == times.utc_time(at) == "unknown"
        assert times.local_time(at, impossible="never") == "never"


def test_an_axis_of_impossible_times_has_labels() -> None:
    for low, high in ((1e300, 2e300), (-1e300, 1e300), (0.0, 1e300)):
        assert len(clock_labels(low, high, 5)) <= 11


def _splits_time(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and node.attr in {
        "localtime", "gmtime", "ctime", "fromtimestamp", "utcfromtimestamp",
    }  # fmt: skip


def test_no_other_module_makes_a_calendar_time_of_a_number() -> None:
    places = [
        f"{path}:{node.lineno}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if _splits_time(node)
    ]
    assert len(SOURCES) > 100
    assert places == [], "Use `local_time` or `utc_time` of words/times.py."
