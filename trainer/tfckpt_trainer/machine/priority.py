"""The priority of work that training must not wait for."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress

BESIDE_TRAINING = 10
"""Niceness of work beside training, so that training gets the processors first."""


def lower_priority(niceness: int = BESIDE_TRAINING, group: int | None = None) -> None:
    """Lowers a priority, if it is higher. Only Linux has one per thread.

    Args:
        niceness: The niceness, from 0 to 19.
        group: The process group; by default this thread alone.
    """
    if group is None and sys.platform != "linux":
        return
    kind, who = os.PRIO_PGRP, group
    if who is None:
        kind, who = os.PRIO_PROCESS, threading.get_native_id()
    # The group may have ended. Only root may raise a priority that somebody has lowered.
    with suppress(OSError):
        os.setpriority(kind, who, max(niceness, os.getpriority(kind, who)))
