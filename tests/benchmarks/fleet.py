"""What the list of runs costs: the first list, and while it is open processor and terminal.

    python tests/benchmarks/fleet.py [--seconds N] [--live N] [--runs N ...]

The first list is made in a process of its own, against `scandir` and `stat` of the same files in
that process. All but the live runs ended within the last ten days, one in twenty of them today.

Then the app runs in a pseudo-terminal of 140 by 40. A process of its own writes heartbeats and
measurements of the live runs each second. Beside it, a bare Textual app that does nothing, and what
`scandir` and `stat` of the same files cost every two seconds, as often as the app reads live runs.
"""

from __future__ import annotations

import argparse
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
from scripts.figures import report, report_ratio
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
    parser.add_argument("--runs", type=int, nargs="+", default=[200, 1000])
    options = parser.parse_args()
    for count in options.runs:
        with (
            tempfile.TemporaryDirectory() as directory,
            simulated(Path(directory), options.live, count - options.live),
        ):
            measure_list(Path(directory), count, options.seconds)
    bare = [sys.executable, str(SCRIPTS / "bare_app.py")]
    measure("a bare app", bare, "bare app ready", options.seconds)


def measure_list(root: Path, count: int, seconds: float) -> None:
    """Reports what the list of all runs below a directory costs."""
    size = {"along": "runs", "at": count}
    words = [sys.executable, str(SCRIPTS / "first_lists.py"), str(root)]
    told = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    rounds = [[float(word) for word in line.split()] for line in told.splitlines()]
    wall, bare_wall, processor, bare_processor = zip(*rounds, strict=True)
    against = "scandir and stat of the same files"
    report_ratio("first list", wall, bare_wall, against, **size)
    report_ratio("first list, processor", processor, bare_processor, against, **size)
    listed = [sys.executable, "-m", "tfckpt_tui.cli.main", "browse", str(root)]
    what = f"the list of {count:,} runs"
    measure(what, listed, "[0-9]+ training", seconds)
    # It is read once in POLL_SECONDS.
    shares = [100 * seconds / POLL_SECONDS for seconds in bare_processor]
    report(f"{against}, {count:,} runs", shares, "% of a core")


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


if __name__ == "__main__":
    main()
