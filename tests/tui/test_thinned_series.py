"""What shows or exports a series goes on after its older part was thinned, and says so."""

from __future__ import annotations

import csv
import json
import threading
from io import StringIO
from pathlib import Path

import pytest
from rundir_factory import RunFactory

from command_running import Tool
from tfckpt_trainer.rundir import series as series_module
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import SeriesPoint
from tfckpt_trainer.rundir.series_thinner import SeriesThinner
from tfckpt_trainer.rundir.storage.documents import encode
from tfckpt_tui.charting.series import STEP, VALUE, Samples, Series
from tfckpt_tui.monitor.snapshot_reader import SeriesReader
from tfckpt_tui.services.metrics.metric_tail import MetricTail, read_metrics

LIMIT = 100_000


@pytest.fixture
def made(tmp_path: Path) -> RunFactory:
    made = RunFactory(tmp_path / "run").create()
    made.checkpoint(1)
    return made


def points(begin: int, end: int) -> list[SeriesPoint]:
    return [
        SeriesPoint(
            at=1.7e9 + step, step=step, branch=0, metrics={"loss": 99.0 if step == 77 else step % 9}
        )
        for step in range(begin, end)
    ]


def write(run: RunDirectory, begin: int, end: int) -> None:
    with run.series.open("ab") as file:
        file.writelines(encode(one) + b"\n" for one in points(begin, end))


def thin(run: RunDirectory) -> None:
    SeriesThinner(run, writing=threading.Lock(), pause=lambda: None, limit=LIMIT).thin()


def kept(samples: Samples) -> list[tuple[float, float]]:
    return [(s[STEP], s[VALUE]) for one in samples.segments("loss") for s in one.samples]


def test_an_open_app_shows_neither_a_gap_nor_a_point_twice(made: RunFactory) -> None:
    reader = SeriesReader(made.run)
    for begin in range(0, 6000, 500):
        write(made.run, begin, begin + 500)
        samples = reader.read()
        if made.run.series.stat().st_size > LIMIT:
            thin(made.run)
        assert kept(samples) == kept(Series(points(0, begin + 500)).samples)
        assert reader.read() is samples, "a replacement changes nothing"
    assert reader.thinned is not None


def test_an_app_that_is_opened_later_shows_the_ends_and_extremes(made: RunFactory) -> None:
    write(made.run, 0, 3000)
    thin(made.run)
    shown = kept(SeriesReader(made.run).read())
    assert (shown[0], max(shown, key=lambda one: one[1]), shown[-1][0]) == ((0, 0), (77, 99), 2999)


def test_a_read_during_the_replacement_gets_no_point_twice(made: RunFactory, monkeypatch) -> None:
    monkeypatch.setattr(series_module, "_BLOCK", 20_000)
    write(made.run, 0, 3000)
    blocks = read_metrics(made.run)
    found = next(blocks)
    thin(made.run)
    for block in blocks:
        found += block
    steps = [one.step for one in found]
    assert steps == sorted(set(steps))
    assert (steps[0], steps[-1]) == (0, 2999)


def test_who_follows_and_misses_a_replacement_gets_no_point_twice(made: RunFactory) -> None:
    write(made.run, 0, 2000)
    tail = MetricTail(made.run, repeats=False)
    found = tail.read_new()
    write(made.run, 2000, 2100)
    thin(made.run)
    write(made.run, 2100, 3000)
    thin(made.run)
    found += tail.read_new()
    steps = [one.step for one in found]
    assert steps == sorted(set(steps))
    assert steps[-400:] == list(range(2600, 3000))


def test_an_export_says_what_is_thinned(tool: Tool, made: RunFactory) -> None:
    write(made.run, 0, 3000)
    assert "thinned" not in tool("metrics", made.run.root).words
    thin(made.run)
    said = tool("metrics", made.run.root)
    assert said.code == 0
    rows = list(csv.DictReader(StringIO(said.data)))
    assert rows[0]["step"] == "0"
    assert "99.0" in {row["value"] for row in rows}
    assert "are thinned: of every " in said.words


def test_a_report_says_what_is_thinned(tool: Tool, made: RunFactory) -> None:
    write(made.run, 0, 3000)
    curves = json.loads(tool("report", made.run.root, "--json").data)["curves"]
    assert curves["thinned_before"] is None
    thin(made.run)
    curves = json.loads(tool("report", made.run.root, "--json").data)["curves"]
    assert 1.7e9 < curves["thinned_before"] < 1.7e9 + 3000
    assert curves["thinned_steps"] > 1
    assert "are thinned: of every " in tool("report", made.run.root).data
