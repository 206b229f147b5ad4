"""Estimates when the disk is full, from its free space after each save."""

from __future__ import annotations

import shutil
from collections import deque
from pathlib import Path

_FEWEST, _MOST = 3, 10
"""Saves that an estimate needs, and those that it looks at."""


class DiskTrend:
    """Follows the free space. What others write, and what is pruned, counts too."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._free: deque[tuple[float, int]] = deque(maxlen=_MOST)

    def full_in(self, saved_at: float | None) -> float | None:
        """Measures after each save; returns seconds until the disk is full, None if unknown.

        Args:
            saved_at: When the last save succeeded, in seconds since the epoch.

        Raises:
            OSError: The free space cannot be read.
        """
        if saved_at is not None and (not self._free or self._free[-1][0] < saved_at):
            self._free.append((saved_at, shutil.disk_usage(self._directory).free))
        return seconds_until_full(self._free)


def seconds_until_full(free: deque[tuple[float, int]]) -> float | None:
    """Returns in how many seconds no byte is free if it goes on like this; None if unknown.

    Args:
        free: Times and free bytes, oldest first.
    """
    if len(free) < _FEWEST:
        return None
    (began, before), (now, left) = free[0], free[-1]
    used = before - left
    return left * (now - began) / used if used > 0 and now > began else None
