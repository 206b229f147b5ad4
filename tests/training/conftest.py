"""What tests of training share."""

from __future__ import annotations

import subprocess

import pytest

from tfckpt_trainer.rundir.journal import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory


@pytest.fixture(autouse=True)
def no_false_alarm(tmp_path):
    """No run of these tests is told that it forgot to pass something."""
    yield
    for journal in tmp_path.rglob("journal.jsonl"):
        messages = [entry.message for entry in read_entries(RunDirectory(journal.parents[1]))]
        assert [message for message in messages if message.startswith("Not saved:")] == []


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 36 MB; only root can make one."""
    place = tmp_path / "small"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=36m", "tmpfs", str(place)],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("mounting a small file system needs root")
    yield place
    subprocess.run(["umount", str(place)], check=True)
