"""Commands as processes on a usual run directory, against `python -c pass`.

    python tests/benchmarks/commands.py [--rounds N] [--checkpoints N]

A command and the bare interpreter take turns. The run has two workers, and a thread of this process
answers what is asked of its trainer. `save` ends when that answers, so its processor time counts;
its wall time stands beside it. `click` and `msgspec` alone, which parse the command line and decode
records, show how much is ours. All modules are compiled, as an installation leaves them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

for part in ("", "tui"):
    sys.path.insert(0, str(Path(__file__).parents[1] / part))
from answering_trainer import AnsweringTrainer, done
from rundir_factory import RunFactory
from scripts.figures import report, report_ratio
from scripts.machine import on_quiet_machine

from command_running import BINARY
from tfckpt_trainer.rundir.records.run import ScriptCommand
from tfckpt_trainer.rundir.storage.documents import store

BARE = [sys.executable, "-c", "pass"]
LIBRARIES = [sys.executable, "-c", "import click, msgspec, pathlib, dataclasses"]
COMMANDS = ("status", "ls", "save")
STEPS_BETWEEN = 50


class Cost(NamedTuple):
    """What a process took."""

    wall: float
    processor: float


@on_quiet_machine
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--checkpoints", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = f"{directory}/compiled"
        made = usual_run(Path(directory) / "run", options.checkpoints)
        with AnsweringTrainer(made.run, done("Saved ckpt-1050.", name="ckpt-1050")):
            for command in COMMANDS:
                words = [str(BINARY), command, str(made.run.root)]
                measure(f"`{command}`", words, options.rounds)
        measure("click and msgspec alone", LIBRARIES, options.rounds)


def usual_run(root: Path, checkpoints: int) -> RunFactory:
    """Writes a live run with a checkpoint every 50 steps."""
    made = RunFactory(root).create()
    parent = None
    for number in range(1, checkpoints + 1):
        ago = 10.0 * (checkpoints - number)
        parent = made.checkpoint(STEPS_BETWEEN * number, parent=parent, seconds_ago=ago)
    command = ScriptCommand(command=("python", "train.py"), working_directory=str(root.parent))
    store(made.run.command_file, command)
    for worker in range(2):
        made.live_worker(worker, step=STEPS_BETWEEN * checkpoints + 7, branch=0)
    return made


def measure(what: str, words: list[str], rounds: int) -> None:
    """Reports what a process costs."""
    pairs = [(cost(words), cost(BARE)) for _ in range(rounds + 1)]
    # The first one fills the page cache.
    ours, bare = zip(*pairs[1:], strict=True)
    for kind, field in (("wall time", 0), ("processor time", 1)):
        times, references = ([one[field] for one in costs] for costs in (ours, bare))
        report(f"{kind} in ms, {what}", [1e3 * seconds for seconds in times], "ms")
        report_ratio(f"{kind}, {what}", times, references, "`python -c pass`")


def cost(words: list[str]) -> Cost:
    """Runs a process to its end."""
    began = time.perf_counter()
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, words
    return Cost(wall, used.ru_utime + used.ru_stime)


if __name__ == "__main__":
    main()
