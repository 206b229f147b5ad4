"""Has the time of day of a Python process be off by what a file says at each moment.

Python imports this where `PYTHONPATH` has its directory. `TESTS_CLOCK` names the file: seconds, as
a double.
"""

from __future__ import annotations

import mmap
import os
import time


def step_clock(place: str) -> None:
    """Replaces the functions that tell the time of day."""
    with open(place, "rb") as file:
        off = memoryview(mmap.mmap(file.fileno(), 8, prot=mmap.PROT_READ)).cast("d")
    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() + off[0]
    time.time_ns = lambda: now_ns() + int(1e9 * off[0])


if "TESTS_CLOCK" in os.environ:
    step_clock(os.environ["TESTS_CLOCK"])
