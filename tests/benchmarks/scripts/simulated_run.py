"""Writes what a training run writes, without training: heartbeats, measurements, checkpoints.

python simulated_run.py DIRECTORY WORKERS STEPS SECONDS_A_STEP SAVE_EVERY [PAST_STEPS]

So many steps are written at once, as if they had been trained at the same rate before.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path

import psutil

for part in ("", "tui"):
    sys.path.insert(0, str(Path(__file__).parents[2] / part))
from rundir_factory import RunFactory, loss_at

from tfckpt_trainer.rundir.event_log import write_entry
from tfckpt_trainer.rundir.records.event import EventEntry, EventKind, SeriesPoint
from tfckpt_trainer.rundir.records.worker import Activity, WorkerStatus
from tfckpt_trainer.rundir.storage.documents import append, store


def main() -> None:
    directory, workers, steps, pause, save_every, *more = sys.argv[1:]
    past_steps = int(more[0]) if more else 0
    made = RunFactory(Path(directory))
    if not made.run.run_file.exists():
        made.create(worker_count=int(workers), total_steps=int(steps))
    began = psutil.Process().create_time()
    parent = None
    for step in range(1, int(steps) + 1):
        is_past = step < past_steps
        now = time.time() - max(0, past_steps - step) * float(pause)
        for index in () if is_past else range(int(workers)):
            status = WorkerStatus(
                index=index,
                host=socket.gethostname(),
                pid=os.getpid(),
                process_started_at=began,
                updated_at=now,
                interval_seconds=1.0,
                activity=Activity.TRAINING,
                step=step,
                branch=0,
                total_steps=int(steps),
                step_seconds=0.1 + index * 1e-3 + step % 7 * 1e-4,
                loss=loss_at(step),
                metrics={"loss": loss_at(step)},
                examples_per_second=400.0 + step % 13,
                cpu_percent=90.0 + step % 10,
                memory_bytes=900_000_000 + step * 1000,
                last_step_at=now,
            )
            store(made.run.worker_status(index), status, durable=False)
        point = SeriesPoint(
            at=now,
            step=step,
            branch=0,
            metrics={"loss": loss_at(step)},
            examples_per_second=400.0 + step % 13,
            step_seconds=0.1,
        )
        append(made.run.series, point)
        if step % int(save_every) == 0:
            made.now = now
            parent = made.checkpoint(step, 0, parent)
            entry = EventEntry(at=now, kind=EventKind.SAVE, message=f"Saved {parent}.", step=step)
            write_entry(made.run, entry)
        if not is_past:
            time.sleep(max(0.0, now + float(pause) - time.time()))


if __name__ == "__main__":
    main()
