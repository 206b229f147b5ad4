"""The tour of the README, by keys alone, through the real app and real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import psutil
import pytest
from terminal import Terminal

from waiting import wait_until

pytestmark = [pytest.mark.tensorflow, pytest.mark.e2e]

TOOL = [sys.executable, "-m", "tfckpt_tui.cli.main"]
SCRIPTS = Path(__file__).with_name("scripts")
TOOL_WITH_SMALL_DEMO = [sys.executable, str(SCRIPTS / "small_demo.py")]


def ask(*arguments):
    """Runs a command with --json and returns its status and what it printed."""
    done = subprocess.run(
        [*TOOL, *arguments, "--json"], capture_output=True, text=True, check=False
    )
    return done.returncode, json.loads(done.stdout)


def small_demo_environment(run_dir):
    """Lets workers find the program of the small demo, and leave no files elsewhere."""
    found = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(SCRIPTS), *([found] if found else [])])
    return {"PYTHONPATH": path, "TMPDIR": str(run_dir.parent)}


def processes_of(run_dir):
    """Every process that works for the run."""
    found = []
    for process in psutil.process_iter(["cmdline", "environ"]):
        words = process.info["cmdline"] or []
        environment = process.info["environ"] or {}
        if str(run_dir) in words or environment.get("TFCKPT_RUN_DIR") == str(run_dir):
            found.append(process)
    return found


@pytest.fixture
def run_dir(tmp_path):
    """A run directory whose processes are gone in the end, however the test ends."""
    directory = tmp_path / "run"
    yield directory
    for process in processes_of(directory):
        process.kill()


@pytest.mark.matrix
@pytest.mark.timeout(600)
def test_a_newcomer_takes_the_tour(run_dir):
    run = str(run_dir)
    command = [*TOOL_WITH_SMALL_DEMO, "demo", "--dir", run, "--workers", "2"]
    with Terminal(command, environment=small_demo_environment(run_dir)) as app:
        app.wait_for(r"● training", 90)
        app.wait_for(r"2 of 2 live")
        first_loss = float(app.wait_for(r"loss (\d\.\d+)", 60)[1])
        app.wait_for(r"ckpt-100 .*every 100 steps", 90)
        assert float(app.wait_for(r"loss (\d\.\d+)")[1]) < first_loss

        app.press("s")
        saved = app.wait_for(r"Saved (ckpt-\d+) \(command\)")[1]
        # Its trigger is shown only while the list needs no scrollbar.
        app.wait_for(rf"{saved} .*✓ verified ")

        app.wait_for(r"ckpt-200 .*every 100 steps", 90)
        app.press("r")
        app.wait_for(r"which checkpoint\?")
        app.press("1", "0", "0")
        app.wait_for(r"ckpt-100  step 100")
        app.wait_for(r"goes back \d+ steps")
        app.wait_for(r"Training continues on new branch 1")
        app.press("enter")
        app.wait_for(r"At ckpt-100 on branch 1.*2 of 2 workers|Restored ckpt-100 on 2 workers")
        app.wait_for(r"branch 1 ")
        app.wait_for(r"ckpt-b1-200", 90)

        app.press("p")
        app.wait_for(r"checkpoints? goe?s? to the trash|These rules keep all")
        app.press("1")
        app.wait_for(r"│ 1 +│")
        app.press("enter")
        app.wait_for(r"Moved to the trash: ")
        app.press("u")
        app.wait_for(r"undo a prune")
        app.press("y")
        app.wait_for(r"Brought back: ")

        app.press("q")
        assert app.process.wait(60) == 0

    assert ask("status", run)[1]["run"]["state"] == "training"
    names = {checkpoint["name"] for checkpoint in ask("ls", run)[1]["checkpoints"]}
    assert {"ckpt-100", "ckpt-200", "ckpt-b1-200"} <= names

    with Terminal([*TOOL, "attach", run], columns=80, rows=24) as app:
        app.wait_for(r"● training")
        app.press("t")
        app.wait_for(r"not running")
        app.press("s")
        url = app.wait_for(r"(http://127\.0\.0\.1:\d+/)", 60)[1]
        with urllib.request.urlopen(url, timeout=30) as page:
            assert b"TensorBoard" in page.read()
        app.press("escape")

        victim = ask("status", run)[1]["workers"][1]["pid"]
        before = ask("status", run)[1]["run"]["step"]
        os.kill(victim, signal.SIGKILL)
        app.wait_for(r"restarted 1 of 3 times", 30)
        app.wait_for(r"● training", 90)

        def back_at_work():
            status = ask("status", run)[1]
            pids = {worker["pid"] for worker in status["workers"]}
            going = all(worker["state"] == "training" for worker in status["workers"])
            return len(pids) == 2 and victim not in pids and going and status["run"]["step"] > 0

        wait_until(back_at_work, 90, "back at work from the newest checkpoint")
        assert ask("status", run)[1]["run"]["branch"] == 1
        assert ask("status", run)[1]["run"]["step"] >= before - 100

        app.press("x")
        app.wait_for(r"save, then stop")
        app.press("s")
        app.wait_for(r"stopped", 60)
        app.press("q")
        assert app.process.wait(60) == 0

    subprocess.run([*TOOL, "tensorboard", run, "--stop"], check=True, capture_output=True)
    status, report = ask("status", run)
    assert (status, report["run"]["state"]) == (0, "stopped")
    wait_until(lambda: not processes_of(run_dir), 20, "no process of the run left")
