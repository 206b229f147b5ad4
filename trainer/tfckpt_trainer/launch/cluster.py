"""The ports and addresses of a run on this machine."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from contextlib import ExitStack

from tfckpt_trainer.cluster.tasks import Task
from tfckpt_trainer.counts import count
from tfckpt_trainer.errors import LaunchError, UsageError

LOOPBACK = "127.0.0.1"

_LAST_PORT = 65535
_PORT_TAKEN = re.compile(
    r"address already in use|could not start grpc server|EADDRINUSE", re.IGNORECASE
)


def free_ports(count: int) -> list[int]:
    """Returns `count` different ports of this machine that are free now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((LOOPBACK, 0))
        return [int(one.getsockname()[1]) for one in sockets]


def check_ports(ports: Sequence[int]) -> None:
    """Checks that ports are valid, different and free.

    Raises:
        UsageError: A port is invalid or named twice.
        LaunchError: A port is in use.
    """
    if len(set(ports)) < len(ports):
        raise UsageError(f"A port is given twice: {', '.join(map(str, ports))}.")
    for port in ports:
        if not 0 < port <= _LAST_PORT:
            raise UsageError(f"{port} is not a port; expected a number from 1 to {_LAST_PORT}.")
        with socket.socket() as one:
            # As servers do: lingering connections of an earlier run do not count.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind((LOOPBACK, port))
            except OSError as error:
                raise LaunchError(
                    f"Port {port} cannot be used: {error.strerror}. Launch again with other ports, "
                    "or without ports to use free ones."
                ) from None


def says_port_taken(log: str) -> bool:
    """Whether the output of a worker says that its port was taken."""
    return _PORT_TAKEN.search(log) is not None


def addresses(ports: Sequence[int]) -> list[str]:
    """Returns the addresses of processes on this machine."""
    return [f"{LOOPBACK}:{port}" for port in ports]


def processes_in_words(members: Sequence[Task]) -> str:
    """Returns `2 workers`, or `2 workers and 1 parameter server`."""
    jobs = [task.job for task in members]
    words = [
        count(jobs.count(job), noun)
        for job, noun in (("worker", "worker"), ("ps", "parameter server"))
        if job in jobs
    ]
    return " and ".join(words)
