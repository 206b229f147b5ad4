"""The clock of a file system, for tests that change a file again at once."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from waiting import LEAST_SECONDS, wait_until


def next_tick(directory: Path) -> None:
    """Returns once what changes on a disk gets a later time than what has changed so far.

    Before Linux 6.13, and on some file systems, that clock goes in steps of 4 milliseconds. What
    changes within one of them, and keeps its size, looks unchanged.

    Args:
        directory: A directory on the disk; its own time may change.
    """
    descriptor, path = tempfile.mkstemp(dir=directory)
    try:
        before = os.fstat(descriptor).st_mtime_ns

        def is_later() -> bool:
            os.utime(descriptor)
            return os.fstat(descriptor).st_mtime_ns > before

        wait_until(is_later, LEAST_SECONDS, "a later time of a file")
    finally:
        os.close(descriptor)
        os.unlink(path)
