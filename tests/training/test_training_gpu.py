"""What a machine with a GPU does differently, where no GPU is needed to see it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tensorflow_processes import run_with_tensorflow

SCRIPTS = Path(__file__).parent / "scripts"

pytestmark = pytest.mark.tensorflow


def test_values_in_main_memory_stay_there(tmp_path):
    """A table that is larger than the memory of a GPU can be saved and restored."""
    ended = run_with_tensorflow(SCRIPTS / "placement.py", tmp_path)
    assert ended.returncode == 0, ended.stderr
    placed = json.loads(ended.stdout.splitlines()[-1])
    # Only what has a device stays; so the script sees what it looks for.
    assert placed.pop("plain read") == ["Identity"]
    assert {name: kinds for name, kinds in placed.items() if kinds} == {}
