"""Charts: windows of an axis, labels and plots."""

from __future__ import annotations

import math
import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rundir_factory import two_branches

from tfckpt_tui.app.widgets.charts.braille import Mark, plot
from tfckpt_tui.charting.axis import Window, clock_labels, pan, step_labels, zoom
from tfckpt_tui.charting.curves import Curve
from tfckpt_tui.charting.quantities import STEP_TIME
from tfckpt_tui.charting.series import STEP
from tfckpt_tui.charting.value_axis import fit_axis
from tfckpt_tui.monitor.snapshot_reader import SnapshotReader
from tfckpt_tui.monitor.worker_history import WorkerHistory

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


def test_step_labels_are_at_all_round_steps() -> None:
    assert step_labels(100.0, 900.0, 4) == [
        (200.0, "200"),
        (400.0, "400"),
        (600.0, "600"),
        (800.0, "800"),
    ]
    assert step_labels(0.0, 2000.0, 2) == [(0.0, "0"), (1000.0, "1,000"), (2000.0, "2,000")]


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
    drawing = plot(
        [Curve(tuple(points), "calm")], marks, width, height, from_zero=from_zero, window=window
    )
    lines = drawing.lines()
    assert len(lines) == height
    drawn = [line.width for line in lines if line.width]
    assert all(one <= max(width, 11) for one in drawn)


@pytest.mark.parametrize(("first", "glyph"), [(90.0, "▲ 90.00"), (-90.0, "▼ -90.00")])
def test_a_first_value_far_from_the_others_is_cut_off_and_told(first: float, glyph: str) -> None:
    rest = [(float(x), 2.0 + math.sin(x / 10)) for x in range(1, 200)]
    text = drawn([(0.0, first), *rest])
    assert glyph in text
    assert "90" not in text.replace(glyph, "")
    lines_used = sum(any("\u2800" < one < "\u2900" for one in row) for row in text.splitlines())
    assert lines_used > 4, "the others have the height of the chart"


def test_nothing_is_cut_off_where_many_values_are_far() -> None:
    text = drawn([(float(x), 100.0 * (x % 3)) for x in range(200)])
    assert not {"▲", "▼"} & set(text)


def test_a_worker_that_started_again_has_no_point_before_its_first_step(tmp_path: Path) -> None:
    made = two_branches(tmp_path / "run")
    history = WorkerHistory()
    reader = SnapshotReader(made.run)
    for second, (pid, step, step_seconds) in enumerate(
        [(1, 300, 0.1), (1, 310, 0.1), (2, 0, None), (2, 0, None), (2, 219, None), (2, 220, 0.1)]
    ):
        at = made.now + second
        made.worker(0, pid=pid, step=step, step_seconds=step_seconds, updated_at=at)
        history.add(reader.read(at))
    steps = [list(one.column(STEP)) for one in history.samples(0).segments(STEP_TIME)]
    assert steps == [[300, 310], [220]]


def test_what_a_worker_measured_is_drawn_at_its_step_then(tmp_path: Path) -> None:
    made = two_branches(tmp_path / "run")
    told = {"step": 400, "updated_at": made.now + 60, "measured_at": made.now, "measured_step": 350}
    made.worker(0, step_seconds=0.1, **told)
    history = WorkerHistory()
    history.add(SnapshotReader(made.run).read(made.now + 60))
    assert [list(one.column(STEP)) for one in history.samples(0).segments(STEP_TIME)] == [[350]]


def drawn(points: list[tuple[float, float | None]]) -> str:
    return "\n".join(
        "".join(span[0] for span in line.spans)
        for line in plot([Curve(tuple(points), "calm")], [], 60, 10).lines()
    )


def test_only_the_window_is_drawn_and_scaled() -> None:
    curve = Curve(tuple((float(x), float(x)) for x in range(1000)), "calm")
    text = "\n".join(
        "".join(span[0] for span in line.spans)
        for line in plot([curve], [], 60, 10, window=Window(200.0, 300.0)).lines()
    )
    assert "300" in text
    assert "900" not in text


EDGES = st.floats(-1e9, 1e9) | st.floats(-1, 1) | st.just(0.0)
SPANS = st.floats(1e-3, 1e9) | st.sampled_from([1.0, 848.0, 1032.4, 0.118])


@given(EDGES, SPANS, st.integers(2, 60))
@example(low=0.001953125, span=0.1171875, rows=12)
def test_labels_of_values_are_evenly_spaced_at_every_height(low, span, rows):
    high = low + span
    axis = fit_axis(low, high, rows)
    assert axis.low <= low + span * 1e-6
    assert axis.high >= high - span * 1e-6
    assert axis.high - axis.low <= 1.61 * span + 1e-6, "the curves fill most of the height"
    lines = sorted(axis.labels)
    assert len(lines) >= 2
    assert lines[0] >= 0
    assert lines[-1] < rows
    assert len({after - before for before, after in pairwise(lines)}) == 1
    texts = [axis.labels[row] for row in lines]
    assert len(set(texts)) == len(texts)
    numbers = [number_in(text) for text in texts]
    steps = [before - after for before, after in pairwise(numbers)]
    assert steps == [pytest.approx(steps[0], rel=1e-6, abs=abs(low) * 1e-14)] * len(steps)
    assert steps[0] > 0
    if span > abs(low) * 1e-6:
        # Up to 12 lines, no round step may leave room for a third label.
        assert len(lines) >= (3 if rows > 12 else 2)


@given(st.floats(0, 1e9), st.floats(0.001, 1e6), st.integers(2, 60))
def test_a_label_is_on_the_line_of_its_value(low, span, rows):
    axis = fit_axis(low, low + span, rows)
    dot = (axis.high - axis.low) / (4 * rows - 1)
    for row, text in axis.labels.items():
        place = (number_in(text) - axis.low) / dot
        off = 0.5 + low * 1e-9 / dot + (span / 10 / dot if len(axis.labels) == 2 else 0)
        assert 4 * (rows - 1 - row) - off <= place <= 4 * (rows - row) - 1 + off


def number_in(text: str) -> float:
    factors = {"k": 1e3, "M": 1e6, "G": 1e9}
    return float(text.rstrip("kMG")) * factors.get(text[-1], 1.0)


@given(st.integers(0, 10**9), st.integers(20, 10**8), st.integers(24, 220))
def test_labels_of_steps_are_evenly_spaced_at_every_width(low, span, width):
    curve = Curve(((float(low), 0.0), (float(low + span), 1.0)), "calm")
    text = plot([curve], [], width, 10).labels.text
    steps = [int(word.replace(",", "")) for word in text.split()]
    assert len({after - before for before, after in pairwise(steps)}) <= 1
    assert steps == sorted(set(steps))
    assert steps or width < 60


@pytest.mark.parametrize("height", range(3, 49))
def test_a_throughput_from_zero_is_labelled_from_zero(height):
    curve = Curve(tuple((float(x), 900.0 + x % 130) for x in range(200)), "calm")
    lines = plot([curve], [], 80, height, from_zero=True).lines()
    labels = {
        row: line.text.split("┤")[0].strip() for row, line in enumerate(lines) if "┤" in line.text
    }
    if len(labels) > 1:
        assert labels[height - 3] == "0"
    assert len({after - before for before, after in pairwise(labels)}) <= 1
