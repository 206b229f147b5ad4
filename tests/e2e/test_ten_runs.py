"""The list of runs steers ten live runs in a real terminal: each answers for itself."""

from __future__ import annotations

import re
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from steered import SteeredRun
from terminal import Terminal
from training_cluster import Cluster

pytestmark = [pytest.mark.tensorflow, pytest.mark.e2e, pytest.mark.weekly]

COUNT = 10
START_SECONDS = 300
ANSWER_SECONDS = 120


def answered(app: Terminal, verb: str, count: int) -> None:
    """Agrees to a plan for so many runs, and waits until each has answered."""
    app.wait_for(f"{verb} on {count} runs?\\.", ANSWER_SECONDS)
    app.press("y")
    app.wait_for(f"✓ {count} done", ANSWER_SECONDS)
    screen = app.text()
    assert "failed" not in screen
    app.press("q")
    app.wait_for(f"{COUNT} runs")


def test_ten_live_runs_save_pause_and_stop_together(tmp_path: Path) -> None:
    with ExitStack() as stack:
        runs = []
        for number in range(COUNT):
            place = tmp_path / "fleet" / f"run-{number}"
            place.parent.mkdir(exist_ok=True)
            cluster = Cluster(place, "steered.py", [], 1, "one-device")
            runs.append(SteeredRun(stack.enter_context(cluster)))
        for run in runs:
            run.wait_for_step(1)
        command = [sys.executable, "-m", "tfckpt_tui.cli.main", "browse", str(tmp_path / "fleet")]
        environment = {"XDG_STATE_HOME": str(tmp_path / "state")}
        terminal = Terminal(command, columns=100, rows=30, environment=environment)
        app = stack.enter_context(terminal)
        app.wait_for(f"{COUNT} training", START_SECONDS)

        before = [run.names() for run in runs]
        app.press("M")
        app.wait_for(f"{COUNT} marked")
        app.press("s")
        answered(app, "Save", COUNT)
        assert all(run.names() > names for run, names in zip(runs, before, strict=True))

        app.press("M")
        app.wait_until_gone("marked")
        app.press("g", " ", " ", "z")
        answered(app, "Pause", 2)
        app.wait_for(f"{COUNT - 2} training")
        assert len(re.findall("paused", app.text())) == 2
        app.press("z")
        answered(app, "Resume", 2)
        app.wait_for(f"{COUNT} training")

        app.press("M", "x")
        answered(app, "Stop", COUNT)
        for run in runs:
            assert run.cluster.wait(ANSWER_SECONDS) == [0], run.cluster.output()
            assert run.event_log().count("stop") == 1
        app.press("s")
        app.wait_for("0 of 10 runs; 10 cannot: 10 stopped", ANSWER_SECONDS)
