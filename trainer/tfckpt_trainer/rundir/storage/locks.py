"""Locks of a run directory for what one process may do at a time.

They are `flock` locks: one belongs to the open file, and ends with the last process that has it.
The file is opened as all files of a run are, so that no link leads the lock elsewhere.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tfckpt_trainer.errors import RefusedError
from tfckpt_trainer.rundir.storage.files import facts_of, open_lock

_AGAIN_SECONDS = 0.05


def take_lock(path: Path, seconds: float = 0.0) -> int | None:
    """Takes a lock; the directory of its file must exist.

    Args:
        path: The file of the lock, which is created if there is none.
        seconds: How long to wait for it.

    Returns:
        The descriptor that holds the lock until its last copy is closed; None if another process
        holds it for so long.

    Raises:
        LinkedFileError: The file is a symbolic link.
        RefusedError: Somebody else can replace it while it is held.
        OSError: It cannot be opened, or the file system has no locks.
    """
    until = time.monotonic() + seconds
    while True:
        descriptor = open_lock(path)
        try:
            is_held = _hold(descriptor) and _is_at(path, descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        if is_held:
            return descriptor
        os.close(descriptor)
        if time.monotonic() >= until:
            return None
        time.sleep(_AGAIN_SECONDS)


def is_locked(path: Path) -> bool:
    """Whether a process holds a lock; creates no file."""
    if not path.exists():
        return False
    descriptor = take_lock(path)
    if descriptor is None:
        return True
    os.close(descriptor)
    return False


def _hold(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        # Another one holds it; which error says so depends on the file system.
        return False
    return True


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether the next process that locks the path would open the same file."""
    seen, held = facts_of(path), os.fstat(descriptor)
    return seen is not None and (seen.st_dev, seen.st_ino) == (held.st_dev, held.st_ino)


@contextmanager
def locked(path: Path, seconds: float, what: str) -> Iterator[None]:
    """Holds a lock; the directory of its file must exist.

    Args:
        path: The file of the lock.
        seconds: How long to wait for it.
        what: What holds it, such as `change of x`, for the error.

    Raises:
        RefusedError: Somebody else holds it, or can replace it.
        OSError: It cannot be opened.
    """
    descriptor = take_lock(path, seconds)
    if descriptor is None:
        raise RefusedError(
            f"Another {what} has been running for more than {seconds:g} s. Nothing was changed; "
            "try again when it is done."
        )
    try:
        yield
    finally:
        os.close(descriptor)
