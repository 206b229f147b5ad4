"""Charts: windows of an axis, labels and plots."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfckpt_tui.app.widgets.charts.axis import Window, clock_labels, pan, step_labels, zoom
from tfckpt_tui.app.widgets.charts.braille import Curve, Mark, plot

WHOLE = Window(100.0, 900.0)
MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("zoom"), st.sampled_from([0.5, 2.0])),
        st.tuples(st.just("move"), st.floats(-2, 2)),
    ),
    max_size=30,
)


@given(MOVES)
def test_a_window_stays_inside_the_axis(moves):
    window = None
    for kind, amount in moves:
        window = zoom(window, WHOLE, amount) if kind == "zoom" else pan(window, WHOLE, amount)
        if window is not None:
            assert WHOLE.low - 1e-6 <= window.low < window.high <= WHOLE.high + 1e-6
            assert 0 < window.span < WHOLE.span


def test_zooming_stays_at_the_newest_point_until_panned() -> None:
    close = zoom(None, WHOLE, 0.5)
    assert close == Window(500.0, 900.0)
    back = pan(close, WHOLE, -0.5)
    assert back == Window(300.0, 700.0)
    assert zoom(back, WHOLE, 0.5) == Window(400.0, 600.0)
    assert zoom(back, WHOLE, 2.0) is None
    assert pan(None, WHOLE, -1) is None


@given(st.floats(0, 1e9), st.floats(1, 1e9), st.integers(1, 20))
def test_step_labels_are_few_round_and_inside(low, span, most):
    labels = step_labels(low, low + span, most)
    assert len(labels) <= most + 1
    assert all(low - 1e-3 <= place <= low + span + 1e-3 for place, _ in labels)
    assert [place for place, _ in labels] == sorted({place for place, _ in labels})


@given(st.floats(1e9, 2e9), st.floats(2, 1e8), st.integers(2, 20))
def test_clock_labels_are_few_and_inside(low, span, most):
    labels = clock_labels(low, low + span, most)
    assert len(labels) <= 2 * most + 1
    assert all(low - 1 <= place <= low + span + 1 for place, _ in labels)


def test_clock_labels_are_round_times_of_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        labels = clock_labels(1_790_000_000.0, 1_790_000_000.0 + 3600, 6)
        assert {text[-2:] for _, text in labels} <= {"00", "10", "20", "30", "40", "50"}
        assert len(labels) == 6
    finally:
        monkeypatch.undo()
        time.tzset()


VALUES = st.none() | st.floats(allow_nan=True, allow_infinity=True)


@given(
    st.lists(st.tuples(st.floats(0, 1e6), VALUES), max_size=60),
    st.integers(0, 90),
    st.integers(0, 20),
    st.booleans(),
    st.booleans(),
)
def test_a_plot_has_the_requested_size_for_any_values(points, width, height, from_zero, is_cut):
    points.sort(key=lambda point: point[0])
    window = Window(10.0, 1000.0) if is_cut else None
    marks = [Mark(5.0, "◆", "good"), Mark(500.0, "↩", "accent")]
    lines = plot(
        [Curve(tuple(points), "calm")], marks, width, height, from_zero=from_zero, window=window
    )
    assert len(lines) == height
    drawn = [line.width for line in lines if line.width]
    assert all(one <= max(width, 11) for one in drawn)


def test_only_the_window_is_drawn_and_scaled() -> None:
    curve = Curve(tuple((float(x), float(x)) for x in range(1000)), "calm")
    text = "\n".join(
        "".join(span[0] for span in line.spans)
        for line in plot([curve], [], 60, 10, window=Window(200.0, 300.0))
    )
    assert "300" in text
    assert "900" not in text
