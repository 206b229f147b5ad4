"""A series of any length takes a bounded file, and nobody who reads it notices the replacement."""

from __future__ import annotations

import math
import random
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from refusing_disk import RefusingDisk
from tfckpt_trainer.rundir import series_thinner
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import SeriesPoint
from tfckpt_trainer.rundir.series import HEADER_BYTES, SeriesTail, read_newest_points
from tfckpt_trainer.rundir.series_thinner import SeriesThinner
from tfckpt_trainer.rundir.storage.disk import using
from tfckpt_trainer.rundir.storage.documents import append, encode
from tfckpt_trainer.rundir.thinning import thin_points

LIMIT = 200_000


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path)
    run.control.mkdir()
    return run


def point(step: int, branch: int = 0, **metrics: float | None) -> SeriesPoint:
    return SeriesPoint(
        at=1.7e9 + step, step=step, branch=branch, metrics=metrics, step_seconds=1 + step % 7 / 10
    )


def trained(count: int, seed: int = 1) -> Iterator[SeriesPoint]:
    """Yields points with spikes, NaN, a rare metric, a restart and a restore to an older step."""
    numbers = random.Random(seed)
    step, branch = 0, 0
    for number in range(count):
        if number == count // 3:
            step -= count // 20
        elif number == count // 2:
            step, branch = step - count // 10, 1
        step += 1
        loss = None if number % 997 == 500 else numbers.random() + (number % 501 == 250) * 50
        metrics: dict[str, float | None] = {"loss": loss, "lr": 0.1}
        if step % 100 == 0:
            metrics["val_loss"] = numbers.random()
        yield point(step, branch, **metrics)


def write(run: RunDirectory, points: Sequence[SeriesPoint]) -> None:
    with run.series.open("ab") as file:
        file.writelines(encode(one) + b"\n" for one in points)


def thin(run: RunDirectory, limit: int = LIMIT) -> None:
    SeriesThinner(run, writing=threading.Lock(), pause=lambda: None, limit=limit).thin()


def read(tail: SeriesTail) -> list[SeriesPoint]:
    points = tail.read_new()
    while tail.is_behind:
        points += tail.read_new()
    return points


def values(points: Sequence[SeriesPoint]) -> dict[tuple[str, int], list[tuple[int, float | None]]]:
    """Returns the values of each metric on each branch, with their steps."""
    found = defaultdict(list)
    for one in points:
        for name, value in one.metrics.items():
            found[name, one.branch].append((one.step, value))
    return found


def finite(values: Sequence[tuple[int, float | None]]) -> list[float]:
    return [value for _, value in values if value is not None]


