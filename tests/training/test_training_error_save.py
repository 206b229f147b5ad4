"""An error that ends the script saves the last step, or says why it does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from this_process import run_here
from training_cluster import SCRIPTS, Cluster

from tensorflow_processes import run_with_tensorflow
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.heartbeats.reading import read_workers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.rundir.records.exactness import ExactnessLevel
from tfckpt_trainer.rundir.records.worker import Ending
from tfckpt_trainer.rundir.storage.documents import load
from tfckpt_trainer.rundir.storage.locks import locked
from waiting import wait_until
from weekly import weekly

pytestmark = pytest.mark.tensorflow

SCRIPT = SCRIPTS / "interrupted.py"
STEPS, AT = 12, 8


@pytest.fixture
def train(capfd) -> Callable[..., tuple[int, str]]:
    """Runs the script; returns its exit status and what it wrote to stderr."""

    def run_script(run: RunDirectory, *words: str, here: bool = True) -> tuple[int, str]:
        words = ("--steps", str(STEPS), *words)
        if not here:
            done = run_with_tensorflow(SCRIPT, *words, TFCKPT_RUN_DIR=str(run.root))
            return done.returncode, done.stderr
        capfd.readouterr()
        status = run_here(SCRIPT.name, "--threads", "0", *words, TFCKPT_RUN_DIR=str(run.root))
        return status, capfd.readouterr().err

    return run_script


def saved(run: RunDirectory) -> list[str]:
    return sorted(path.stem for path in run.root.glob("*.index"))


def notes(run: RunDirectory) -> str:
    return "\n".join(entry.message for entry in read_entries(run))


def values(run: RunDirectory, name: str) -> dict[str, np.ndarray]:
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(run.root / name))
    return {
        key: reader.get_tensor(key)
        for key, kind in reader.get_variable_to_dtype_map().items()
        if key.startswith(("model/", "optimizer/")) and kind != tf.string
    }


@pytest.mark.parametrize("words", [(), ("--fit",), *weekly((("--strategy", "mirrored"),))])
def test_the_step_before_an_error_is_saved_and_training_goes_on_from_it(
    train, tmp_path: Path, words
):
    run, whole = RunDirectory(tmp_path / "run"), RunDirectory(tmp_path / "whole")
    # The interpreter itself handles the error of a loop.
    status, errors = train(run, *words, "--fail", "after", "--at", str(AT), here="--fit" in words)
    assert status == 1, errors
    assert "ValueError: the script failed after" in errors
    assert f"Saved step {AT} after the error." in errors
    assert saved(run) == [f"ckpt-{AT}"]
    record = load(run.record(f"ckpt-{AT}"), CheckpointRecord)
    assert record.trigger == "error"
    assert record.metrics["loss"] is not None
    assert record.exactness.level is not ExactnessLevel.EXPECTED
    assert f"step {AT} ended with an error after its step function" in record.exactness.words
    (worker,) = read_workers(run)
    assert (worker.ending, worker.step) == (Ending.FAILED, AT)

    here = "mirrored" not in words
    train(run, *words, here=here)
    train(whole, *words, here=here)
    (expected, found) = (values(one, f"ckpt-{STEPS}") for one in (whole, run))
    assert expected.keys() == found.keys()
    for key, value in expected.items():
        np.testing.assert_array_equal(found[key], value, err_msg=key)


def test_generators_around_the_run_do_not_hide_the_error(train, tmp_path: Path):
    run = RunDirectory(tmp_path / "run")
    status, errors = train(run, "--fail", "around", "--at", str(AT))
    assert status == 1
    assert saved(run) == [f"ckpt-{AT}"], errors


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        ("input", f"the input of step {AT + 1} could not be read"),
        ("before", f"the step functions of step {AT} did not all run"),
        ("within", f"it came within step {AT}"),
        ("nan", f"metrics of step {AT} are not finite: penalty is nan."),
    ],
)
def test_a_step_that_is_not_whole_is_not_saved(train, tmp_path: Path, failure: str, reason: str):
    run = RunDirectory(tmp_path / "run")
    status, errors = train(run, "--fail", failure, "--at", str(AT))
    assert status == 1
    assert f"Not saved after the error: {reason}" in errors
    assert f"Not saved after the error: {reason}" in notes(run)
    assert saved(run) == []


def test_an_error_that_the_script_catches_saves_nothing(train, tmp_path: Path):
    run = RunDirectory(tmp_path / "run")
    status, errors = train(run, "--fail", "caught", "--at", str(AT))
    assert status == 1
    assert "RuntimeError: a later error" in errors
    assert "after the error" not in errors
    assert saved(run) == []


def test_nothing_is_saved_beside_another_trainer(tmp_path: Path):
    words = ["--steps", str(STEPS), "--fail", "other-trainer", "--at", str(AT)]
    with Cluster(tmp_path / "run", SCRIPT.name, words, 1, "one-device") as cluster:
        run = RunDirectory(cluster.run_dir)
        wait_until((tmp_path / "run-left").exists, 120, "an end of the loop")
        with locked(run.trainer_lock, 60, "test"):
            (tmp_path / "run-locked").touch()
            assert cluster.wait() == [1], cluster.output()
    reason = "another trainer has started in this directory."
    assert f"Not saved after the error: {reason}" in cluster.output()
    assert saved(run) == []


def test_workers_that_train_together_say_that_they_cannot_save(tmp_path: Path):
    words = ["--steps", str(STEPS), "--fail", "after", "--at", str(AT)]
    with Cluster(tmp_path / "run", SCRIPT.name, words) as cluster:
        assert all(cluster.wait()), cluster.output()
        run = RunDirectory(cluster.run_dir)
        reason = f"the other workers are within step {AT}, so they cannot save."
        assert f"Not saved after the error: {reason}" in cluster.output()
        assert saved(run) == []
