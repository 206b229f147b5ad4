"""What the app costs while it is open: processor, bytes to the terminal, memory; and how soon a
key shows.

    python tests/benchmarks/terminal_load.py [--seconds N] [--presses N] [--wandb VENV]

The app runs in a pseudo-terminal of 140 by 40 on a run that a process of its own simulates: its
files are real, its training is not. It trained for an hour before, but for the row of the first
minute, in which charts change most. Idle is a run that ended. With 64 workers that report every
second, the time runs from a key to the frame in which the cursor has moved, a screen emulator
included. With `--wandb`, W&B LEET shows a run that logs the same values as four workers, in a
terminal of the same size. `open_for_long.py` tells what half a day adds.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

for part in ("", "e2e", "tui"):
    sys.path.insert(0, str(Path(__file__).parents[1] / part))
from rundir_factory import two_branches
from scripts.figures import report
from scripts.machine import on_quiet_machine
from terminal import Terminal

from tfckpt_trainer.rundir.paths import RunDirectory
from waiting import wait_until

SIMULATED = Path(__file__).with_name("scripts") / "simulated_run.py"
SETTLE_SECONDS = 15.0
HOUR_STEPS = 3600


@on_quiet_machine
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--presses", type=int, default=100)
    parser.add_argument("--wandb", type=Path, help="a virtual environment with wandb")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        run = two_branches(Path(directory) / "run", now=time.time() - 86400).run
        with opened(run.root) as (terminal, app):
            report_load("after the end of a run", terminal, app, options.seconds)
    with simulated(4, 1.0, HOUR_STEPS) as root, opened(root) as (terminal, app):
        report_load("4 live workers, the first minute", terminal, app, options.seconds)
    for workers in (4, 64):
        run = simulated(workers, 1.0, 2 * HOUR_STEPS, past_steps=HOUR_STEPS)
        with run as root, opened(root) as (terminal, app):
            report_load(f"{workers} live workers", terminal, app, options.seconds)
            report_keys(f"{workers} live workers", terminal, options.presses)
    if options.wandb:
        report_leet(options.wandb / "bin", options.seconds)


@contextmanager
def simulated(workers: int, pause: float, steps: int, past_steps: int = 0) -> Iterator[Path]:
    """A run of so many steps with such a pause between them, and its directory.

    It begins with the step after those that were trained before.
    """
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "run"
        words = [str(root), str(workers), str(steps), str(pause), "60", str(past_steps)]
        writer = subprocess.Popen([sys.executable, str(SIMULATED), *words])
        try:
            # It follows the steps of the past.
            wait_until(RunDirectory(root).worker_status(0).exists, 60, "the simulated run begins")
            yield root
        finally:
            writer.kill()
            writer.wait()


@contextmanager
def opened(root: Path) -> Iterator[tuple[Terminal, psutil.Process]]:
    """The app on a run, when it has settled."""
    command = [sys.executable, "-m", "tfckpt_tui.cli.main", "attach", str(root)]
    with Terminal(command, columns=140, rows=40) as terminal:
        terminal.wait_for("history", 60)
        time.sleep(SETTLE_SECONDS)
        yield terminal, psutil.Process(terminal.process.pid)
        terminal.press("q")
        terminal.process.wait(10)


def report_load(what: str, terminal: Terminal, app: psutil.Process, seconds: float) -> None:
    """Reports processor and bytes over a while."""
    times, count, began = app.cpu_times(), len(terminal.raw), time.monotonic()
    time.sleep(seconds)
    after, passed = app.cpu_times(), time.monotonic() - began
    used = after.user + after.system - times.user - times.system
    sent = len(terminal.raw) - count
    report(f"processor, {what}", [100 * used / passed], "% of a core")
    report(f"to the terminal, {what}", [sent / passed / 1e3], "KB/s")
    report(f"resident memory, {what}", [app.memory_info().rss / 1e6], "MB")


def report_leet(programs: Path, seconds: float) -> None:
    """Reports what W&B LEET writes on a live run of its own."""
    with tempfile.TemporaryDirectory() as home:
        script = SIMULATED.with_name("wandb_run.py")
        writer = subprocess.Popen(
            [programs / "python", script, home, "4", str(HOUR_STEPS)], stdout=subprocess.DEVNULL
        )
        try:
            wait_until(lambda: [*Path(home).glob("wandb/*/run-*.wandb")], 60, "a run of W&B")
            (log,) = Path(home).glob("wandb/offline-run-*/run-*.wandb")
            command = [str(programs / "wandb"), "leet", "run", str(log)]
            with Terminal(command, columns=140, rows=40, environment={"HOME": home}) as terminal:
                terminal.wait_for("examples_per_second", 60)
                time.sleep(SETTLE_SECONDS)
                count = len(terminal.raw)
                time.sleep(seconds)
                sent = (len(terminal.raw) - count) / seconds
                report("to the terminal, W&B LEET", [sent / 1e3], "KB/s")
        finally:
            writer.kill()
            writer.wait()


def report_keys(what: str, terminal: Terminal, presses: int) -> None:
    """Reports the time from a key to the frame that shows what it did."""
    terminal.press("tab")
    time.sleep(1.0)
    chance = random.Random(1)
    taken = []
    for number in range(presses):
        before = focused(terminal)
        began = time.perf_counter()
        terminal.press("tab" if number % 2 else "\x1b[Z")
        while focused(terminal) == before:
            assert time.perf_counter() - began < 5, terminal.text()
            time.sleep(0.0005)
        taken.append(time.perf_counter() - began)
        time.sleep(chance.uniform(0.05, 0.3))
    taken.sort()
    report(f"from a key to its frame, {what}", [1e3 * seconds for seconds in taken], "ms")
    late = 1e3 * taken[int(0.95 * len(taken))]
    report(f"95 % of keys to their frames, {what}", [late], "ms")


def focused(terminal: Terminal) -> tuple[str, ...]:
    """The colours of the panes' left edges: the one that has the focus has another."""
    with terminal._lock:
        buffer = terminal._screen.buffer
        return tuple(buffer[y][0].fg for y in range(40))


if __name__ == "__main__":
    main()
