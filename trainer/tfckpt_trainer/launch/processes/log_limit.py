"""Keeps logs bounded while the processes that write them run."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.launch.processes.logs import LOG_LIMIT
from tfckpt_trainer.rundir.storage.files import (
    create_file,
    delete_file,
    open_plain,
    open_shared,
    rename,
)

CHECK_SECONDS = 60.0
"""Interval at which the sizes of logs are looked at."""

LOG_SECONDS = 5.0
"""The same for each log, if there are many."""


def check_seconds(count: int) -> float:
    """Returns the interval at which the sizes of so many logs are looked at."""
    return max(CHECK_SECONDS, LOG_SECONDS * count)


class LogLimit:
    """Empties logs that became too large, and keeps the newest part of each beside it."""

    def __init__(self, limit: int = LOG_LIMIT, clock: Callable[[], float] = time.monotonic) -> None:
        """Prepares it.

        Args:
            limit: The size in bytes above which a log is emptied.
            clock: Returns seconds.
        """
        self._limit = limit
        self._clock = clock
        self._due_at = 0.0

    def apply_if_due(self, logs: Collection[Path]) -> None:
        """Empties those `logs` that are too large, if it is time to look at them.

        Args:
            logs: Logs of processes of this machine. Another one may not know its new size.
        """
        now = self._clock()
        if now < self._due_at:
            return
        self._due_at = now + check_seconds(len(logs))
        for log in logs:
            # A log that cannot be emptied grows on.
            with suppress(OSError, DamagedFileError):
                if log.lstat().st_size > self._limit:
                    _empty(log, self._limit)


def _empty(log: Path, most: int) -> None:
    """Copies the newest part of a log to `NAME.1`, and empties it.

    The process has the file open, so that a rename would not give it another one. What it writes
    between the last read and the emptying, which follows at once, is lost.
    """
    temporary = log.with_name(f".{log.name}.tmp")
    delete_file(temporary)
    try:
        with open_plain(log) as file, create_file(temporary) as copy:
            file.seek(max(0, os.fstat(file.fileno()).st_size - most))
            shutil.copyfileobj(file, copy)
            copy.flush()
            rename(temporary, log.with_name(f"{log.name}.1"))
            shutil.copyfileobj(file, copy)
            copy.flush()
            os.close(open_shared(log, os.O_WRONLY | os.O_TRUNC))
    finally:
        delete_file(temporary)
