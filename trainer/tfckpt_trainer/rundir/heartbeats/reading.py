"""Reads the heartbeats of a run."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from pathlib import Path

from tfckpt_trainer.rundir.heartbeats.clock import load_heartbeat
from tfckpt_trainer.rundir.heartbeats.health import (
    ProcessProbe,
    living,
    serves_commands,
    with_started,
    worker_state,
)
from tfckpt_trainer.rundir.heartbeats.process_table import process_lives
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.run import SupervisorStatus
from tfckpt_trainer.rundir.records.worker import WorkerStatus
from tfckpt_trainer.rundir.storage.documents import OnError, ignore, try_read


def read_workers(
    run: RunDirectory, count: int | None = None, on_error: OnError = ignore
) -> list[WorkerStatus]:
    """Returns the heartbeats of the workers, by index. Skips damaged files.

    Rare ones have the signs of life of shared steps.

    Args:
        run: The run directory.
        count: Number of workers of the run; heartbeats of higher indexes are ignored.
        on_error: Called for each file that cannot be read.
    """
    # Imported here: who asks whether the trainer answers reads its chief alone.
    from tfckpt_trainer.rundir.heartbeats.shared_steps import with_shared_steps

    paths = sorted(_worker_files(run.status_directory))
    read = (try_read(partial(load_heartbeat, run, path, WorkerStatus), on_error) for path in paths)
    statuses = [
        status for status in read if status is not None and (count is None or status.index < count)
    ]
    return with_shared_steps(sorted(statuses, key=lambda one: one.index), only_rare=True)


def read_worker(run: RunDirectory, index: int, on_error: OnError = ignore) -> WorkerStatus | None:
    """Returns the heartbeat of one worker; None if there is none or it is damaged.

    Args:
        run: The run directory.
        index: The index of the worker.
        on_error: Called if it cannot be read.
    """
    path = run.worker_status(index)
    return try_read(partial(load_heartbeat, run, path, WorkerStatus), on_error)


def _worker_files(directory: Path) -> list[str]:
    with suppress(OSError), os.scandir(directory) as entries:
        return [
            e.path for e in entries if e.name.startswith("worker-") and e.name.endswith(".json")
        ]
    return []


def read_supervisor(run: RunDirectory, on_error: OnError = ignore) -> SupervisorStatus | None:
    """Returns the heartbeat of the supervisor; None if there is none or it is damaged.

    It is not flushed to disk and may be damaged after a power loss. That must not prevent a
    new launch.

    Args:
        run: The run directory.
        on_error: Called if it cannot be read.
    """
    path = run.supervisor_status
    return try_read(partial(load_heartbeat, run, path, SupervisorStatus), on_error)


def trainer_answers(run: RunDirectory, now: float, lives: ProcessProbe = process_lives) -> bool:
    """Whether a live chief serves the command queue of `run`."""
    chief = read_worker(run, 0)
    supervisor = living(read_supervisor(run), now, lives)
    workers = with_started([] if chief is None else [chief], supervisor)
    return any(serves_commands(worker, worker_state(worker, now, lives)) for worker in workers)
