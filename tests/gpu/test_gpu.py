"""What a machine with a GPU does, on its GPU; skipped without one."""

from __future__ import annotations

import json
import subprocess

import pytest
from test_training_exact import (
    test_thirty_steps_after_a_restore_equal_those_of_a_run_that_never_stopped as check_exactness,
)

from command_running import BINARY

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize("strategy", ["one-device", "mirrored"])
def test_the_self_test_passes_and_measures_the_gpu(gpus, strategy):
    ended = subprocess.run(
        [BINARY, "selftest", "--strategy", strategy, "--json"], capture_output=True, check=False
    )
    result = json.loads(ended.stdout)
    assert ended.returncode == 0, result
    assert {row["name"]: row["outcome"] for row in result["rows"]} == {
        row["name"]: "passed" for row in result["rows"]
    }


@pytest.mark.parametrize("strategy", ["one-device", "mirrored"])
def test_steps_after_a_restore_are_exact_on_the_gpu(gpus, tmp_path, monkeypatch, strategy):
    monkeypatch.setenv("TF_DETERMINISTIC_OPS", "1")
    check_exactness(tmp_path, strategy, 1, [])
