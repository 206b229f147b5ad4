"""The tasks of a TensorFlow cluster, and `TF_CONFIG`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tfckpt_trainer.words.counts import count


class Task(msgspec.Struct, frozen=True):
    """The job and the index of one process in a TensorFlow cluster.

    Attributes:
        job: `worker`, `chief` or `ps` (parameter server).
        index: Its number among the tasks of the same job.
    """

    job: str
    index: int


def tasks(workers: int, parameter_servers: int = 0) -> tuple[Task, ...]:
    """Returns the tasks of a run's processes, in the order of their numbers.

    With parameter servers, one more process is the chief that coordinates the workers.
    """
    own = tuple(Task("worker", index) for index in range(workers))
    if not parameter_servers:
        return own
    servers = tuple(Task("ps", index) for index in range(parameter_servers))
    return (Task("chief", 0), *own, *servers)


def least_tasks_in_words(parameter_servers: int) -> str:
    """Returns the smallest cluster with some parameter servers, in words."""
    return f"a chief, {count(parameter_servers, 'parameter server')} and a worker"


def cluster_of(members: Sequence[Task], places: Sequence[str]) -> dict[str, list[str]]:
    """Returns the addresses of processes by job, as `TF_CONFIG` has them."""
    cluster: dict[str, list[str]] = {}
    for task, place in zip(members, places, strict=True):
        cluster.setdefault(task.job, []).append(place)
    return cluster


def tf_config(cluster: Mapping[str, Sequence[str]], task: Task) -> str:
    """Returns the value of `TF_CONFIG` for one process of a cluster."""
    # Imported here: commands read the options of a launch, and start no task.
    import json

    return json.dumps({"cluster": cluster, "task": {"type": task.job, "index": task.index}})
