"""Nothing is left behind by an app whose terminal is closed, at whichever moment.

The run is live, and the machine is busy: several sessions are open at the same time. More of them:

CLOSED_SESSIONS=300 pytest tests/e2e/test_closed_terminal.py
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from terminal import Terminal

from waiting import LEAST_SECONDS, wait_until

pytestmark = pytest.mark.e2e

SESSIONS = int(os.environ.get("CLOSED_SESSIONS", "4"))
AT_ONCE = 4
SIMULATED_RUN = Path(__file__).parents[1] / "benchmarks" / "scripts" / "simulated_run.py"
LATEST_CLOSE = 0.3
"""Seconds after the last key: the app takes about as long to quit, or to open a dialog."""
OPENING = "rpexL?ldcoTt,wu"
"""Keys that open a dialog or a screen."""


STUCK = """
import asyncio
from textual.widgets import Static
from tfckpt_tui.app.terminal import driver
from tfckpt_tui.app.base_app import BaseApp
from tfckpt_tui.settings.config import Config

driver.LONGEST_LEAVE_SECONDS = 1.0

class Stuck(BaseApp):
    CSS_PATH = None

    def compose(self):
        yield Static("ready")

    async def on_key(self):
        self.query_one(Static).update("stuck")
        await asyncio.Event().wait()

Stuck(Config()).run()
"""
"""An app that handles no further message, not even the one that ends it."""


@pytest.fixture
def live_run(tmp_path: Path) -> Iterator[Path]:
    """A run that is written while the test looks at it."""
    directory = tmp_path / "run"
    words = [sys.executable, str(SIMULATED_RUN), str(directory), "2", "1000000", "0.3", "20"]
    process = subprocess.Popen(words)
    try:
        wait_until((directory / "ckpt-20.index").exists, LEAST_SECONDS, "a checkpoint")
        yield directory
    finally:
        process.kill()
        process.wait()


@pytest.mark.timeout(120 + SESSIONS * LEAST_SECONDS / AT_ONCE)
def test_a_terminal_closed_at_any_moment_leaves_no_process_and_no_crash(
    live_run: Path, tmp_path: Path
) -> None:
    environment = {"XDG_STATE_HOME": str(tmp_path / "state")}

    def what_stays(number: int) -> str:
        key = "q" if number % 2 else OPENING[number // 2 % len(OPENING)]
        pause = random.Random(number).uniform(0, LATEST_CLOSE)
        command = [sys.executable, "-m", "tfckpt_tui.cli.main", str(live_run)]
        with Terminal(command, environment=environment) as terminal:
            terminal.wait_for(r"ckpt-\d+ ")
            terminal.press(key)
            time.sleep(pause)
            terminal.close()
            with suppress(subprocess.TimeoutExpired):
                terminal.process.wait(LEAST_SECONDS)
                return ""
            return f"process after {key}, closed {pause:.3f} s later"

    with ThreadPoolExecutor(AT_ONCE) as pool:
        assert [found for found in pool.map(what_stays, range(SESSIONS)) if found] == []
    assert [path.read_text() for path in tmp_path.rglob("crash-*")] == []


def test_an_app_that_waits_forever_ends_with_its_terminal():
    with Terminal([sys.executable, "-c", STUCK]) as terminal:
        terminal.wait_for("ready")
        terminal.press("x")
        terminal.wait_for("stuck")
        terminal.close()
        assert terminal.process.wait(LEAST_SECONDS) == 128 + signal.SIGHUP
