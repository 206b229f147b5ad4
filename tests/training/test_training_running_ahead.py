"""The loop of one worker prepares the next step while the device computes the present one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tensorflow_processes import run_with_tensorflow
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.rundir.storage.documents import load

SCRIPT = Path(__file__).parent / "scripts" / "running_ahead.py"

pytestmark = pytest.mark.tensorflow

SUMS = [1.0, 3.0, 6.0, 10.0, 15.0, 21.0, 28.0, 36.0]


def test_the_loop_waits_for_a_step_only_after_the_next_or_before_a_save(tmp_path):
    ended = run_with_tensorflow(SCRIPT, tmp_path / "run", TF_CPP_MIN_LOG_LEVEL="3")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1]) == {"forced": [], "sums": SUMS}
    run = RunDirectory(tmp_path / "run")
    for step in (4, 8):
        record = load(run.record(f"ckpt-{step}"), CheckpointRecord)
        assert record.metrics["loss"] == SUMS[step - 1]
