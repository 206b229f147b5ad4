"""The GPUs of each process on one machine."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path

from tfckpt_trainer.cluster.tasks import Task

NO_GPUS = "-1"
"""Value of `CUDA_VISIBLE_DEVICES` that hides all GPUs."""


def visible_gpus(environment: Mapping[str, str], devices: Path = Path("/dev")) -> list[str]:
    """Returns the names of the GPUs that a process sees, as `CUDA_VISIBLE_DEVICES` has them.

    Args:
        environment: The environment of the process.
        devices: Where the NVIDIA driver has its device files.
    """
    named = environment.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        count = sum(bool(re.fullmatch(r"nvidia\d+", one.name)) for one in devices.glob("nvidia*"))
        return [str(number) for number in range(count)]
    names = (name.strip() for name in named.split(","))
    # CUDA ignores everything after an invalid name.
    return list(takewhile(lambda name: name not in {"", NO_GPUS}, names))


def share_gpus(gpus: Sequence[str], tasks: Sequence[Task]) -> list[str | None]:
    """Returns `CUDA_VISIBLE_DEVICES` for each process of one machine; None leaves it as it is.

    TensorFlow takes all memory of the GPUs that a process sees, and workers cannot reduce
    gradients over a GPU that they share. So each worker gets GPUs of its own. The chief and
    parameter servers, which compute no gradients, get none.

    Args:
        gpus: Names of the GPUs.
        tasks: The processes.
    """
    workers = [task.job for task in tasks].count("worker")
    if len(tasks) < 2 or len(gpus) < workers:
        return [None] * len(tasks)
    share = len(gpus) // workers
    return [
        ",".join(gpus[task.index * share : (task.index + 1) * share])
        if task.job == "worker"
        else NO_GPUS
        for task in tasks
    ]
