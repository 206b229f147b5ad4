"""The tour of docs/get-started/tour.md, step by step as it is written there, in real terminals.

Before its last steps the app is left, and another one attached, in a small terminal; a worker is
killed meanwhile.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from terminal import Terminal

from documentation import undocumented
from tensorflow_processes import CommandProcess, python_with_tensorflow
from waiting import MOST_SECONDS, wait_until

pytestmark = [pytest.mark.tensorflow, pytest.mark.e2e]

TOOL = [sys.executable, "-m", "tfckpt_tui.cli.main"]
SCRIPTS = Path(__file__).with_name("scripts")
TOOL_WITH_SMALL_DEMO = [sys.executable, str(SCRIPTS / "small_demo.py")]
TOUR = Path(__file__).parents[2] / "docs" / "get-started" / "tour.md"
SPECIAL = {"space": " ", "right": "\x1b[C"}
LIMIT_SECONDS = 60
STEPS_IN_LIST = 6
"""The last steps, in the list of runs."""


@dataclass(frozen=True)
class Step:
    number: int
    keys: tuple[str, ...]
    words: str
    is_gone: bool

    def take(self, app: Terminal) -> None:
        app.press(*(SPECIAL.get(key, key) for key in self.keys))
        wait = app.wait_until_gone if self.is_gone else app.wait_for
        try:
            wait(re.escape(self.words), LIMIT_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"step {self.number}: {error}") from None


def steps() -> list[Step]:
    row = re.compile(r"^\| (\d+) \|(.*)\|.*\| (~~)?`([^`]+)`(?:~~)? \|$", re.MULTILINE)
    return [
        Step(int(number), tuple(re.findall(r"`([^`]+)`", keys)), words, bool(is_gone))
        for number, keys, is_gone, words in row.findall(TOUR.read_text())
    ]


def status_of(run: Path) -> tuple[int, dict[str, Any]]:
    """Returns the status of `status --json`, and what it printed."""
    command = CommandProcess("tfckpt_tui.cli.main", "status", run, "--json")
    output, _ = command.communicate(MOST_SECONDS)
    return command.wait(), json.loads(output)


def processes_of(run: Path) -> list[psutil.Process]:
    """Every process that works for the run."""
    found = []
    for process in psutil.process_iter(["cmdline", "environ"]):
        words = process.info["cmdline"] or []
        environment = process.info["environ"] or {}
        if str(run) in words or environment.get("TFCKPT_RUN_DIR") == str(run):
            found.append(process)
    return found


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    """A run directory whose processes are gone in the end, however the test ends."""
    directory = tmp_path / "run"
    yield directory
    for process in processes_of(directory):
        process.kill()


def test_no_step_is_left_out():
    numbers = [step.number for step in steps()]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 40


@pytest.mark.matrix
@pytest.mark.timeout(900)
def test_each_step_does_what_the_tour_says(run: Path) -> None:
    all_steps = steps()
    in_run, in_list = all_steps[:-STEPS_IN_LIST], all_steps[-STEPS_IN_LIST:]
    *before, dialog, stop = in_run
    command = [*TOOL_WITH_SMALL_DEMO, "demo", "--dir", str(run)]
    # Workers find the program of the small demo there.
    path = os.pathsep.join([str(SCRIPTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {
        "PYTHONPATH": path,
        "TMPDIR": str(run.parent),
        "PYTHON_WITH_TENSORFLOW": shlex.join(python_with_tensorflow()),
    }
    with Terminal(command, columns=130, rows=44, environment=environment) as app:
        first_loss = float(app.wait_for(r"loss (\d\.\d+)", 120)[1])
        app.wait_for(r"ckpt-200 ", 120)
        assert float(app.wait_for(r"loss (\d\.\d+)")[1]) < first_loss
        for step in before:
            step.take(app)
        app.press("q")
        assert app.process.wait(MOST_SECONDS) == 0
    assert undocumented(run) == []

    with Terminal([*TOOL, "attach", str(run)], columns=80, rows=24) as app:
        app.wait_for(r"● training")
        open_tensorboard(app)
        kill_a_worker(app, run)
        dialog.take(app)
        stop.take(app)
        app.press("q")
        assert app.process.wait(MOST_SECONDS) == 0
    subprocess.run([*TOOL, "tensorboard", run, "--stop"], check=True, capture_output=True)
    status, report = status_of(run)
    assert (status, report["run"]["state"], report["run"]["branch"]) == (0, "stopped", 1)
    wait_until(lambda: not processes_of(run), 20, "no process of the run left")

    with Terminal([*TOOL, "browse", str(run.parent)], columns=80, rows=24) as app:
        for step in in_list:
            step.take(app)
        app.press("q")
        assert app.process.wait(MOST_SECONDS) == 0


def open_tensorboard(app: Terminal) -> None:
    """Starts TensorBoard by keys, and reads its page."""
    app.press("t")
    app.wait_for(r"not running")
    app.press("s")
    url = app.wait_for(r"(http://127\.0\.0\.1:\d+/)", 60)[1]
    with urllib.request.urlopen(url, timeout=30) as page:
        assert b"TensorBoard" in page.read()
    app.press("escape")


def kill_a_worker(app: Terminal, run: Path) -> None:
    """Kills a worker, reads what happened, and waits until all train again."""
    before = status_of(run)[1]
    assert before["run"]["state"] == "training"
    victim = before["workers"][1]["pid"]
    os.kill(victim, signal.SIGKILL)
    app.wait_for(r"failure  Worker 1 was killed by SIGKILL", 30)
    app.wait_for(r"restarted 1 of 3 times", 30)
    app.wait_for(r"● training", 90)

    def back_at_work() -> dict[str, Any] | None:
        status = status_of(run)[1]
        pids = {worker["pid"] for worker in status["workers"]}
        going = all(worker["state"] == "training" for worker in status["workers"])
        at_work = len(pids) == 2 and victim not in pids and going and status["run"]["step"] > 0
        return status["run"] if at_work else None

    after = wait_until(back_at_work, 90, "back at work from the newest checkpoint")
    assert after["branch"] == 1
    assert after["step"] >= before["run"]["step"] - 100
