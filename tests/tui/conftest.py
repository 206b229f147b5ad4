"""What the tests of the app share: a clean environment, and nothing that moves by itself."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rundir_factory import RunFactory, two_branches

from waiting import LEAST_SECONDS

_SCRUBBED = ("NO_COLOR", "COLORTERM", "FORCE_COLOR", "COLUMNS", "LINES")


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Takes away what changes how Textual draws, and stops the cursor's blinking."""
    for name in list(os.environ):
        foreign = name.startswith("TEXTUAL") and not name.startswith("TEXTUAL_SNAPSHOT")
        if foreign or name in _SCRUBBED:
            monkeypatch.delenv(name)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    from faster_textual import make_textual_faster
    from textual.widgets import Input

    from tfckpt_tui.app import run_progress

    monkeypatch.setattr(Input.cursor_blink, "_default", False)
    # The app shows for 8 s what is done. A loaded machine may need longer to show it at all.
    monkeypatch.setattr(run_progress, "_DONE_SECONDS", LEAST_SECONDS)
    make_textual_faster(monkeypatch)
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def live(tmp_path: Path) -> RunFactory:
    """A run whose trainer is this very process."""
    return two_branches(tmp_path / "language-model", live=True)


@pytest.fixture
def ended(tmp_path: Path) -> RunFactory:
    """A run that nobody trains any more."""
    return two_branches(tmp_path / "language-model", now=time.time() - 3600)
