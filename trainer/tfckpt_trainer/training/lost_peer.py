"""Which worker a collective lost, from TensorFlow's message."""

from __future__ import annotations

import re

from tfckpt_trainer.training.worker_group import WorkerGroup

_TASK = re.compile(r"/job:(\w+)(?:/replica:\d+)?/task:(\d+)")

_UNHEALTHY = "tasks are unhealthy"

_TO_LEADER = "CoordinationService/"
"""Names a call to the first worker, with which all others register."""


def find_lost_peer(group: WorkerGroup, message: str) -> int | None:
    """Returns the index of the worker that did not answer; None if the message does not name it.

    Args:
        group: The workers, with the one that got the message.
        message: Of the error that the collective raised.
    """
    # The first worker reports which others it has not heard of.
    _, _, about = message.rpartition(_UNHEALTHY)
    named = (group.index_of(job, int(task)) for job, task in _TASK.findall(about))
    others = [index for index in named if index is not None and index != group.index]
    if others:
        return others[0]
    if _TO_LEADER in message and not group.is_chief:
        return 0
    return 1 - group.index if group.size == 2 else None
