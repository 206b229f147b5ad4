"""`metrics`: the numbers of a run, for other programs."""

from __future__ import annotations

import csv
import json
import math
import os
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from json_reference import check
from rundir_factory import RunFactory

from command_running import Tool
from tfckpt_trainer.rundir.records.event import SeriesPoint
from tfckpt_trainer.rundir.storage.documents import append
from tfckpt_tui import open_run
from tfckpt_tui.tools.reporting.metrics_command import MetricPoint
from waiting import wait_until


@pytest.fixture
def made(tmp_path: Path) -> RunFactory:
    made = RunFactory(tmp_path / "run").create()
    made.checkpoint(1)
    add(made, 1, 0, loss=0.5, val_loss=2.0)
    add(made, 2, 0, loss=None)
    add(made, 1, 1, loss=0.25)
    return made


def add(made: RunFactory, step: int, branch: int, **metrics: float | None) -> None:
    point = SeriesPoint(at=1000.5 + step, step=step, branch=branch, metrics=metrics)
    append(made.run.series, point)


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(text)))


def test_each_value_is_a_row(tool: Tool, made: RunFactory) -> None:
    said = tool("metrics", made.run.root)
    assert said.code == 0
    assert said.data.splitlines() == [
        "at,step,branch,name,value",
        "1001.500,1,0,loss,0.5",
        "1001.500,1,0,val_loss,2.0",
        "1002.500,2,0,loss,nan",
        "1001.500,1,1,loss,0.25",
    ]


def test_a_hole_in_the_series_takes_no_time(tool: Tool, made: RunFactory) -> None:
    os.truncate(made.run.series, 1 << 40)
    add(made, 3, 1, loss=0.125)
    assert tool("metrics", made.run.root).data.splitlines()[-1] == "1003.500,3,1,loss,0.125"


def test_names_and_branches_are_chosen(tool: Tool, made: RunFactory) -> None:
    assert [row["name"] for row in rows(tool("metrics", made.run.root, "--name", "val*").data)] == [
        "val_loss"
    ]
    chosen = rows(tool("metrics", made.run.root, "--branch", "1", "--name", "loss").data)
    assert [(row["branch"], row["value"]) for row in chosen] == [("1", "0.25")]


def test_each_point_is_a_line_of_json(tool: Tool, made: RunFactory) -> None:
    lines = tool("metrics", made.run.root, "--json").data.splitlines()
    assert tool("metrics", made.run.root, "--jsonl").data.splitlines() == lines
    assert tool("metrics", made.run.root, "--csv").data == tool("metrics", made.run.root).data
    for line in lines:
        check(MetricPoint, json.loads(line))
    assert [json.loads(line)["metrics"] for line in lines] == [
        {"loss": 0.5, "val_loss": 2.0},
        {"loss": None},
        {"loss": 0.25},
    ]


def test_the_values_are_those_that_python_reads(tool: Tool, tmp_path: Path) -> None:
    made = RunFactory(tmp_path / "run").create()
    made.checkpoint(1)
    made.series(0, 3000, 0)
    found = rows(tool("metrics", made.run.root, "--name", "loss").data)
    curve = open_run(made.run.root).metrics["loss"]
    assert [int(row["step"]) for row in found] == curve.steps.tolist()
    assert [float(row["value"]) for row in found] == curve.values.tolist()


def test_what_has_no_numbers_is_said(tool: Tool, made: RunFactory) -> None:
    said = tool("metrics", made.run.root, "--name", "nothing")
    assert (said.code, "has no such metrics. The metrics are: " in said.words) == (2, True)
    empty = RunFactory(made.run.root.parent / "empty").create()
    assert "has no metrics. A script reports them" in tool("metrics", empty.run.root).words


def test_names_do_nothing_to_a_terminal(tool: Tool, made: RunFactory) -> None:
    add(made, 3, 0, **{"\x1b[31mred": 1.0})
    assert "\x1b" not in tool("metrics", made.run.root).data


def test_new_values_follow(made: RunFactory) -> None:
    command = [sys.executable, "-m", "tfckpt_tui.cli.main", "metrics", "--follow"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [*command, made.run.root], stdout=subprocess.PIPE, text=True, env=environment
    ) as following:
        assert following.stdout is not None
        for _ in range(5):
            following.stdout.readline()
        add(made, 9, 1, loss=math.pi)
        assert following.stdout.readline() == f"1009.500,9,1,loss,{math.pi}\n"
        following.terminate()
    wait_until(lambda: following.poll() is not None, 60, "its end")
