"""The priority of threads that work beside training."""

from __future__ import annotations

import os
import sys
import threading

NICENESS = 10
"""Niceness of these threads, so that training gets the processors first."""


def lower_priority() -> None:
    """Lowers the priority of this thread; only Linux has a priority per thread."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
