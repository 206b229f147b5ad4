"""TCP ports that no two tests on this machine get at the same time."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from waiting import attempts

_RANGE = range(12_000, 32_000)
"""Below the ports that Linux gives to connections and to programs that let it choose."""


@contextmanager
def reserved_ports(count: int) -> Iterator[list[int]]:
    """Yields free ports.

    Each is reserved by a UDP socket with its number, which no second process can have.
    """
    with ExitStack() as stack:
        ports: list[int] = []
        for _ in attempts(f"{count} free ports", most=len(_RANGE)):
            if len(ports) == count:
                break
            port = random.choice(_RANGE)
            if _is_free(port) and _reserves(stack.enter_context(_udp()), port):
                ports.append(port)
        yield ports


def _udp() -> socket.socket:
    return socket.socket(type=socket.SOCK_DGRAM)


def _reserves(reservation: socket.socket, port: int) -> bool:
    try:
        reservation.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
