"""The app, open for half a day on a live run: its memory, its files and its threads.

    python tests/benchmarks/open_for_long.py [--hours H ...] [--faster N]

A run of four workers with a step a second and a save a minute is simulated, N times as fast if the
machine can: its files are real, its training is not. The app looks at it once a second, so that it
sees fewer steps than it would in that time, and as many checkpoints, events and measurements.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from scripts.figures import report
from scripts.machine import on_quiet_machine
from terminal_load import opened, simulated

from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.worker import WorkerStatus
from tfckpt_trainer.rundir.storage.documents import load
from waiting import wait_until

STEPS_AN_HOUR = 3600
MOST_SECONDS_AN_HOUR = 600.0
"""A machine that writes six steps a second is too slow for this."""


@on_quiet_machine
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=float, nargs="+", default=[0.1, 1, 3, 6, 12])
    parser.add_argument("--faster", type=float, default=80)
    options = parser.parse_args()
    hours = sorted(options.hours)
    steps = int(hours[-1] * STEPS_AN_HOUR) + 1
    with simulated(4, 1 / options.faster, steps) as root, opened(root) as (_, app):
        for hour in hours:
            wait_for_step(root, int(hour * STEPS_AN_HOUR), MOST_SECONDS_AN_HOUR * hours[-1])
            for what, value, unit in (
                ("resident memory", app.memory_info().rss / 1e6, "MB"),
                ("open files", app.num_fds(), "files"),
                ("threads", app.num_threads(), "threads"),
            ):
                report(what, [value], unit, along="hours", at=hour)


def wait_for_step(root: Path, step: int, most_seconds: float) -> None:
    """Waits until the run is there."""
    heartbeat = RunDirectory(root).worker_status(0)

    def is_there() -> bool:
        status = load(heartbeat, WorkerStatus)
        return status is not None and status.step is not None and status.step >= step

    wait_until(is_there, most_seconds, f"step {step}")


if __name__ == "__main__":
    main()