def test_ends_and_extremes_of_every_interval_stay() -> None:
    width, points = 64, list(trained(10_000))
    kept = list(thin_points(points, width))
    assert len(kept) < len(points) // 4
    before, after = values(points), values(kept)
    assert before.keys() == after.keys()
    for key, recorded in before.items():
        assert set(after[key]) <= set(recorded)
        for begin in range(0, 10_000, width):
            was = [one for one in recorded if one[0] // width == begin // width]
            now = [one for one in after[key] if one[0] // width == begin // width]
            assert now[:1] + now[-1:] == was[:1] + was[-1:]
            if finite(was):
                assert (min(finite(now)), max(finite(now))) == (min(finite(was)), max(finite(was)))
            assert [one for one in was if one[1] is None][:1] == [
                one for one in now if one[1] is None
            ][:1]
    assert [one.step for one in kept if one.step_seconds is not None]
    assert after["val_loss", 1] == before["val_loss", 1], "a rare metric keeps all its values"


def test_thinning_again_keeps_what_thinning_at_once_keeps() -> None:
    points = list(trained(10_000))
    twice = thin_points(list(thin_points(points, 16)), 128)
    assert values(list(twice)) == values(list(thin_points(points, 128)))


def test_an_interval_of_any_length_takes_little_memory(monkeypatch) -> None:
    points = list(trained(10_000))
    at_once = list(thin_points(points, 1 << 20))
    monkeypatch.setattr("tfckpt_trainer.rundir.thinning._MOST_POINTS", 100)
    assert values(list(thin_points(points, 1 << 20))) == values(at_once)


@pytest.mark.parametrize("block", [300, 5000, 1 << 16])
def test_the_newest_half_stays_and_the_rest_is_thinned(run, monkeypatch, block) -> None:
    monkeypatch.setattr(series_thinner, "_BLOCK", block)
    points = list(trained(3000))
    write(run, points)
    was = run.series.read_bytes()
    assert len(was) > 1.5 * LIMIT
    thin(run)
    now = run.series.read_bytes()
    assert len(now) <= HEADER_BYTES + LIMIT * 3 // 4 + 300
    tail = SeriesTail(run)
    kept = read(tail)
    assert tail.thinned is not None
    whole = now[tail.thinned.end :]
    assert was.endswith(whole)
    assert len(whole) > LIMIT // 2 - 300
    assert tail.thinned.before < kept[-1].at
    for key, recorded in values(points).items():
        found = values(kept)[key]
        assert (found[0], found[-1]) == (recorded[0], recorded[-1])
        assert (min(finite(found)), max(finite(found))) == (
            min(finite(recorded)),
            max(finite(recorded)),
        )
    assert [p.name for p in run.control.iterdir()] == ["series.jsonl"]


def test_a_reader_goes_on_after_each_replacement_with_every_point_once(run) -> None:
    points = list(trained(20_000))
    tail, found = SeriesTail(run), []
    for place in range(0, len(points), 100):
        write(run, points[place : place + 100])
        if place % 300:
            # The others were written since this reader looked.
            found += read(tail)
        if run.series.stat().st_size > LIMIT:
            thin(run)
    found += read(tail)
    assert tail.thinned is not None
    assert tail.thinned.generation > 20
    assert tail.beginnings == 1
    assert found == points


def test_a_reader_that_missed_a_replacement_begins_anew(run) -> None:
    points = list(trained(4000))
    write(run, points[:1000])
    tail = SeriesTail(run)
    assert read(tail) == points[:1000]
    write(run, points[1000:3000])
    thin(run)
    write(run, points[3000:])
    thin(run)
    opened = read(SeriesTail(run))
    assert read(tail) == opened
    assert tail.beginnings == 2


def test_a_series_of_another_run_in_its_place_is_not_taken_for_the_next(run, tmp_path) -> None:
    write(run, list(trained(1000)))
    tail = SeriesTail(run)
    read(tail)
    other = RunDirectory(tmp_path / "other")
    other.control.mkdir(parents=True)
    write(other, list(trained(3000, seed=2)))
    thin(other)
    other.series.replace(run.series)
    assert read(tail) == read(SeriesTail(run))


def test_thinning_for_a_year_keeps_the_whole_curve(run) -> None:
    """Each replacement thins what was thinned; it must not be thinned to nothing."""
    written = 0
    for begin in range(0, 60_000, 500):
        write(run, [point(step, loss=float(step)) for step in range(begin, begin + 500)])
        written += 500
        if run.series.stat().st_size > LIMIT:
            thin(run)
        assert run.series.stat().st_size <= LIMIT + 500 * 150
    steps = [one.step for one in read(SeriesTail(run))]
    assert steps == sorted(set(steps))
    assert (steps[0], steps[-1]) == (0, written - 1)
    assert max(b - a for a, b in pairwise(steps)) <= written // 50


def test_a_thousand_restarts_fit_too(run) -> None:
    """Each restart has ends and extremes of its own, so at last the oldest are dropped."""
    for _ in range(5):
        for begin in range(1000):
            write(run, [point(step, loss=1.0) for step in range(begin, begin + 3)])
        thin(run, 20_000)
        assert run.series.stat().st_size <= 20_000
        tail = SeriesTail(run)
        assert read(tail)[-1].step == 1001
        assert tail.thinned is not None
        assert tail.thinned.width <= 2048, "a wider interval would change nothing"


def test_a_step_that_no_run_has_ends_nothing(run) -> None:
    write(run, [point((1 << 63) - 1 - step % 2, loss=1.0) for step in range(2000)])
    thin(run, 20_000)
    assert run.series.stat().st_size <= 20_000
    assert read(SeriesTail(run))


def test_an_interval_larger_than_its_part_is_dropped(run) -> None:
    write(run, [point(step, **{f"m{n}": 1.0 for n in range(500)}) for step in range(40)])
    thin(run, 20_000)
    assert run.series.stat().st_size <= 20_000
    assert read(SeriesTail(run))[-1].step == 39


@pytest.mark.parametrize("number", range(1, 40))
def test_a_disk_that_refuses_any_change_leaves_the_old_or_the_new_series(run, number) -> None:
    write(run, list(trained(3000)))
    old = run.series.read_bytes()
    with using(RefusingDisk(lambda count: count == number)):
        try:
            thin(run)
        except OSError:
            assert run.series.read_bytes() == old
    left = {path.name for path in run.control.iterdir()}
    assert left <= {"series.jsonl", ".series.jsonl.tmp"}
    thin(run)
    assert [path.name for path in run.control.iterdir()] == ["series.jsonl"]
    assert len(run.series.read_bytes()) < len(old)


def test_what_is_appended_meanwhile_stays(run) -> None:
    points = list(trained(4000))
    write(run, points[:3000])
    left = iter(points[3000:])
    tail = SeriesTail(run)
    read(tail)

    def append_one() -> None:
        one = next(left, None)
        if one is not None:
            append(run.series, one, durable=False)

    SeriesThinner(run, writing=threading.Lock(), pause=append_one, limit=LIMIT).thin()
    rest = list(left)
    assert len(rest) < 1000, "some were appended"
    assert read(tail) == points[3000 : 4000 - len(rest)]


def test_what_a_writer_appends_just_before_the_replacement_stays(run) -> None:
    """It has the lock, and the replacement waits for it."""
    points = list(trained(3000))
    write(run, points[:-5])

    class LastWriter:
        def __enter__(self) -> None:
            write(run, points[-5:])

        def __exit__(self, *_: object) -> None:
            pass

    SeriesThinner(run, writing=LastWriter(), pause=lambda: None, limit=LIMIT).thin()
    assert read(SeriesTail(run))[-10:] == points[-10:]


def test_foreign_lines_and_long_ones_are_dropped(run) -> None:
    write(run, list(trained(1000)))
    with run.series.open("ab") as file:
        file.write(b"x" * (3 << 20) + b"\n" + b'{"at":1}\n\xff\n')
    write(run, list(trained(2000)))
    thin(run)
    found = read(SeriesTail(run))
    assert found[-1] == list(trained(2000))[-1]
    assert found[0] == next(trained(1000))


def test_nobody_reads_the_first_line_as_a_point(run) -> None:
    write(run, list(trained(3000)))
    thin(run, 4000)
    newest = read_newest_points(run, 1000)
    assert newest == read(SeriesTail(run))
    assert math.isclose(newest[-1].at, list(trained(3000))[-1].at)
