"""The chief appends to the series, and thins it while training goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from refusing_disk import RefusingDisk
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import SeriesPoint
from tfckpt_trainer.rundir.series import SeriesTail
from tfckpt_trainer.rundir.storage.disk import using
from waiting import wait_until

pytestmark = pytest.mark.tensorflow

LIMIT = 40_000


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path)
    run.control.mkdir()
    return run


def points(begin: int, count: int) -> list[SeriesPoint]:
    steps = range(begin, begin + count)
    return [
        SeriesPoint(at=step, step=step, branch=0, metrics={"loss": step % 50}) for step in steps
    ]


def followed(tail: SeriesTail) -> Iterator[SeriesPoint]:
    yield from tail.read_new()
    while tail.is_behind:
        yield from tail.read_new()


def test_each_point_is_a_line(run) -> None:
    from tfckpt_trainer.training.telemetry.series_writer import SeriesWriter

    writer = SeriesWriter(run)
    writer.add(points(0, 5))
    writer.flush()
    lines = run.series.read_text().splitlines()
    assert [msgspec.json.decode(line)["step"] for line in lines] == [0, 1, 2, 3, 4]


def test_a_run_of_any_length_has_a_bounded_series_and_who_follows_sees_all(run) -> None:
    from tfckpt_trainer.training.telemetry.series_writer import SeriesWriter

    writer, tail = SeriesWriter(run, limit=LIMIT), SeriesTail(run)
    found: list[SeriesPoint] = []
    largest = 0
    for begin in range(0, 5000, 20):
        writer.add(points(begin, 20))
        writer.flush()
        thinning = writer._thinning
        if thinning is not None:
            # As long as it runs, points of some seconds are appended; here they come at once.
            thinning.join()
        largest = max(largest, run.series.stat().st_size)
        found += followed(tail)
    writer.close()
    found += followed(tail)
    assert found == points(0, 5000)
    assert largest <= LIMIT + 20 * 150
    assert tail.thinned is not None
    assert tail.thinned.generation > 10
    assert writer.trouble == ""
    assert [path.name for path in run.control.iterdir()] == ["series.jsonl"]


def test_points_that_come_while_it_is_thinned_are_not_lost(run) -> None:
    from tfckpt_trainer.training.telemetry.series_writer import SeriesWriter

    writer, tail = SeriesWriter(run, limit=LIMIT), SeriesTail(run)
    found: list[SeriesPoint] = []
    for begin in range(0, 20_000, 100):
        writer.add(points(begin, 100))
        writer.flush()
        if begin % 300 == 0:
            found += followed(tail)
    writer.close()
    found += followed(tail)
    if tail.beginnings == 1:
        assert found == points(0, 20_000)
    assert [*followed(SeriesTail(run))][-1].step == 19_999
    assert writer._points == type(writer._points)()


def test_a_full_disk_leaves_the_series_and_it_is_tried_again_later(run) -> None:
    from tfckpt_trainer.training.telemetry.series_writer import RETRY_SECONDS, SeriesWriter

    now = [0.0]
    writer = SeriesWriter(run, limit=LIMIT, clock=lambda: now[0])
    writer.add(points(0, 600))
    with using(RefusingDisk(lambda _: True, calls=("rename",))):
        writer.flush()
        wait_until(lambda: writer.trouble, 60, "the refusal")
    assert "cannot be thinned" in writer.trouble
    size = run.series.stat().st_size
    writer.add(points(600, 1))
    writer.flush()
    assert writer._thinning is not None
    writer._thinning.join()
    assert run.series.stat().st_size > size
    assert writer.trouble, "it is not tried again at once"
    now[0] += RETRY_SECONDS
    writer.add(points(601, 1))
    writer.flush()
    wait_until(lambda: not writer.trouble, 60, "the next attempt")
    assert run.series.stat().st_size < size
    writer.close()


def test_the_end_of_a_process_does_not_wait_for_the_thinning(run) -> None:
    from tfckpt_trainer.training.telemetry import series_writer

    writer = series_writer.SeriesWriter(run, limit=LIMIT)
    writer.add(points(0, 600))
    # A pause that would last for hours.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(series_writer, "_PAUSE_SHARE", 1e9)
        writer.flush()
        writer.add(points(600, 1))
        writer.close()
    assert [one.step for one in followed(SeriesTail(run))] == list(range(601))
    assert [path.name for path in run.control.iterdir()] == ["series.jsonl"]
