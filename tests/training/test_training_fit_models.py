"""`fit` trains what `keras.Model.fit` trains, and resumes it exactly."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys

import pytest
from training_cluster import SCRIPTS, Cluster

from tensorflow_processes import run_with_tensorflow
from weekly import weekly

pytestmark = pytest.mark.tensorflow

SCRIPT = SCRIPTS / "fitted_models.py"

FIRST = [
    "functional, weights",
    "layers with seeds, step that needs a callback",
    "run_eagerly, values in the step",
]
"""Forms that have most of what the others have, or what no other test of each change has."""


def names_of_forms():
    """The keys of the table in the script."""
    for statement in ast.parse(SCRIPT.read_text()).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "FORMS":
            names = [key.value for key in statement.value.keys]
            assert set(names) >= set(FIRST)
            rest = [name for name in names if name not in FIRST]
            return [*FIRST, *weekly(*rest)]
    raise LookupError("FORMS")


def cases_in(output):
    found = [json.loads(line[5:]) for line in output.splitlines() if line.startswith("case ")]
    return {case["name"]: case for case in found}


@pytest.fixture(scope="module", params=["as it comes", *weekly("1", "0")])
def on_one_device(request, tmp_path_factory, selected):
    """The forms with oneDNN, which TensorFlow takes by itself on most processors, or without."""
    words = [SCRIPT, tmp_path_factory.mktemp("runs"), "--only", *selected]
    if request.param == "as it comes":
        done = run_with_tensorflow(*words)
    else:
        # A process that has imported TensorFlow has chosen.
        done = subprocess.run(
            [sys.executable, *words],
            env={**os.environ, "TF_ENABLE_ONEDNN_OPTS": request.param},
            capture_output=True,
            text=True,
            timeout=600,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    return cases_in(done.stdout)


@pytest.mark.parametrize("name", names_of_forms())
def test_a_fit_that_was_left_and_resumed_is_that_of_keras_bit_for_bit(on_one_device, name):
    case = on_one_device[name]
    assert isinstance(case["expected"], dict), case["expected"]
    assert case["resumed"] == case["expected"]


@pytest.mark.weekly  # `test_training_late_variables.py` shows it of a loop.
@pytest.mark.parametrize(
    ("strategy", "workers", "names"),
    [
        ("mirrored", 1, ["metrics of a property, loss=None"]),
        ("mirrored", 1, ["pairs in a tuple"]),
        ("multi-worker", 2, ["subclass, not built"]),
    ],
)
def test_variables_that_the_first_step_creates_are_restored_on_all_replicas(
    tmp_path, strategy, workers, names
):
    arguments = [str(tmp_path / "runs"), "--only", *names]
    with Cluster(tmp_path / "run", SCRIPT.name, arguments, workers, strategy) as cluster:
        assert cluster.wait() == [0] * workers, cluster.output()
    for worker in range(workers):
        cases = cases_in(cluster.log(worker).read_text())
        assert list(cases) == names
        for name, case in cases.items():
            assert isinstance(case["expected"], dict), (name, case["expected"])
            assert case["resumed"] == case["expected"], name
