"""What a save takes, against TensorFlow's own write with a flush of its files.

    python tests/benchmarks/save.py [--megabytes MB...] [--shared MB...] [--growth N...]
                                    [--rounds N]

A save is flushed, verified and committed. Both ways take turns in one process: the time of ours is
that for which training stands still, all between two steps included. Sizes of `--shared` are
written by two workers, each of which writes a part; one of them writes as TensorFlow does, while
the other waits. So are 100 MB by each number of workers of `--growth`.

The first save of a process is told apart: it tells the layout of later ones.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tfckpt_trainer.launch.launcher import launch
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.supervision.stop import stop_supervisor
from tfckpt_trainer.rundir.paths import RunDirectory

sys.path.insert(0, str(Path(__file__).parents[1]))
from scripts.figures import report_ratio
from scripts.machine import on_quiet_machine

from waiting import wait_until

SCRIPT = Path(__file__).with_name("scripts") / "timed_saves.py"

LIMIT_SECONDS = 600

GROWTH_MEGABYTES = 100
"""Size of the checkpoints that show the growth with workers."""

WRITE = "Checkpoint.write and fsync"


def measured(workers: int, *words: object) -> dict[str, list[float]]:
    """Returns the seconds that the script measured with these arguments, by what it did."""
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory) / "seconds.json"
        run = RunDirectory(Path(directory) / "run")
        launch(
            LaunchOptions(
                run_directory=str(run.root),
                command=(sys.executable, str(SCRIPT), "--output", str(output), *map(str, words)),
                working_directory=directory,
                workers=workers,
                standby=False,
            )
        )
        try:
            text = wait_until(
                lambda: output.read_text() if output.exists() else None, LIMIT_SECONDS, "the script"
            )
        finally:
            stop_supervisor(run, 20, by="benchmark")
    return json.loads(text)


def report_saves(what: str, seconds: dict[str, list[float]], along: str, at: float) -> None:
    """Reports the first save of a process, and the later ones."""
    ours, theirs = seconds["save"], seconds["write"]
    report_ratio(f"first {what}", ours[:1], theirs[:1], WRITE, along=along, at=at)
    report_ratio(what, ours[1:], theirs[1:], WRITE, along=along, at=at)


@on_quiet_machine
def main() -> None:
    """Measures all sizes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=float, nargs="*", default=[1, 100, 500, 2000])
    parser.add_argument("--shared", type=float, nargs="*", default=[500, 2000])
    parser.add_argument("--growth", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    rounds = ("--rounds", given.rounds)
    for size in given.megabytes:
        report_saves("save", measured(1, "--megabytes", size, *rounds), "MB", size)
    for size in given.shared:
        seconds = measured(2, "--megabytes", size, "--spread", *rounds)
        report_saves("save by 2 workers", seconds, "MB", size)
    for workers in given.growth:
        seconds = measured(workers, "--megabytes", GROWTH_MEGABYTES, "--spread", *rounds)
        report_saves(f"save of {GROWTH_MEGABYTES} MB", seconds, "workers", workers)


if __name__ == "__main__":
    main()
