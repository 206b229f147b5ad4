"""Whether this process is kept from its processors: by other processes, or by a limit."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

TASKS = Path("/proc/self/task")
GROUPS = Path("/proc/self/cgroup")
GROUP_ROOT = Path("/sys/fs/cgroup")


class CpuPressure:
    """Reads what Linux counts: time on the run queue, and time held back by a cgroup's limit."""

    def __init__(self) -> None:
        self._at = time.monotonic()
        self._kept = kept_seconds()

    def share(self) -> float | None:
        """Returns for which part of the time since the last call it was kept, from 0 to 1.

        Of the thread that was kept longest: a loop waits for its slowest part.
        """
        now, kept = time.monotonic(), kept_seconds()
        before, self._kept = self._kept, kept
        passed, self._at = now - self._at, now
        if kept is None or before is None or passed <= 0:
            return None
        longest = max((kept[name] - before.get(name, kept[name]) for name in kept), default=0.0)
        return min(1.0, max(0.0, longest / passed))


def kept_seconds() -> dict[str, float] | None:
    """Returns how long each thread, and the group by its limit, was kept waiting; None elsewhere.

    `schedstat` has, by thread, nanoseconds on the processor, nanoseconds on the run queue and a
    count (Documentation/scheduler/sched-stats.rst of the kernel).
    """
    kept: dict[str, float] = {}
    try:
        tasks = list(TASKS.iterdir())
    except OSError:
        return None
    for task in tasks:
        # A thread may end while it is read.
        with suppress(OSError, ValueError, IndexError):
            kept[task.name] = int((task / "schedstat").read_text().split()[1]) / 1e9
    with suppress(OSError, ValueError):
        kept["limit"] = _throttled_seconds()
    return kept


def _throttled_seconds() -> float:
    """Returns how long the control group (version 2) was held back by its limit.

    Raises:
        OSError: There is no such group.
        ValueError: It does not tell.
    """
    for line in GROUPS.read_text().splitlines():
        number, _, path = line.split(":", 2)
        if number == "0":
            counts = (GROUP_ROOT / path.lstrip("/") / "cpu.stat").read_text().split()
            return int(counts[counts.index("throttled_usec") + 1]) / 1e6
    raise ValueError("no control group of version 2")
