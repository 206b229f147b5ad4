"""The priority of threads that work beside training."""

from __future__ import annotations

import os
import sys
import threading

NICENESS = 10
"""Niceness of these threads, so that training gets the processors first."""


def lower_priority() -> None:
    """Lowers the priority of this thread, if it is higher; only Linux has one per thread."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        # Only root may raise it again, for a script that was started with `nice`.
        lower = max(NICENESS, os.getpriority(os.PRIO_PROCESS, thread))
        os.setpriority(os.PRIO_PROCESS, thread, lower)
