"""Asks the workers of a run what their threads do, and waits for the answers."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection
from functools import partial

from tfckpt_trainer.rundir.heartbeats.attention import look_at
from tfckpt_trainer.rundir.heartbeats.status_files import other_writer
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.stacks import StackRequest, WorkerStacks
from tfckpt_trainer.rundir.storage.documents import load, store, try_read
from tfckpt_trainer.rundir.storage.files import make_directory

POLL_SECONDS = 0.1
"""Interval between two looks for answers."""


def ask_for_stacks(
    run: RunDirectory,
    workers: Collection[int],
    timeout: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[int, WorkerStacks]:
    """Returns the stacks of those workers that answer in time, by index.

    The thread of a worker that writes heartbeats answers, so the one that trains may hang. What
    others wrote counts as no answer.

    Args:
        run: The run directory.
        workers: Indexes of the workers.
        timeout: Seconds to wait for a worker that does not answer.
        clock: Returns seconds; never goes back.
        sleep: Waits for a number of seconds.

    Raises:
        RefusedError: A directory of the run is a symbolic link.
        OSError: The request cannot be written.
    """
    run.refuse_links()
    make_directory(run.stacks_directory)
    request = StackRequest(id=secrets.token_hex(8), at=time.time())
    store(run.stacks_request, request, durable=False)
    look_at(run)
    deadline, answers = clock() + timeout, dict[int, WorkerStacks]()
    while len(answers) < len(workers) and clock() < deadline:
        sleep(POLL_SECONDS)
        for index in workers:
            path = run.worker_stacks(index)
            answer = try_read(partial(load, path, WorkerStacks))
            if answer is None or other_writer(run, index, path):
                continue
            if answer.request == request.id:
                answers[index] = answer
    return answers
