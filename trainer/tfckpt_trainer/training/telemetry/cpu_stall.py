"""Measures the CPU stall of this process: time in which ready threads wait for a core."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

TASKS = "/proc/self/task"
GROUPS = Path("/proc/self/cgroup")
GROUP_ROOT = Path("/sys/fs/cgroup")


class CpuStall:
    """Reads time on the run queue and time throttled by a cgroup limit, on Linux."""

    def __init__(self) -> None:
        self._at = time.monotonic()
        self._stalled = stalled_seconds()

    def ratio(self) -> float | None:
        """Returns the share of the time since the last call that was stalled, from 0 to 1.

        The thread with the longest stall counts, because a step waits for its slowest thread.
        """
        now, stalled = time.monotonic(), stalled_seconds()
        before, self._stalled = self._stalled, stalled
        passed, self._at = now - self._at, now
        if stalled is None or before is None or passed <= 0:
            return None
        longest = max(
            (stalled[name] - before.get(name, stalled[name]) for name in stalled), default=0.0
        )
        return min(1.0, max(0.0, longest / passed))


def stalled_seconds() -> dict[str, float] | None:
    """Returns the total stall of each thread, and of the cgroup as `limit`; None if not on Linux.

    The fields of `schedstat` are nanoseconds on a core, nanoseconds on the run queue, and a count
    (Documentation/scheduler/sched-stats.rst of the kernel).
    """
    stalled: dict[str, float] = {}
    try:
        tasks = os.listdir(TASKS)
    except OSError:
        return None
    for task in tasks:
        # A thread may exit while it is read.
        with suppress(OSError, ValueError, IndexError):
            stalled[task] = int(_read(f"{TASKS}/{task}/schedstat").split()[1]) / 1e9
    with suppress(OSError, ValueError):
        stalled["limit"] = _throttled_seconds()
    return stalled


def _read(path: str) -> bytes:
    """Returns a short file. TensorFlow has hundreds of threads, and each is read every second."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, 1000)
    finally:
        os.close(file)


def _throttled_seconds() -> float:
    """Returns the time for which the cgroup (version 2) was throttled.

    Raises:
        OSError: There is no such cgroup.
        ValueError: The cgroup has no CPU statistics.
    """
    for line in GROUPS.read_text().splitlines():
        number, _, path = line.split(":", 2)
        if number == "0":
            counts = (GROUP_ROOT / path.lstrip("/") / "cpu.stat").read_text().split()
            return int(counts[counts.index("throttled_usec") + 1]) / 1e6
    raise ValueError("no cgroup of version 2")
