"""Whether a save found the disk full is told by the error itself, not by its words."""

from __future__ import annotations

import json

import pytest
from training_cluster import SCRIPTS

from real_file_systems import small_tmpfs
from tensorflow_processes import run_with_tensorflow

pytestmark = pytest.mark.tensorflow


def test_a_full_disk_is_told_by_the_error_not_by_its_words(tmp_path):
    with small_tmpfs(tmp_path / "disk", megabytes=4) as disk:
        done = run_with_tensorflow(
            SCRIPTS / "full_disk.py", disk / "No space left on device, Disk quota exceeded"
        )
    assert done.stdout, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert "; No space left on device" in told["words"], "not an error of TensorFlow"
    assert told["full"] == {
        "no memory for TensorFlow": False,
        "no room for the manifest": True,
        "no room for a part": True,
        "quota at the commit": True,
        "error of the disk at the beginning": False,
        "error of the disk in a part": False,
        "error of the disk at the commit": False,
        "no memory": False,
        "TensorFlow": True,
        "a known layout": True,
    }
