"""Writes what many runs write, without training: heartbeats and measurements, each second.

python simulated_fleet.py DIRECTORY LIVE ENDED

Says `ready` once all runs are there. The ended ones failed two hours ago, and each half a day
earlier: a list of a user has few that ended today.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import time
from pathlib import Path

import psutil

for part in ("", "tui"):
    sys.path.insert(0, str(Path(__file__).parents[2] / part))
from rundir_factory import RunFactory, loss_at, two_branches

from tfckpt_trainer.rundir.records.event import SeriesPoint
from tfckpt_trainer.rundir.records.worker import Activity, WorkerStatus
from tfckpt_trainer.rundir.storage.documents import append, store

STEPS = 100_000

ENDED_SECONDS = 7200.0
BETWEEN_SECONDS = 43_200.0
"""How long ago the last run ended, and how long before it each other one did."""

DIFFERENT = 20
"""How many runs that have ended differ; others are copies of them."""


def main() -> None:
    directory, live, ended = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    now = time.time()
    for number in range(ended):
        place = directory / f"ended-{number:03}"
        if number < DIFFERENT:
            two_branches(place, now - ENDED_SECONDS - BETWEEN_SECONDS * number)
        else:
            # A copy takes a tenth of the time.
            shutil.copytree(directory / f"ended-{number % DIFFERENT:03}", place)
    made = [two_branches(directory / f"live-{number:03}", now) for number in range(live)]
    for one in made:
        one.create(worker_count=1, total_steps=STEPS)
        one.run.worker_status(1).unlink()
    print("ready", flush=True)
    step = 500
    while True:
        began = time.time()
        step += 10
        for number, one in enumerate(made):
            beat(one, step + number)
        time.sleep(max(0.0, began + 1.0 - time.time()))


def beat(made: RunFactory, step: int) -> None:
    """Writes a heartbeat, and a point of the series."""
    now, loss, rate = time.time(), loss_at(step) + step % 7 * 0.01, 400.0 + step % 13
    status = WorkerStatus(
        index=0,
        host=socket.gethostname(),
        pid=os.getpid(),
        process_started_at=psutil.Process().create_time(),
        updated_at=now,
        interval_seconds=1.0,
        activity=Activity.TRAINING,
        step=step,
        branch=1,
        total_steps=STEPS,
        step_seconds=0.1 + step % 7 * 1e-4,
        loss=loss,
        metrics={"loss": loss},
        examples_per_second=rate,
        last_step_at=now,
    )
    store(made.run.worker_status(0), status, durable=False)
    point = SeriesPoint(at=now, step=step, branch=1, metrics={"loss": loss})
    append(made.run.series, point)


if __name__ == "__main__":
    main()
