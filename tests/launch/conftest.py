"""The fixture that leaves no process behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from supervised import Run, processes_of


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path / "run")
    yield run
    run.clean_up()
    left = processes_of(tmp_path)
    for process in left:
        process.kill()
    assert not left
