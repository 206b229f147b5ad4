"""What the list of runs costs while it is open: processor, and bytes to the terminal.

    python tests/benchmarks/fleet.py [--seconds N] [--live N] [--ended N]

The app runs in a pseudo-terminal of 140 by 40. A process of its own writes heartbeats and
measurements of the live runs each second. Beside it, a bare Textual app that does nothing, and what
`scandir` and `stat` of the same files cost every two seconds, as often as the app reads.
"""

from __future__ import annotations

import argparse
import os
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
from scripts.figures import report
from scripts.machine import on_quiet_machine
from terminal import Terminal
from terminal_load import report_load

SCRIPTS = Path(__file__).with_name("scripts")
SETTLE_SECONDS = 15.0
POLL_SECONDS = 2.0


@on_quiet_machine
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--live", type=int, default=20)
    parser.add_argument("--ended", type=int, default=180)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        with simulated(root, options.live, options.ended):
            listed = [sys.executable, "-m", "tfckpt_tui.cli.main", "browse", str(root)]
            measure("the list", listed, "[0-9]+ training", options.seconds)
            bare = [sys.executable, str(SCRIPTS / "bare_app.py")]
            measure("a bare app", bare, "bare app ready", options.seconds)
            report("scandir and stat of the same files", [looked_at(root)], "% of a core")


@contextmanager
def simulated(root: Path, live: int, ended: int) -> Iterator[None]:
    """Runs that go on by themselves, and others that have ended."""
    words = [str(SCRIPTS / "simulated_fleet.py"), str(root), str(live), str(ended)]
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"ready\n"
            yield
        finally:
            writer.kill()


def measure(what: str, command: list[str], shown: str, seconds: float) -> None:
    """Reports what a program costs once it shows some words."""
    with Terminal(command, columns=140, rows=40) as terminal:
        terminal.wait_for(shown, 60)
        time.sleep(SETTLE_SECONDS)
        started = psutil.Process(terminal.process.pid)
        # On network disks, a command runs in a child process.
        report_load(what, terminal, *(started.children() or [started]), seconds)


def looked_at(root: Path) -> float:
    """Percent of a core that a look at all files takes every `POLL_SECONDS`."""
    began, times = time.process_time(), 5
    for _ in range(times):
        for place, _, _ in os.walk(root):
            with os.scandir(place) as entries:
                for entry in entries:
                    entry.stat(follow_symlinks=False)
    return 100 * (time.process_time() - began) / times / POLL_SECONDS


if __name__ == "__main__":
    main()
