"""Waits for the end of the chief of a cluster, by its port alone."""

from __future__ import annotations

import socket
import time

LOOK_SECONDS = 1.0

SILENT_SECONDS = 10.0
"""Time without an answer after which the host of the chief counts as gone."""


def wait_for_end_of_chief(address: str) -> None:
    """Waits until the chief listens, and then until it does not any more.

    A port that refuses connections belongs to a process that has ended. A host that does not
    answer may be back soon.

    Args:
        address: Host and port of the chief, as in `TF_CONFIG`.
    """
    host, _, port = address.rpartition(":")
    heard_at: float | None = None
    while True:
        try:
            with socket.create_connection((host.strip("[]"), int(port)), LOOK_SECONDS):
                heard_at = time.monotonic()
        except ConnectionRefusedError:
            if heard_at is not None:
                return
        except OSError:
            if heard_at is not None and time.monotonic() - heard_at > SILENT_SECONDS:
                return
        time.sleep(LOOK_SECONDS)
