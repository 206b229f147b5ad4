"""Commands on one named checkpoint among very many: processor time, memory, files opened.

    python tests/benchmarks/one_of_many.py [--checkpoints N ...] [--kinds foreign listed ours]

Each command runs in a process of its own, on a directory in /dev/shm if there is one. `ls`, which
reads about all checkpoints, comes last, to compare with.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from listing import KINDS, MEMORY, Directory
from scripts.figures import report
from scripts.machine import on_quiet_machine

COMMANDS = (
    "inspect {name}",
    "inspect {step}",
    "compare {name} {step}",
    "pin {name}",
    "unpin {step}",
    "prune {name} --dry-run",
    "prune {step} --yes",
    "undo",
    "verify {name}",
    "verify {step} ckpt-1",
    "ls",
    "ls --json",
)
_AGE = 3600.0


@on_quiet_machine
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoints", type=int, nargs="+", default=[10, 1_000, 10_000, 100_000])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=["foreign", "ours"])
    options = parser.parse_args()
    for count in options.checkpoints:
        for kind in options.kinds:
            with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
                run_commands(Path(directory) / "run", kind, count)


def run_commands(run: Path, kind: str, count: int) -> None:
    """Makes so many checkpoints, and runs all commands on them."""
    run.mkdir()
    made = Directory(run, kind)
    for step in range(1, count + 1):
        made.checkpoint(step)
    made.finish()
    age(run)
    step = count // 2
    for command in COMMANDS:
        words = command.format(name=f"ckpt-{step}", step=step).split()
        words.insert(1, str(run))
        report_one(f"{command}, {kind}", words, count)


def age(root: Path) -> None:
    """Makes all files so old that no save can be under way."""
    then = time.time() - _AGE
    for entry in os.scandir(root):
        os.utime(entry.path, (then, then))


def report_one(what: str, words: list[str], checkpoints: int) -> None:
    """Runs a command in a process of its own, and reports what it cost."""
    script = [sys.executable, __file__, "--one"]
    ended = subprocess.run([*script, *words], capture_output=True, text=True, check=True)
    found = json.loads(ended.stderr.splitlines()[-1])
    size = {"along": "checkpoints", "at": checkpoints}
    report(f"{what}: processor time", [found["seconds"]], "s", **size)
    report(f"{what}: peak memory", [found["peak"] / 1e6], "MB", **size)
    report(f"{what}: opened", [found["opened"]], "files", **size)
    report(f"{what}: listed", [found["listed"]], "directories", **size)


def measure(words: list[str]) -> None:
    """Runs one command in this process, and writes what it cost to standard error as JSON."""
    counts = {"open": 0, "os.scandir": 0, "os.listdir": 0}

    def count(event: str, arguments: tuple[object, ...]) -> None:
        if event in counts and isinstance(arguments[0], str | os.PathLike):
            counts[event] += os.fspath(arguments[0]).startswith(words[1])

    from tfckpt_tui.cli.main import run

    sys.addaudithook(count)
    code = run(words)
    peak = Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]
    found = {
        "peak": 1024 * int(peak),
        "seconds": time.process_time(),
        "opened": counts["open"],
        "listed": counts["os.scandir"] + counts["os.listdir"],
        "code": code,
    }
    print(json.dumps(found), file=sys.stderr)


if __name__ == "__main__":
    # The process of one command is not judged: the benchmark itself uses the machine.
    if sys.argv[1:2] == ["--one"]:
        measure(sys.argv[2:])
    else:
        main()
