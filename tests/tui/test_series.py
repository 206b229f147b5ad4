"""The series that charts and reports share: what is kept of a run, however it was followed."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rundir_factory import RunFactory

from tfckpt_trainer.rundir import series as series_module
from tfckpt_trainer.rundir.records.event import SeriesPoint
from tfckpt_trainer.rundir.storage.documents import append
from tfckpt_tui.app.widgets.charts.braille import plot
from tfckpt_tui.charting.axis import Window
from tfckpt_tui.charting.curves import Across
from tfckpt_tui.charting.measurements import STEP_TIME, measurements, metric
from tfckpt_tui.charting.series import (
    MOST_INTERVALS,
    MOST_METRICS,
    STEP,
    VALUE,
    WEIGHTS,
    Key,
    Sample,
    Samples,
    Series,
)
from tfckpt_tui.charting.statistics import statistics_of
from tfckpt_tui.charting.view import RunSeries, View, curves_in, smoothed_curves
from tfckpt_tui.monitor import snapshot_reader
from tfckpt_tui.monitor.snapshot_reader import SeriesReader
from tfckpt_tui.tools.reporting.curves import CurveReader
from weekly import tries

HOURS = 8


def point(step: int, branch: int = 0, at: float | None = None, **metrics: float | None):
    when = float(step) if at is None else at
    return SeriesPoint(at=when, step=step, branch=branch, metrics=metrics, step_seconds=0.1)


def a_day_at_work() -> Iterator[SeriesPoint]:
    """Yields a point a second for eight hours: restores, a restart, NaN, a rare metric."""
    random.seed(8)
    step, branch = 0, 0
    for second in range(HOURS * 3600):
        if second in (9000, 20_000):
            step, branch = step - 1500, branch + 1
        elif second == 15_000:
            step -= 100
        step += random.randrange(1, 4)
        metrics: dict[str, float | None] = {
            "loss": 1.0 / (1 + second / 100) + random.random() / 50,
            "epoch": float(step // 1000),
        }
        if 8990 <= second < 9000:
            metrics["loss"] = None
        elif second == 3:
            metrics["loss"] = 50.0
        elif second % 600 == 599:
            metrics["val_loss"] = 2.0 - second / 30_000
        yield point(step, branch, 1e9 + second, **metrics)


def everything(samples: Samples) -> dict[Key, object]:
    return {
        key: (
            channel.recorded,
            channel.not_finite,
            channel.not_finite_steps,
            [(one.branch, [repr(sample) for sample in one.samples]) for one in channel.segments],
        )
        for key, channel in samples.channels.items()
    }


def values(samples: Samples, key: Key) -> list[Sample]:
    return [sample for segment in samples.segments(key) for sample in segment.samples]


KEPT = {0: 4000.0, 1: 9000.0, 2: math.inf}
VIEWS = [
    *(View(across=across) for across in Across),
    *(View(smoothing=weight) for weight in WEIGHTS[1:]),
    View(logarithmic=True, smoothing=0.9),
    View(window=Window(3000, 9000), smoothing=0.6),
    View(hidden=frozenset({1}), clips_outliers=False),
]


def test_an_app_that_was_open_for_hours_draws_what_one_opened_now_draws() -> None:
    points = [*a_day_at_work()]
    followed = Series()
    for one in points:
        followed.add([one])
    opened = Series(points)
    assert everything(followed.samples) == everything(opened.samples)
    for view in VIEWS:
        for shown in measurements(opened.samples.metrics):
            canvases = [
                plot(
                    smoothed_curves(
                        curves_in(view, RunSeries(series.samples, KEPT), [shown], str_of)
                    ),
                    [],
                    120,
                    30,
                    window=view.window,
                    logarithmic=view.logarithmic,
                    clips_outliers=view.clips_outliers,
                ).lines()
                for series in (followed, opened)
            ]
            assert canvases[0] == canvases[1], (view, shown.name)


def str_of(branch: int, past: bool) -> str:
    return f"{branch}{past}"


def test_the_early_part_of_a_run_stays_as_fine_as_the_late_one() -> None:
    series = Series(point(second, loss=1 / (1 + second)) for second in range(28_800))
    steps = [sample[STEP] for sample in values(series.samples, "loss")]
    tenths = [
        sum(tenth <= step * 10 // 28_800 < tenth + 1 for step in steps) for tenth in range(10)
    ]
    assert min(tenths) > MOST_INTERVALS // 20
    assert max(tenths) - min(tenths) <= 4
    assert max(after - before for before, after in itertools.pairwise(steps)) <= 64


RECORDED = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.integers(-2, 9),
        st.none() | st.sampled_from([math.inf, -math.inf, 1e308, 0.0]) | st.floats(-9, 9),
        st.booleans(),
    ),
    min_size=1,
    max_size=200,
)


@tries(60)
@given(RECORDED, st.lists(st.integers(1, 50), max_size=20), st.integers(1, 40))
def test_whatever_is_recorded_is_kept_alike_however_it_arrives(recorded, sizes, most) -> None:
    points = [
        point(step, branch, **({"rare": 1.0} if rare else {}), loss=loss)
        for branch, step, loss, rare in recorded
    ]
    alone, at_once, in_blocks = (Series(most=most) for _ in range(3))
    for one in points:
        alone.add([one])
    at_once.add(points)
    rest = iter(points)
    for size in (*sizes, len(points)):
        in_blocks.add(itertools.islice(rest, size))
    kept = everything(at_once.samples)
    assert kept == everything(alone.samples) == everything(in_blocks.samples)
    known = [one.metrics["loss"] for one in points]
    finite = [value for value in known if value is not None and math.isfinite(value)]
    found = statistics_of(values(at_once.samples, "loss"))
    turns = sum(
        one.branch != after.branch or after.step < one.step
        for one, after in itertools.pairwise(points)
    )
    if turns < most and found and found.lowest and found.highest:
        assert (found.lowest[VALUE], found.highest[VALUE]) == (min(finite), max(finite))


def test_a_rare_metric_keeps_all_its_values_and_a_spike_is_not_lost() -> None:
    def recorded() -> Iterator[SeriesPoint]:
        for step in range(12_000):
            loss = {3001: 50.0, 7001: 0.25}.get(step, 1.0 + step % 7 / 1000)
            rare = {"val_loss": 3 - step / 6000} if step % 500 == 0 else {}
            yield point(step, loss=loss, **rare)

    samples = Series(recorded()).samples
    assert [one[STEP] for one in values(samples, "val_loss")] == [*range(0, 12_000, 500)]
    found = statistics_of(values(samples, "loss"))
    assert found is not None
    assert found.lowest is not None
    assert found.highest is not None
    assert (found.lowest[VALUE], found.highest[VALUE], found.last[STEP]) == (0.25, 50.0, 11_999)
    reader = CurveReader()
    reader.add(recorded())
    (curve, *_) = reader.facts({}).curves
    assert (curve.lowest, curve.highest, curve.last) == (0.25, 50.0, found.last[VALUE])
    assert found.steps == (curve.lowest_step, curve.highest_step, curve.last_step)


def test_the_average_runs_over_all_that_was_recorded() -> None:
    samples = Series(point(step, loss=1 / (1 + step)) for step in range(28_800)).samples
    average, unseen, at = 0.0, 1.0, {}
    for step in range(28_800):
        average, unseen = average * 0.99 + 0.01 / (1 + step), unseen * 0.99
        at[step] = average / (1 - unseen)
    for sample in values(samples, "loss"):
        assert sample[-1] == pytest.approx(at[int(sample[STEP])])


def test_a_series_is_bounded_and_keeps_the_first_broken_value() -> None:
    series = Series(most=100)
    for step in range(10_000):
        loss = None if 5000 <= step < 5003 else 1.0
        series.add([point(step, 0 if step < 7000 else 1, loss=loss)])
    kept = values(series.samples, "loss")
    assert len(kept) <= 700
    assert (kept[0][STEP], kept[-1][STEP]) == (0, 9999)
    assert 5000 in {sample[STEP] for sample in kept if math.isnan(sample[VALUE])}
    channel = series.samples.channels["loss"]
    assert (channel.recorded, channel.not_finite) == (10_000, 3)
    assert channel.not_finite_steps == (5000, 5001, 5002)
    assert [segment.branch for segment in channel.segments] == [0, 1]


def test_neither_branches_nor_names_without_end_take_memory_without_end() -> None:
    series = Series()
    for step in range(200):
        series.add(
            point(step, branch, **{f"m{step}-{n}": 1.0 for n in range(10)}) for branch in range(30)
        )
    samples = series.samples
    assert len(samples.channels) <= MOST_METRICS + 1
    assert samples.left_out > 0
    parts = sum(len(channel.segments) for channel in samples.channels.values())
    assert parts <= 64_000
    assert samples.segments(STEP_TIME.key)[-1].branch == 29, "the newest branches stay"


def test_a_snapshot_does_not_change_when_the_series_grows() -> None:
    series = Series(point(step, loss=float(step)) for step in range(5))
    before = series.samples
    series.add([])
    assert series.samples is before
    series.add(point(step, loss=0.0) for step in range(5, 5000))
    assert [one[VALUE] for one in values(before, "loss")] == [0, 1, 2, 3, 4]


# -- on disk ---------------------------------------------------------------------------------------


@pytest.fixture
def made(tmp_path: Path) -> RunFactory:
    return RunFactory(tmp_path / "run").create()


def write(made: RunFactory, points: Iterator[SeriesPoint]) -> None:
    for one in points:
        append(made.run.series, one, durable=False)


def test_a_long_series_shows_its_end_until_all_is_read(made, monkeypatch) -> None:
    monkeypatch.setattr(series_module, "_BLOCK", 20_000)
    monkeypatch.setattr(snapshot_reader, "FIRST_BYTES", 5000)
    monkeypatch.setattr(snapshot_reader, "NEWEST_BYTES", 20_000)
    write(made, (point(step, loss=1.0) for step in range(1000)))
    reader = SeriesReader(made.run)
    first = reader.read()
    assert not reader.has_read_all
    monkeypatch.setattr(snapshot_reader, "READ_SECONDS", 0.0)
    (segment,) = first.segments("loss")
    assert 900 < segment.column(STEP)[0] < segment.column(STEP)[-1] == 999
    (segment,) = reader.read().segments("loss")
    assert 0 < segment.column(STEP)[0] < 900, "more is shown once the first charts are there"
    write(made, (point(step, loss=1.0) for step in range(1000, 1010)))
    while not reader.has_read_all:
        samples = reader.read()
        assert samples.segments("loss")[-1].column(STEP)[-1] == 1009, "the newest is always shown"
    opened = Series(point(step, loss=1.0) for step in range(1010)).samples
    assert everything(samples) == everything(opened)
    write(made, iter([point(1010, loss=2.0)]))
    assert values(reader.read(), "loss")[-1][VALUE] == 2.0


def test_another_series_in_its_place_begins_anew(made) -> None:
    write(made, (point(step, loss=1.0) for step in range(50)))
    reader = SeriesReader(made.run)
    assert len(values(reader.read(), "loss")) == 50
    made.run.series.unlink()
    write(made, (point(step, loss=3.0) for step in range(3)))
    assert [one[VALUE] for one in values(reader.read(), "loss")] == [3.0] * 3


def test_a_line_without_end_does_not_stop_the_reader(made, monkeypatch) -> None:
    monkeypatch.setattr(series_module, "_BLOCK", 1000)
    with made.run.series.open("ab") as file:
        file.write(b"x" * 5000 + b"\n")
    write(made, (point(step, loss=1.0) for step in range(20)))
    assert len(values(SeriesReader(made.run).read(), "loss")) == 20


def test_values_without_a_place_on_the_axis_do_not_count() -> None:
    recorded = [point(1, loss=9.0), *(point(step, loss=step, epoch=0.0) for step in range(2, 5))]
    in_epochs = View(across=Across.EPOCHS)
    for series in (Series(recorded), Series(recorded, most=1)):
        for view in (in_epochs, replace(in_epochs, window=Window(0, 1))):
            visible = view.visible(series.samples.segments("loss"))
            assert [sample[VALUE] for _, sample in visible] == [2, 3, 4]


def test_a_part_of_a_run_has_only_the_measurements_with_values_there() -> None:
    samples = Series([point(1, loss=1.0), point(2, loss=1.0, late=1.0)]).samples
    part = samples.until({0: 1})
    assert part.metrics == ["loss"]
    assert part.newest is samples.newest


def test_only_values_in_a_window_count_and_none_that_are_not_known() -> None:
    samples = Series(point(step, loss=float(step)) for step in range(20_000)).samples
    view = View(window=Window(5001, 9999))
    visible = [sample for _, sample in view.visible(samples.segments(metric("loss").key))]
    found = statistics_of(visible)
    assert found is not None
    steps = [sample[STEP] for sample in visible]
    assert 5001 <= steps[0] < 5040
    assert 9960 < steps[-1] <= 9999
    assert found.steps == (steps[0], steps[-1], steps[-1])
    narrow = View(window=Window(5001, 5003)).visible(samples.segments("loss"))
    assert len(narrow) <= 3
