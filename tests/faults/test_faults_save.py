"""A trainer killed at any point of a save: no checkpoint is ever half, none is lost."""

from __future__ import annotations

import signal
import time

import pytest
from training_cluster import Cluster

from tfckpt_trainer.bundle.verify import verify
from tfckpt_trainer.catalog.commit.saves import finish_interrupted_saves
from tfckpt_trainer.catalog.directory.checkpoints import CheckpointState
from tfckpt_trainer.catalog.directory.history import resume_point
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.rundir.storage.documents import load

pytestmark = pytest.mark.tensorflow

RENAMES_OF_A_SAVE = 12
"""Manifest, data file and index as they are written, the three files of the worker out of their
private directory, manifest of the commit, data file, copy of the record, record, index, state file.
"""
RENAMES_OF_THE_WHOLE = 2
"""Data file and index out of one too, where the shared state is written at once."""


def arguments(*more):
    return ["--save-every", "10", "--steps", "25", *more]


@pytest.mark.parametrize(
    ("how", "more_renames"),
    [([], RENAMES_OF_THE_WHOLE), (["--background"], 0)],
    ids=["foreground", "background"],
)
def test_a_kill_before_any_rename_of_a_save_leaves_whole_checkpoints(tmp_path, how, more_renames):
    """A copy made before a rename has what a process leaves that is killed there."""
    copies = tmp_path / "copies"
    more = arguments("--copy-at-renames", str(copies), *how)
    with Cluster(tmp_path / "run", "steered.py", more, 1, "one-device") as cluster:
        assert cluster.wait() == [0], cluster.output()
    runs = [RunDirectory(copies / str(n + 1)) for n in range(len(list(copies.iterdir())))]
    listed = ["ckpt-20" in run.state_file.read_text() for run in runs]
    renames = RENAMES_OF_A_SAVE + more_renames
    assert listed.index(True) == renames
    assert len(runs) == 2 * renames
    for run in runs:
        check_what_a_kill_left(run)


def check_what_a_kill_left(run: RunDirectory) -> None:
    assert verify(run.root / "ckpt-10").ok
    visible = {path.stem for path in run.root.glob("*.index")}
    assert visible in ({"ckpt-10"}, {"ckpt-10", "ckpt-20"}, {"ckpt-10", "ckpt-20", "ckpt-25"})
    assert all(verify(run.root / name).ok for name in visible)

    finish_interrupted_saves(run)
    after = {path.stem for path in run.root.glob("*.index")}
    assert visible <= after
    states = {c.name: c.state for c in Catalog(run).scan(time.time())}
    assert states == dict.fromkeys(after, CheckpointState.VERIFIED)
    for name in after:
        record = load(run.record(name), CheckpointRecord)
        assert all((run.root / facts.name).is_file() for facts in record.files)
    assert not list(run.saving_directory.iterdir())
    resumed = resume_point(run)
    assert resumed is not None
    assert resumed.checkpoint == max(after)


def test_training_goes_on_after_a_kill_in_mid_save(tmp_path):
    run_dir = tmp_path / "run"
    with Cluster(
        run_dir, "steered.py", arguments("--die-at-rename", "3"), 1, "one-device"
    ) as cluster:
        assert cluster.wait() == [-signal.SIGKILL], cluster.output()
    with Cluster(run_dir, "steered.py", arguments(), 1, "one-device") as cluster:
        assert cluster.wait() == [0], cluster.output()
    names = {path.stem for path in run_dir.glob("*.index")}
    assert names == {"ckpt-10", "ckpt-20", "ckpt-25"}
