"""Where the workers of a run find each other: free ports, and `TF_CONFIG` for each."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from tfckpt_trainer.errors import LaunchError, UsageError

LOOPBACK = "127.0.0.1"

_LAST_PORT = 65535
_PORT_TAKEN = re.compile(
    r"address already in use|could not start grpc server|EADDRINUSE", re.IGNORECASE
)


@dataclass(frozen=True)
class Task:
    """What one process is in a cluster of TensorFlow.

    Attributes:
        job: `worker`, `chief` or `ps`, a parameter server.
        index: Its number among those of the same job.
    """

    job: str
    index: int


def free_ports(count: int) -> list[int]:
    """Returns `count` different ports of this machine that nobody uses now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((LOOPBACK, 0))
        return [int(one.getsockname()[1]) for one in sockets]


def check_ports(ports: Sequence[int]) -> None:
    """Makes sure that ports which a person chose exist, differ, and are used by nobody.

    Raises:
        UsageError: They are no such ports.
        LaunchError: Somebody uses one.
    """
    if len(set(ports)) < len(ports):
        raise UsageError(f"--ports names a port twice: {', '.join(map(str, ports))}.")
    for port in ports:
        if not 0 < port <= _LAST_PORT:
            raise UsageError(f"{port} is no port; expected a number from 1 to {_LAST_PORT}.")
        with socket.socket() as one:
            # As servers do it: connections that linger from an earlier run do not count.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind((LOOPBACK, port))
            except OSError as error:
                raise LaunchError(
                    f"Port {port} cannot be used: {error.strerror}. Choose others with --ports, "
                    "or leave the choice to the launcher."
                ) from None


def says_port_taken(log: str) -> bool:
    """Whether what a worker printed tells that another program had its port."""
    return _PORT_TAKEN.search(log) is not None


def addresses(ports: Sequence[int]) -> list[str]:
    """Returns the addresses of processes on this machine."""
    return [f"{LOOPBACK}:{port}" for port in ports]


def tasks(workers: int, parameter_servers: int = 0) -> tuple[Task, ...]:
    """Returns what the processes of a run are, in the order of their numbers.

    With parameter servers one more process, the chief, tells the workers what to do.
    """
    own = tuple(Task("worker", index) for index in range(workers))
    if not parameter_servers:
        return own
    servers = tuple(Task("ps", index) for index in range(parameter_servers))
    return (Task("chief", 0), *own, *servers)


def cluster_of(members: Sequence[Task], places: Sequence[str]) -> dict[str, list[str]]:
    """Returns the addresses of processes by job, as `TF_CONFIG` has them."""
    cluster: dict[str, list[str]] = {}
    for task, place in zip(members, places, strict=True):
        cluster.setdefault(task.job, []).append(place)
    return cluster


def tf_config(cluster: Mapping[str, Sequence[str]], task: Task) -> str:
    """Returns the value of `TF_CONFIG` for one process of a cluster."""
    return json.dumps({"cluster": cluster, "task": {"type": task.job, "index": task.index}})


def processes_in_words(members: Sequence[Task]) -> str:
    """Returns `2 workers`, or `2 workers and 1 parameter server`."""
    jobs = [task.job for task in members]
    words = [
        f"{jobs.count(job)} {noun}{'s' if jobs.count(job) > 1 else ''}"
        for job, noun in (("worker", "worker"), ("ps", "parameter server"))
        if job in jobs
    ]
    return " and ".join(words)
