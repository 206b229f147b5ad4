"""What follows a restore is bit-identical to never having stopped."""

from __future__ import annotations

import json
import signal

import pytest
from training_cluster import Cluster

from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from weekly import weekly

pytestmark = pytest.mark.tensorflow

BACK_THEN_KILLED = ["--steps", "80", "--restore-at", "70", "--die-at", "55"]


def steps_of(log, worker, branch=0, first_only=True):
    """Each logged step of one worker: loss, a digest of every variable, and what it keeps."""
    steps = {}
    for line in log.with_name(f"{log.name}-{worker}.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if entry["branch"] == branch and not (first_only and entry["step"] in steps):
            steps[entry["step"]] = (entry["loss"], entry["digest"], entry["kept"])
    return steps


@pytest.mark.parametrize(
    ("strategy", "workers", "how"),
    [
        # Saved in the foreground, they do so at each change in test_training_found_state.py.
        ("multi-worker", 2, ["--in-parts"]),
        pytest.param("multi-worker", 2, [], marks=[pytest.mark.matrix, pytest.mark.weekly]),
        *weekly(
            ("one-device", 1, []),
            ("mirrored", 1, ["--in-parts"]),
            ("mirrored", 1, []),
            ("multi-worker", 1, []),
            ("multi-worker", 3, ["--in-parts"]),
            ("multi-worker", 4, []),
        ),
    ],
)
def test_thirty_steps_after_a_restore_equal_those_of_a_run_that_never_stopped(
    tmp_path, tool, strategy, workers, how
):
    """The script keeps its steps in `run.state`, and in `run.worker_state` by its own measure."""
    run, log, resumed_log = tmp_path / "run", tmp_path / "log", tmp_path / "resumed"
    # Back to step 20 in place; killed at step 55 of branch 1, so that it resumes from step 40.
    arguments = ["--log", str(log), *BACK_THEN_KILLED, *how]
    with Cluster(run, "exact.py", arguments, workers, strategy) as cluster:
        assert -signal.SIGKILL in cluster.wait(), cluster.output()
    arguments = ["--log", str(resumed_log), "--steps", "80", *how]
    with Cluster(run, "exact.py", arguments, workers, strategy) as cluster:
        assert cluster.wait() == [0] * workers, cluster.output()

    for worker in range(workers):
        uninterrupted = steps_of(log, worker)
        # The chief acts at the end of the step in which it finds the command, or the next one.
        assert list(uninterrupted)[:70] == list(range(1, 71))
        restored = steps_of(log, worker, branch=1)
        assert list(restored)[:30] == list(range(21, 51))
        resumed = steps_of(resumed_log, worker, branch=1)
        assert list(resumed) == list(range(41, 81))
        for step, (*_, kept) in uninterrupted.items():
            assert kept == [step, step * (worker + 1)]
        for step in range(21, 51):
            assert restored[step] == uninterrupted[step], f"in place, worker {worker}, step {step}"
        for step in range(41, 71):
            assert resumed[step] == uninterrupted[step], f"cold, worker {worker}, step {step}"

    shown = tool("inspect", run, "ckpt-20").data
    assert "kept count: 20" in shown
    assert ("mine=40" in shown) == (workers > 1)
    if how:
        return  # Beside training the later saves come when the earlier ones are done.
    names = {path.stem for path in run.glob("*.index")}
    assert names == {"ckpt-20", "ckpt-40", "ckpt-60", "ckpt-b1-40", "ckpt-b1-60", "ckpt-b1-80"}
    kinds = [entry.kind.value for entry in read_entries(RunDirectory(run))]
    first, resumed = ["start", *["save"] * 3, "restore", "save"], ["start", "save", "save"]
    assert kinds == [*first, *resumed, "finish"]
