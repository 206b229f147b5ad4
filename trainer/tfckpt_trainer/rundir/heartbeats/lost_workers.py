"""Finds out which worker was lost and why, from the status files that workers leave."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tfckpt_trainer.rundir.heartbeats.health import (
    WorkerState,
    heartbeat_age,
    is_live,
    worker_state,
)
from tfckpt_trainer.rundir.heartbeats.process_ids import is_pid_valid_here
from tfckpt_trainer.rundir.heartbeats.reading import read_workers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.worker import Activity, Ending, WorkerStatus

WAIT_SECONDS = 2.0
"""How long to wait for the last heartbeat of a worker that failed."""

POLL_SECONDS = 0.02

SILENT_SECONDS = 5.0
"""Age of a heartbeat that is no sign of life, also where it is not too old yet."""


def explain_lost_worker(
    run: RunDirectory, index: int, since: float, wait_seconds: float = WAIT_SECONDS
) -> str:
    """Returns a sentence that names the worker that was lost first and its error.

    A worker that fails writes its error before its process ends. Others may notice earlier.

    Args:
        run: The run directory.
        index: Index of the worker that asks.
        since: Time after which the heartbeats of this start were written.
        wait_seconds: How long to wait for an answer.

    Returns:
        The sentence; empty if the status files do not show it in that time.
    """
    deadline = time.monotonic() + wait_seconds
    while True:
        workers = read_workers(run)
        gone = _gone(workers, index, since)
        if gone:
            # It may have written its last heartbeat between the two looks.
            workers = read_workers(run)
        explanation = _failed(workers, index, since) or _killed(_gone(workers, index, since))
        if explanation or time.monotonic() >= deadline:
            return explanation
        time.sleep(POLL_SECONDS)


def describe_lost_connection(run: RunDirectory, index: int, peer: int) -> str:
    """Returns a sentence that names two workers of which one no longer answers the other.

    Args:
        run: The run directory.
        index: Index of the worker that waits for an answer.
        peer: Index of the worker that does not answer.
    """
    now = time.time()
    workers = {worker.index: worker for worker in read_workers(run)}
    own, other = workers.get(index), workers.get(peer)
    where = f" on {own.host}" if own is not None else ""
    since = own.last_step_at if own is not None else None
    duration = f" for {now - since:.0f} s" if since is not None else ""
    if other is None:
        return f"Worker {index}{where} lost worker {peer}{duration}."
    pair = f"Worker {index}{where} lost worker {peer} on {other.host}{duration}."
    age = heartbeat_age(other.updated_at, now)
    if worker_state(other, now) is WorkerState.LOST or age >= SILENT_SECONDS:
        return f"{pair} The last heartbeat of worker {peer} is {age:.0f} s old."
    if other.activity is Activity.EXITED and other.ending is not Ending.PEER_LOST:
        return pair
    return f"{pair} Its heartbeats still arrive: check the network between the two."


def _failed(workers: Sequence[WorkerStatus], index: int, since: float) -> str:
    failed = [
        worker
        for worker in workers
        if worker.ending is Ending.FAILED and worker.updated_at >= since and worker.index != index
    ]
    if not failed:
        return ""
    first = min(failed, key=lambda worker: worker.updated_at)
    return f"Worker {first.index} failed: {first.detail or 'it gave no reason.'}"


def _gone(workers: Sequence[WorkerStatus], index: int, since: float) -> list[WorkerStatus]:
    """Returns the workers whose processes are gone without a last heartbeat."""
    now = time.time()
    return [
        worker
        for worker in workers
        if worker.index != index
        and worker.updated_at >= since
        and worker_state(worker, now) is WorkerState.LOST
    ]


def _killed(gone: Sequence[WorkerStatus]) -> str:
    if not gone:
        return ""
    first = min(gone, key=lambda worker: worker.updated_at)
    now = time.time()
    if is_pid_valid_here(first) and not is_live(first, now):
        return f"Worker {first.index} was lost: its process {first.pid} on {first.host} is gone."
    age = heartbeat_age(first.updated_at, now)
    return (
        f"Worker {first.index} was lost: its last heartbeat from {first.host} is {age:.0f} s old."
    )
