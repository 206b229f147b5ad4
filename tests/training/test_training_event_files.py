"""Event files and CSV files as TensorFlow and Keras write them, against what those say."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from training_cluster import SCRIPTS

from tensorflow_processes import run_with_tensorflow
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.charting.curves import curves_of, kept_until
from tfckpt_tui.monitor.snapshot_reader import SnapshotReader
from tfckpt_tui.services.metrics.metric_tail import read_metrics

pytestmark = pytest.mark.tensorflow


def test_all_curves_equal_those_of_tensorboard_and_keras(tmp_path: Path) -> None:
    done = run_with_tensorflow(SCRIPTS / "event_files_of_others.py", tmp_path)
    assert done.returncode == 0, done.stderr
    expected = json.loads(done.stdout.splitlines()[-1])
    found: dict[str, list[list[float | None]]] = {}
    for points in read_metrics(RunDirectory(tmp_path)):
        for point in points:
            for name, value in point.metrics.items():
                found.setdefault(name, []).append([point.step, point.at, value])
    assert {name.split("/")[0] for name in expected} == {"loop", "estimator", "keras"}
    assert {name: [[step, value] for step, _, value in found[name]] for name in found} == {
        name: [[step, value] for step, _, value in expected[name]] for name in expected
    }
    # Values of one step are one point, with the time of the first.
    for name, points in expected.items():
        differences = [a[1] - b[1] for a, b in zip(points, found[name], strict=True)]
        assert all(0 <= seconds < 60 for seconds in differences)


def test_the_present_of_a_curve_is_what_tensorboard_keeps_after_restarts(tmp_path: Path) -> None:
    done = run_with_tensorflow(SCRIPTS / "event_files_of_restarts.py", tmp_path)
    assert done.returncode == 0, done.stderr
    expected = json.loads(done.stdout.splitlines()[-1])
    # It purges what a program of TensorFlow 1 says, which is the same here.
    assert expected.pop("accumulated") == expected["first/loss"]
    snapshot = SnapshotReader(RunDirectory(tmp_path)).read(time.time())
    assert snapshot.samples.channels.keys() == expected.keys()
    for name, points in expected.items():
        curves = curves_of(
            snapshot.samples.segments(name),
            kept_until(snapshot.lineage, snapshot.branch),
            lambda branch, past: "",
        )
        assert [[list(place) for place in one.points] for one in curves if not one.is_past] == [
            points
        ]
        assert any(one.is_past for one in curves)
