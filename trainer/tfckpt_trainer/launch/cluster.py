"""Where the workers of a run find each other: free ports, and `TF_CONFIG` for each."""

from __future__ import annotations

import json
import socket
from contextlib import ExitStack

from tfckpt_trainer.errors import LaunchError

LOOPBACK = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """Returns `count` different ports of this machine that nobody uses now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((LOOPBACK, 0))
        return [int(one.getsockname()[1]) for one in sockets]


def check_ports(ports: list[int]) -> None:
    """Makes sure that nobody uses the ports that a person chose.

    Raises:
        LaunchError: Somebody does.
    """
    for port in ports:
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind((LOOPBACK, port))
            except OSError as error:
                raise LaunchError(
                    f"Port {port} cannot be used: {error.strerror}. Choose others with --ports, "
                    "or leave the choice to the launcher."
                ) from None


def addresses(ports: list[int]) -> list[str]:
    """Returns the addresses of workers on this machine."""
    return [f"{LOOPBACK}:{port}" for port in ports]


def tf_config(workers: list[str], index: int) -> str:
    """Returns the value of `TF_CONFIG` for worker `index` of a cluster."""
    return json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}})
