"""Event files as TensorFlow and Keras write them, against what TensorBoard reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from training_cluster import SCRIPTS

from tensorflow_processes import run_with_tensorflow
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.services.metrics.metric_tail import read_metrics

pytestmark = pytest.mark.tensorflow


def test_all_curves_equal_those_of_tensorboard(tmp_path: Path) -> None:
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
