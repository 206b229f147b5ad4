"""The fixture that all tests of the catalog start from."""

from __future__ import annotations

from pathlib import Path

import pytest
from checkpoint_directory import CheckpointDirectory


@pytest.fixture
def made(tmp_path: Path) -> CheckpointDirectory:
    return CheckpointDirectory(tmp_path / "run")
