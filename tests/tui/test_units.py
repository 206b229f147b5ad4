"""Numbers with units: short, and correct to the last digit shown."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfckpt_tui.formats import units


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 KB"),
        (1_714_000, "1.71 MB"),
        (12_340_000, "12.3 MB"),
        (999_499_999, "999 MB"),
        (999_500_000, "1.00 GB"),
        (3 * 10**15, "3.00 PB"),
        (4 * 10**18, "4000 PB"),
    ],
)
def test_sizes(count: int, text: str) -> None:
    assert units.size(count) == text


_UNITS = {"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15}


@given(st.integers(0, 10**17))
def test_a_size_is_exact_to_its_last_digit(count: int) -> None:
    number, unit = units.size(count).split(" ")
    assert float(number) * _UNITS[unit] == pytest.approx(count, rel=0.0051)
    assert len(number) <= 4


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"),
        (0.85, "850 ms"),
        (0.9996, "1.0 s"),
        (9.94, "9.9 s"),
        (12, "12 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (200, "3 min 20 s"),
        (3599.7, "1 h"),
        (3725, "1 h 2 min"),
        (86399.9, "1 d"),
        (187_200, "2 d 4 h"),
        (40_000_000, "462 d 23 h"),
        (math.inf, "unknown"),
        (math.nan, "unknown"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert units.duration(seconds) == text


_SECONDS = {"ms": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86400}


@given(st.floats(0, 1e9))
def test_a_duration_is_exact_to_its_smaller_unit(seconds: float) -> None:
    parts = re.findall(r"([\d.]+) (ms|s|min|h|d)", units.duration(seconds))
    told = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    assert told == pytest.approx(seconds, rel=0.05, abs=0.00051)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "now"),
        (0.99, "now"),
        (1, "1s"),
        (59.9, "59s"),
        (60, "1m"),
        (3599, "59m"),
        (3600, "1h"),
        (86_400, "1d"),
        (8_640_000, "100d"),
        (math.inf, "?"),
    ],
)
def test_ages_are_rounded_down(seconds: float, text: str) -> None:
    assert units.age(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "–"), (math.nan, "–"), (0.0049, "4.90 ms"), (0.118, "118 ms"), (1.25, "1.25 s")],
)
def test_step_times(seconds: float | None, text: str) -> None:
    assert units.step_time(seconds) == text


@pytest.mark.parametrize(
    ("rate", "text"),
    [(None, "–"), (math.inf, "–"), (848.2, "848/s"), (12_400, "12.4k/s"), (3.2e6, "3.20M/s")],
)
def test_rates(rate: float | None, text: str) -> None:
    assert units.rate(rate) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "NaN"),
        (math.nan, "NaN"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (0, "0.000"),
        (2.1443, "2.144"),
        (0.98765, "0.9877"),
        (-31.4159, "-31.42"),
        (99_999.4, "99999"),
        (1e-7, "1.00e-07"),
        (1e300, "1.00e+300"),
    ],
)
def test_metrics(value: float | None, text: str) -> None:
    assert units.metric(value) == text


def test_local_times_never_fail() -> None:
    assert units.local_time(0) == "1970-01-01 00:00:00"
    assert units.local_time(86_399.9, "%H:%M:%S") == "23:59:59"
    for at in (1e300, -1e300, math.inf, -math.inf, math.nan):
        assert units.local_time(at) == "unknown"


SHORT = 12
"""Columns that the narrowest place for a number has."""

SHORTENING = (
    units.size,
    units.duration,
    units.age,
    units.step_time,
    units.rate,
    units.metric,
)


@pytest.mark.parametrize("shorten", SHORTENING)
@given(number=st.floats())
def test_every_float_can_be_formatted(shorten: Callable[[float], str], number: float) -> None:
    text = shorten(number)
    assert text.strip() == text != ""
    assert text.isprintable()


@pytest.mark.parametrize("shorten", SHORTENING)
@given(number=st.floats(0, 1e9))
def test_usual_numbers_are_short(shorten: Callable[[float], str], number: float) -> None:
    assert len(shorten(number)) <= SHORT


@given(st.floats(allow_nan=False))
def test_metrics_are_short(value: float) -> None:
    assert len(units.metric(value)) <= SHORT


def test_counts_have_the_right_noun() -> None:
    assert units.count(1, "checkpoint") == "1 checkpoint"
    assert units.count(0, "checkpoint") == "0 checkpoints"
    assert units.count(12_345, "step") == "12,345 steps"
    assert units.count(1, "other entry", "other entries") == "1 other entry"
    assert units.count(2, "other entry", "other entries") == "2 other entries"


def test_processes_are_counted_by_job() -> None:
    assert units.processes({}, 3) == "3 workers"
    assert units.processes({"worker": ["a", "b"]}, 2) == "2 workers"
    cluster = {"chief": ["a"], "worker": ["b"], "ps": ["c", "d"]}
    assert units.processes(cluster, 4) == "1 worker, 2 parameter servers"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "just now"), (12, "12s ago"), (7200, "2h ago")]
)
def test_how_long_ago_something_was(seconds: float, text: str) -> None:
    assert units.ago(seconds) == text
