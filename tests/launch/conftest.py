"""The run that most tests of this folder supervise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from supervised import Run


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path / "run")
    yield run
    run.clean_up()
