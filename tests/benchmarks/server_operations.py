"""What a run of two workers asks of the server of a network disk, by who asks and for what.

    python tests/benchmarks/server_operations.py [--seconds N] [--settle N]

A FUSE file system of the tests, whose clients keep attributes for 3 s as NFS does, counts what
reaches its server: first while nobody looks at the run, then while `watch`, the app and the list of
runs do on another machine.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

for part in ("", "training", "e2e"):
    sys.path.insert(0, str(Path(__file__).parents[1] / part))
from scripts.figures import report
from scripts.machine import on_quiet_machine
from terminal import Terminal

from served_run import Asked, ServedRun, served_run

RARE = 0.02
"""Operations a second that are not worth a line."""


def report_asked(what: str, asked: Asked, seconds: float) -> None:
    """Reports operations a second."""
    for who, calls in sorted(asked.items()):
        report(f"{who}, {what}", [calls.total() / seconds], "operations a second")
        for name, count in calls.most_common():
            if count / seconds >= RARE:
                report(f"{who}, {what}: {name}", [count / seconds], "operations a second")


def look(served: ServedRun, words: list[str], shown: str, seconds: float) -> Asked:
    """Returns what is asked while a program on another machine shows the run."""
    command = [sys.executable, "-m", "tfckpt_tui.cli.main", *words]
    with Terminal(command, columns=140, rows=40) as terminal:
        terminal.wait_for(shown, 60)
        time.sleep(seconds / 4)
        return served.count(seconds)


@on_quiet_machine
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--settle", type=float, default=45.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, served_run(Path(directory)) as served:
        time.sleep(options.settle)
        report_asked("nobody looks", served.count(options.seconds), options.seconds)
        there = served.elsewhere.root
        for what, words, shown in (
            ("the app is open", [str(there)], "training"),
            ("the list is open", ["browse", str(there.parent)], "1 training"),
        ):
            report_asked(what, look(served, words, shown, options.seconds), options.seconds)


if __name__ == "__main__":
    main()
