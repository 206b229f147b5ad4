"""Time to the first frame and resident memory of the app, against a bare Textual app.

    python tests/benchmarks/first_frame.py [--rounds N] [--checkpoints N ...]

Each program is started in a pseudo-terminal; the time runs until its words are on the screen.
The two apps and `import tensorflow` take turns in one run.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

for part in ("", "e2e", "tui"):
    sys.path.insert(0, str(Path(__file__).parents[1] / part))
from rundir_factory import RunFactory
from scripts.figures import report, report_ratio
from scripts.machine import on_quiet_machine
from terminal import Terminal

BARE = [sys.executable, str(Path(__file__).with_name("scripts") / "bare_app.py")]


@on_quiet_machine
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--checkpoints", type=int, nargs="+", default=[10, 1_000, 10_000, 100_000])
    options = parser.parse_args()
    report("import tensorflow", [import_tensorflow()], "s")
    for count in options.checkpoints:
        with tempfile.TemporaryDirectory() as directory:
            compare(Path(directory), count, options.rounds)


def compare(root: Path, count: int, rounds: int) -> None:
    """Starts both apps in turns on a directory of so many checkpoints."""
    factory = RunFactory(root).create()
    for step in range(1, count + 1):
        factory.checkpoint(step, listed=step == count)
    ours = [sys.executable, "-m", "tfckpt_tui.cli.main", "attach", str(root)]
    newest = f"ckpt-{count}" if count else "no checkpoint"
    first_frame(ours, "history")
    bare_times, frame_times, row_times, memory = [], [], [], []
    for _ in range(rounds):
        bare_times.append(first_frame(BARE, "bare app ready")[0])
        frame, rows, resident = first_frame(ours, "history", newest)
        frame_times.append(frame)
        row_times.append(rows)
        memory.append(resident)
    size = {"along": "checkpoints", "at": count}
    report("a bare Textual app", [1e3 * seconds for seconds in bare_times], "ms", **size)
    report_ratio("first frame", frame_times, bare_times, "a bare Textual app", **size)
    report_ratio("rows on screen", row_times, bare_times, "a bare Textual app", **size)
    report("resident memory", [resident / 1e6 for resident in memory], "MB", **size)


def first_frame(
    command: list[str], frame: str, rows: str | None = None
) -> tuple[float, float, float]:
    """Seconds until `frame` is shown, until `rows` are, and the memory that is resident then."""
    began = time.perf_counter()
    # Installed programs have their bytecode; a working copy may be told not to write it.
    environment = {"PYTHONDONTWRITEBYTECODE": ""}
    with Terminal(command, columns=140, rows=40, environment=environment) as terminal:
        terminal.wait_for(frame, 60)
        until_frame = time.perf_counter() - began
        terminal.wait_for(rows or frame, 60)
        until_rows = time.perf_counter() - began
        resident = psutil.Process(terminal.process.pid).memory_info().rss
        terminal.press("q")
        terminal.process.wait(10)
    return until_frame, until_rows, resident


def import_tensorflow() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import tensorflow"], check=True, capture_output=True)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
