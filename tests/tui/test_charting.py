"""The model of charts: curves, smoothing, values at a position; no terminal."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tfckpt_trainer.rundir.records.event import EventEntry, EventKind, SeriesPoint
from tfckpt_tui.app.widgets.charts.braille import Mark, plot
from tfckpt_tui.charting.axis import Window
from tfckpt_tui.charting.choices import ChartChoices, Compared, kept_choices
from tfckpt_tui.charting.curves import Across, Curve, possible_axes, thin
from tfckpt_tui.charting.distributions import Distribution, shades_of
from tfckpt_tui.charting.grid import (
    GridSize,
    is_incomplete,
    matches,
    next_grid,
    tiles_of,
    usual_grid,
)
from tfckpt_tui.charting.measurements import THROUGHPUT, measurements, metric
from tfckpt_tui.charting.series import STEP, WEIGHTS, Series
from tfckpt_tui.charting.value_axis import fit_log_axis
from tfckpt_tui.charting.view import (
    REFERENCE_STYLE,
    RunSeries,
    View,
    curves_in,
    marked_events,
    moved,
    places_of,
    smoothed_curves,
    snapped,
    values_at,
)

LOSS = metric("loss")


def point(step: int, loss: float | None, branch: int = 0, at: float = 0.0, **more: float):
    return SeriesPoint(
        at=at or float(step), step=step, branch=branch, metrics={"loss": loss, **more}
    )


def style(branch: int, past: bool) -> str:
    return f"{branch}{'-past' if past else ''}"


def run_of(*points: SeriesPoint, **kept: float) -> RunSeries:
    kept_until = {int(name[1:]): step for name, step in kept.items()}
    return RunSeries(Series(points).samples, kept_until)


BACK = run_of(
    *(point(step, step / 10) for step in (0, 10, 20, 30)),
    *(point(step, step / 5, branch=1) for step in (20, 30, 40)),
    b0=10,
    b1=math.inf,
)
"""Went back from step 30 to step 10, and trains on branch 1."""


def drawn(view: View, series: RunSeries = BACK, *more, reference: RunSeries | None = None):
    return smoothed_curves(curves_in(view, series, (LOSS, *more), style, reference))


def test_the_past_is_drawn_under_the_present_and_begins_where_it_was_left():
    assert [(c.style, [x for x, _ in c.points], c.is_past) for c in drawn(View())] == [
        ("0-past", [10, 20, 30], True),
        ("0", [0, 10], False),
        ("1", [20, 30, 40], False),
    ]


def test_no_line_goes_back_where_a_worker_repeats_steps():
    steps = (0, 10, 20, 30, 20, 30, 40, 10, 20)
    series = run_of(*(point(step, 1.0) for step in steps), b0=math.inf)
    assert [([x for x, _ in c.points], c.is_past, c.label) for c in drawn(View(), series)] == [
        ([0, 10, 20, 30], True, ""),
        ([20, 30, 40], True, ""),
        ([0, 10, 20], False, ""),
    ]
    assert [[x for x, _ in c.points] for c in drawn(View(), series.present())] == [[0, 10, 20]]


def test_no_line_goes_back_where_the_clock_does():
    points = [point(step, 1.0, at=at) for step, at in ((0, 100), (10, 110), (20, 50), (30, 60))]
    curves = drawn(View(across=Across.TIME), run_of(*points, b0=math.inf))
    assert [[x for x, _ in c.points] for c in curves] == [[100, 110], [50, 60]]


def test_epochs_are_an_axis_only_where_the_run_or_the_script_tells_them():
    with_epochs = [point(step, 1.0, epoch=step / 10) for step in (0, 10, 20)]
    assert Across.EPOCHS not in possible_axes(BACK.samples, None)
    assert possible_axes(BACK.samples, 10) == [*Across]
    assert possible_axes(Series(with_epochs).samples, None) == [*Across]
    (curve,) = drawn(View(across=Across.EPOCHS), run_of(*with_epochs, b0=math.inf))
    assert [x for x, _ in curve.points] == [0, 1, 2]


def test_two_runs_are_compared_by_their_own_epochs():
    view = View(across=Across.EPOCHS, epoch_steps=10)
    run = run_of(*(point(step, 1.0) for step in (0, 10, 20)), b0=math.inf)
    other = replace(
        run_of(*(point(step, 3.0) for step in (0, 5, 10)), b0=math.inf), name="other", epoch_steps=5
    )
    curves = curves_in(view, run, (LOSS,), lambda branch, past: "", other)
    assert [[x for x, _ in curve.points] for curve in curves] == [[0, 1, 2], [0, 1, 2]]


def test_smoothing_is_the_debiased_average_of_tensorboard():
    series = run_of(*(point(x, y) for x, y in enumerate((4.0, 8.0, None, 2.0))), b0=math.inf)
    (curve,) = curves_in(View(smoothing=0.6), series, (LOSS,), style)
    first, second, gap, last = (y for _, y in curve.smoothed)
    assert first == 4.0, "the first value is itself: the average began at 0, but does not show it"
    assert second == pytest.approx((4 * 0.24 + 8 * 0.4) / 0.64)
    assert gap is None
    assert last == pytest.approx((4 * 0.144 + 8 * 0.24 + 2 * 0.4) / 0.784)
    assert not curves_in(View(), series, (LOSS,), style)[0].smoothed


def test_the_average_of_a_constant_is_the_constant():
    series = run_of(*(point(step, 1e-4) for step in range(5000)), b0=math.inf)
    for weight in WEIGHTS:
        assert {y for c in drawn(View(smoothing=weight), series) for _, y in c.points} == {1e-4}


@given(
    st.lists(st.none() | st.floats(-1e300, 1e300), min_size=1, max_size=50),
    st.sampled_from(WEIGHTS[1:]),
)
def test_a_smoothed_curve_stays_between_its_values(values, weight):
    series = run_of(*(point(x, y) for x, y in enumerate(values)), b0=math.inf)
    (curve,) = curves_in(View(smoothing=weight), series, (LOSS,), style)
    seen = [y for y in values if y is not None]
    for (x, y), (was_x, was) in zip(curve.smoothed, curve.points, strict=True):
        assert x == was_x
        assert (y is None) == (was is None)
        if y is not None:
            air = 1e-6 * max(map(abs, seen))
            assert min(seen) - air <= y <= max(seen) + air


def test_the_values_lie_dimly_under_the_smoothed_curve():
    styles = [(c.style, c.label) for c in drawn(View(smoothing=0.9))]
    assert styles == [
        ("0-past", "raw"),
        ("1-past", "raw"),
        ("0-past", "branch 0"),
        ("0", ""),
        ("1", ""),
    ]


def test_a_hidden_branch_is_not_drawn():
    assert {c.style for c in drawn(View(hidden=frozenset({0})))} == {"1"}


def test_each_of_several_measurements_has_a_colour_and_a_name():
    accuracy = metric("accuracy")
    points = [point(step, 1.0, accuracy=0.5) for step in (0, 10)]
    curves = drawn(View(), run_of(*points, b0=math.inf), accuracy)
    assert [(c.style, c.label) for c in curves] == [("0", "loss"), ("1", "accuracy")]


def test_a_reference_is_drawn_first_and_smoothed_alike():
    other = replace(run_of(*(point(step, 3.0) for step in (0, 50)), b0=math.inf), name="yesterday")
    first = drawn(View(smoothing=0.6), reference=other)[0]
    assert (first.style, first.label) == (REFERENCE_STYLE, "yesterday")


def test_the_present_part_of_a_run_is_what_led_to_its_model():
    segments = BACK.present().samples.segments("loss")
    assert [(one.branch, step) for one in segments for step in one.column(STEP)] == [
        *((0, 0), (0, 10), (1, 20), (1, 30), (1, 40)),
    ]


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (15, [("", 1.0), ("branch 0", 1.0)]),
        (25, [("", 4.0), ("branch 0", 2.0)]),
        (35, [("", 6.0)]),
        (99, [("", 8.0)]),
        (-1, []),
    ],
)
def test_the_value_at_a_position_is_the_nearest_before_it(x: float, expected: Sequence[object]):
    assert [(v.label, v.value) for v in values_at(drawn(View()), x)] == expected


def test_a_window_cuts_lines_at_its_edges():
    curve = Curve(((0, 0.0), (10, 10.0), (20, None), (30, 0.0)), "")
    assert curve.within(Window(2, 8)).points == ((2, 2.0), (8, 8.0))
    assert curve.within(Window(5, 15)).points == ((5, 5.0), (10, 10.0))
    assert curve.within(Window(15, 25)).points == ((20, None),)
    assert curve.within(Window(40, 50)).points == ()


POINTS = st.lists(st.tuples(st.floats(0, 1000), st.none() | st.floats(-9, 9)), max_size=300)


@given(POINTS.map(lambda points: sorted(points, key=lambda p: p[0])), st.integers(1, 40))
def test_thinning_keeps_ends_extremes_and_order(points, columns):
    kept = thin(points, columns, lambda x: int(x) * columns // 1001)
    assert kept == [p for p in points if p in kept] or len(set(points)) < len(points)
    assert [x for x, _ in kept] == sorted(x for x, _ in kept)
    values = [y for _, y in points if y is not None]
    seen = [y for _, y in kept if y is not None]
    if values:
        assert (min(seen), max(seen)) == (min(values), max(values))
    assert len(kept) <= max(2 * columns, 7 * columns)
    assert any(y is None for _, y in points) == any(y is None for _, y in kept)


def test_all_metrics_come_before_throughput():
    points = [point(0, 1.0, b=1.0, a=1.0)]
    assert [one.name for one in measurements(Series(points).samples.metrics)] == [
        *("loss", "a", "b", "throughput", "step time"),
    ]
    assert THROUGHPUT.from_zero


def test_marks_are_in_order_and_restarts_without_a_step_have_a_time():
    entries = [
        EventEntry(at=30.0, kind=EventKind.RESTART, message=""),
        EventEntry(at=20.0, kind=EventKind.SAVE, message="", step=200),
        EventEntry(at=10.0, kind=EventKind.NOTE, message="", step=100),
        EventEntry(at=5.0, kind=EventKind.RESTORE, message="", step=50),
    ]
    assert [x for x, _ in marked_events(entries, View())] == [50, 200]
    assert [x for x, _ in marked_events(entries, View(across=Across.TIME))] == [5, 20, 30]
    assert [x for x, _ in marked_events(entries, View(window=Window(0, 100)))] == [50]
    epochs = View(across=Across.EPOCHS, epoch_steps=100)
    assert [x for x, _ in marked_events(entries, epochs)] == [0.5, 2]


def lines(points: Sequence[tuple[float, float | None]], **options) -> str:
    drawing = plot([Curve(tuple(points), "calm")], [Mark(0, "◆", "good")], 60, 10, **options)
    return "\n".join(line.text for line in drawing.lines())


def test_values_cut_off_beside_each_other_leave_no_loose_dots():
    steep = [(float(x), 1000.0 / (x + 1) ** 2) for x in range(200)]
    text = lines(steep)
    assert "▲" in text
    assert "•" not in text, "a line that leaves the chart ends at its edge"


def test_a_steep_part_is_a_line_in_every_row():
    text = lines([(0.0, 0.0), (50.0, 0.0), (51.0, 100.0), (100.0, 100.0)])
    has_dots = [any("\u2800" < one < "\u2900" for one in row) for row in text.splitlines()]
    assert has_dots[has_dots.index(True) :].index(False) >= 5, "no row between is empty"


def test_a_logarithmic_axis_labels_decades_and_tells_of_values_up_to_zero():
    text = lines([(float(x), 10.0 ** (x / 20 - 2)) for x in range(100)] + [(101.0, 0.0)],
                 logarithmic=True)  # fmt: skip
    assert {"0.01", "1", "100"} <= set(text.replace("┤", " ").split())
    assert "▼ 1 value ≤ 0" in text
    assert "no values above 0" in lines([(0.0, -1.0), (1.0, 0.0)], logarithmic=True)


@given(st.floats(-300, 300), st.floats(0.001, 600), st.integers(1, 60))
def test_a_logarithmic_axis_has_labels_inside_of_it(low, decades, rows):
    axis = fit_log_axis(low, min(low + decades, 308.0), rows)
    assert axis.labels
    assert all(0 <= row < rows for row in axis.labels)


def test_outliers_are_shown_on_request():
    values = [(float(x), 1.0 + x % 2) for x in range(100)] + [(100.0, 500.0)]
    assert "▲ 500" in lines(values)
    assert "▲" not in lines(values, clips_outliers=False)


def test_a_cursor_and_a_selection_lie_over_the_plot():
    drawing = plot([Curve(((0.0, 1.0), (100.0, 2.0)), "calm")], [], 60, 10)
    column = drawing.column_of(50.0)
    assert column is not None
    row = drawing.lines(50.0)[0].text
    assert row[drawing.left + column] == "│"
    x = drawing.x_at(drawing.left + column)
    assert x == pytest.approx(50.0, abs=2)
    assert drawing.x_at(0) is None
    assert "━━━" in drawing.lines(None, (80.0, 20.0))[-2].text
    assert [line.width for line in drawing.lines(50.0, (20.0, 60.0))] == [
        line.width for line in drawing.lines()
    ]


@pytest.mark.parametrize(
    ("charts", "width", "height", "expected"),
    [
        (100, 80, 22, GridSize(1, 1)),
        (100, 120, 38, GridSize(2, 2)),
        (100, 200, 48, GridSize(3, 3)),
        (3, 200, 48, GridSize(1, 3)),
        (4, 200, 48, GridSize(2, 2)),
        (0, 20, 3, GridSize(1, 1)),
    ],
)
def test_a_grid_has_room_for_the_charts_and_not_much_more(charts, width, height, expected):
    assert usual_grid(charts, width, height) == expected


def test_the_next_grid_is_larger_until_nothing_more_fits():
    size, seen = GridSize(), []
    while size not in seen:
        seen.append(size)
        size = next_grid(size, 80, 22)
    assert seen[0] == size == GridSize()
    assert [one.count for one in seen] == sorted(one.count for one in seen)
    assert GridSize(3, 3).fitted(80, 22) == seen[-1]


@pytest.mark.parametrize(
    ("name", "pattern", "expected"),
    [
        ("val_loss", "loss", True),
        ("val_loss", "LOSS", True),
        ("val_loss", "val_*", True),
        ("val_loss", "loss*", False),
        ("a[0]", "[", True),
        ("val_loss", "~^val_(loss|acc)$", True),
        ("VAL_loss", "~^val", True),
        ("my_val_loss", "~^val", False),
        ("val_loss", "~(", False),
        ("val_loss", "~", True),
        ("x" * 100_000 + "b", "*x" * 20 + "*a", False),
    ],
)
def test_a_name_matches_a_part_or_a_glob(name, pattern, expected):
    assert matches(name, pattern) is expected


def test_joined_measurements_are_one_tile_where_the_first_would_be():
    names = [metric(name) for name in ("loss", "a", "b", "c")]
    tiles = tiles_of(names, [("c", "a")])
    assert [[one.name for one in tile] for tile in tiles] == [["loss"], ["a", "c"], ["b"]]
    assert [len(tile) for tile in tiles_of(names, [("c", "a")], "c")] == [2]


def test_a_cursor_moves_from_point_to_point_and_not_beyond():
    places = places_of(BACK.samples.segments("loss"), View().x_of)
    assert places == [0, 10, 20, 30, 40]
    assert [snapped(places, x) for x in (-5, 0, 19, 99)] == [0, 0, 10, 40]
    assert [moved(places, 20, d) for d in (0.1, 15, 99, -0.1, -15, -99)] == [30, 40, 40, 10, 0, 0]
    assert snapped([], 1) is moved([], 1, 1) is None


def distribution(low: float, high: float, *counts: int) -> Distribution:
    return Distribution(point(0, None), low, high, counts)


def test_the_shades_of_a_distribution_show_its_tails():
    assert shades_of(distribution(0, 4, 1, 16, 4, 0), [0, 1, 2, 3, 4]) == [1, 4, 2, 0]
    assert shades_of(distribution(0, 4, 1, 16, 4, 0), [-9, 0, 9]) == [0, 4]
    assert shades_of(distribution(3, 3, 5), [0, 2, 4]) == [0, 4]
    assert shades_of(distribution(0, 1, 1), [5, 6]) == [0]


@given(
    st.lists(st.integers(0, 10**9), min_size=1, max_size=16),
    st.floats(-1.7e308, 1.7e308),
    st.floats(-1.7e308, 1.7e308),
)
def test_no_value_of_a_distribution_is_lost(counts, one, other):
    low, high = sorted((one, other))
    if low < high:
        whole = distribution(low, high, *counts)
        middle = low / 2 + high / 2
        halves = whole.between(low, middle) + whole.between(middle, high)
        assert halves == pytest.approx(sum(counts), rel=1e-6, abs=1e-6)
        assert 0 <= min(shades_of(whole, [low, middle, high])) <= 4


def test_choices_are_kept_without_what_belongs_to_a_moment() -> None:
    lasting = View(across=Across.TIME, smoothing=WEIGHTS[1], logarithmic=True)
    passing = replace(lasting, window=Window(1, 2), hidden=frozenset({1}), epoch_steps=7)
    choices = ChartChoices(
        passing, GridSize(2, 1), "val_*", (("loss", "val_loss"),), "loss", Compared("/data/other")
    )
    kept = json.loads(json.dumps(choices.to_keep()))
    assert kept_choices(kept) == replace(choices, view=lasting)


@pytest.mark.parametrize(
    "kept",
    [
        {},
        {"view": 3},
        {"view": {"across": "sideways"}},
        {"view": {"smoothing": 7.5}},
        {"view": {"window": {"start": 1e308, "end": -1e308}, "epoch_steps": 0}},
        {"grid_size": {"columns": 0, "rows": -1}},
        {"grid_size": {"columns": 10**9, "rows": 10**9}},
        {"joined": ["loss"]},
        {"compared": {"directory": ["/"]}},
        {"from a newer release": True},
    ],
)
def test_damaged_choices_count_as_none(kept: dict[str, Any]) -> None:
    assert kept_choices(kept) == ChartChoices()


def test_a_reference_has_no_value_after_its_end_and_comes_last() -> None:
    own = run_of(*(point(step, 1.0, lr=0.1) for step in (0, 10, 20)), b0=math.inf)
    other = replace(run_of(*(point(step, 3.0) for step in (0, 10)), b0=math.inf), name="other")
    curves = drawn(View(), own, reference=other)
    assert [value.label for value in values_at(curves, 10)] == ["", "other"]
    assert [value.label for value in values_at(curves, 12)] == [""]
    joined = drawn(View(), own, metric("lr"), reference=other)
    assert [value.label for value in values_at(joined, 10)] == ["loss", "lr", "loss, other"]


@pytest.mark.parametrize(
    ("pattern", "incomplete"), [("~val_(", True), ("~val_(loss)", False), ("val_(", False)]
)
def test_a_regular_expression_may_be_incomplete(pattern: str, incomplete: bool) -> None:
    assert is_incomplete(pattern) is incomplete
