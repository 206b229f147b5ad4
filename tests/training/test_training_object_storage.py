"""Training refuses URLs of object storage, instead of training into a directory named `gs:`."""

from __future__ import annotations

import pytest
from training_cluster import SCRIPTS

from tensorflow_processes import run_with_tensorflow

pytestmark = pytest.mark.tensorflow


def test_training_never_starts_in_object_storage(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run_with_tensorflow(SCRIPTS / "in_object_storage.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "UsageError gs://bucket/run cannot be a run directory",
        "UsageError gs://bucket/run cannot be the directory of TensorBoard",
        "UsageError gs://bucket/run cannot be a fallback directory",
        "UsageError gs://bucket/run cannot be a run directory",
    ]
    assert not any(path.name.startswith("gs") for path in tmp_path.iterdir())
