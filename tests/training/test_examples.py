"""Every example runs, and does what it says."""

from __future__ import annotations

import signal
import sys

import pytest

from tensorflow_processes import run_with_tensorflow
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.rundir.storage.documents import load
from weekly import weekly

pytestmark = pytest.mark.tensorflow


def example(name, *arguments, **environment):
    module = f"tfckpt_trainer.examples.{name}"
    return run_with_tensorflow(module, *arguments, is_module=True, **environment)


def names(directory):
    return {path.stem for path in directory.glob("*.index")}


def test_the_plain_checkpoint_goes_on_where_it_was(tmp_path):
    first = example("plain_checkpoint", "--run-dir", tmp_path, "--steps", 300)
    assert first.returncode == 0, first.stderr
    assert names(tmp_path) == {"ckpt-200", "ckpt-300"}
    second = example("plain_checkpoint", "--run-dir", tmp_path, "--steps", 400)
    assert second.returncode == 0, second.stderr
    assert names(tmp_path) == {"ckpt-200", "ckpt-300", "ckpt-400"}
    whole = example("plain_checkpoint", "--run-dir", tmp_path / "whole", "--steps", 400)
    assert second.stdout == whole.stdout


def test_saving_options_save_at_the_best_and_keep_what_the_script_keeps(tmp_path):
    done = example("saving_options", "--run-dir", tmp_path, "--steps", 210, "--width", 32)
    assert done.returncode == 0, done.stderr
    run = RunDirectory(tmp_path)
    records = {name: load(run.record(name), CheckpointRecord) for name in names(tmp_path)}
    assert any("validation_loss improved" in record.trigger for record in records.values())
    last = records["ckpt-210"]
    assert last.workers[0].state == {"examples": 32 * 210}
    assert len(last.state["validations"]) == 2, "after the steps 100 and 200"


def test_a_preempted_script_asks_to_be_started_again_and_ends_well_then(tmp_path):
    arguments = ["--run-dir", tmp_path, "--steps", 60, "--preempt-at", 30]
    first = example("preemption", *arguments)
    assert first.returncode == 128 + signal.SIGTERM, first.stderr
    assert "done" not in first.stdout
    assert len(names(tmp_path)) == 1
    second = example("preemption", *arguments)
    assert second.returncode == 0, second.stderr
    assert "done" in second.stdout
    assert "ckpt-60" in names(tmp_path)
    assert "retracing" not in first.stderr + second.stderr


def test_a_script_that_knows_nothing_of_us_is_seen_all_the_same(tmp_path, tool):
    done = example("without_library", tmp_path / "theirs", 3)
    assert done.returncode == 0, done.stderr
    listed = tool("ls", tmp_path / "theirs", "--json").json["checkpoints"]
    assert [one["name"] for one in listed] == ["ckpt-3", "ckpt-2", "ckpt-1"]


def learn(root, options):
    """Trains `keras_fit` for an epoch; returns the name of its checkpoint."""
    done = example("keras_fit", *options)
    assert done.returncode == 0, done.stderr
    (name,) = names(root)
    assert load(RunDirectory(root).record(name), CheckpointRecord).metrics["val_accuracy"] > 0.5
    return name


def test_keras_fit_learns(tmp_path):
    learn(tmp_path, ["--run-dir", tmp_path, "--epochs", 1])


@pytest.mark.weekly  # tui/test_cli_export.py exports from a loop at each change.
def test_keras_fit_on_two_replicas_is_exported(tmp_path, tool):
    root, target = tmp_path / "run", tmp_path / "model.keras"
    root.mkdir()
    options = ["--run-dir", root, "--epochs", 1, "--strategy", "mirrored"]
    name = learn(root, options)
    again = [sys.executable, "-m", "tfckpt_trainer.examples.keras_fit", *map(str, options)]
    said = tool("export", root, name, "--to", target, "--", *again)
    assert said.code == 0, said.words
    assert target.is_file()


CLAIMS_OF_ONE_PROCESS = [
    "strategy-run",
    "get-rank",
    "expect-partial",
    "modification-time",
    "restore-in-the-loop",
    "whole-model",
]


@pytest.mark.parametrize(
    "claims",
    # The seventh is about TensorFlow on two workers, which we have no part in.
    [CLAIMS_OF_ONE_PROCESS, *weekly([])],
    ids=["of one process", "all"],
)
def test_what_is_often_said_is_not_so(claims):
    done = example("common_mistakes", *claims)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("claim:") == done.stdout.count("fact:") == (len(claims) or 7)
