"""Which process a record names."""

from __future__ import annotations

from typing import NamedTuple

_SAME_AFTER_BOOT_SECONDS = 0.05
"""By how much two starts of one process after boot may differ; the system counts hundredths."""

_SAME_BY_CLOCK_SECONDS = 2.0


class ProcessIdentity(NamedTuple):
    """A process of a machine; a later one with the same ID has another start.

    Attributes:
        pid: Its process ID.
        process_started_at: When it was started, in seconds since the epoch, by the clock of then.
        process_after_boot: How many seconds after the machine it was started; no clock changes
            that. None if an earlier release recorded it.
    """

    pid: int
    process_started_at: float
    process_after_boot: float | None = None

    def is_same(self, other: ProcessIdentity) -> bool:
        """Whether both are one process, if they are of one boot of a machine."""
        if self.pid != other.pid:
            return False
        if self.process_after_boot is None or other.process_after_boot is None:
            difference = self.process_started_at - other.process_started_at
            return abs(difference) < _SAME_BY_CLOCK_SECONDS
        return is_same_start(self.process_after_boot, other.process_after_boot)


def is_same_start(after_boot: float, other: float) -> bool:
    """Whether two starts, in seconds after that of the machine, are one."""
    return abs(after_boot - other) < _SAME_AFTER_BOOT_SECONDS
