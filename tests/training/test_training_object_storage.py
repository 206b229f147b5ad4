"""Training refuses URLs of object storage, instead of training into a directory named `gs:`."""

from __future__ import annotations

import pytest
from this_process import run_here

pytestmark = pytest.mark.tensorflow


def test_training_never_starts_in_object_storage(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run_here("in_object_storage.py") == 0
    assert capsys.readouterr().out.splitlines() == [
        "UsageError gs://bucket/run cannot be a run directory",
        "UsageError gs://bucket/run cannot be the directory of TensorBoard",
        "UsageError gs://bucket/run cannot be a fallback directory",
        "UsageError gs://bucket/run cannot be a run directory",
    ]
    assert not any(path.name.startswith("gs") for path in tmp_path.iterdir())
