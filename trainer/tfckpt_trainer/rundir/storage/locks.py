"""Locks of a run directory for what one person may do at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tfckpt_trainer.errors import RefusedError
from tfckpt_trainer.rundir.storage.files import create_lock


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
    # Imported here, because most commands lock nothing.
    from filelock import FileLock, Timeout

    create_lock(path)
    lock = FileLock(path, timeout=seconds)
    try:
        lock.acquire()
    except Timeout:
        raise RefusedError(
            f"Another {what} has been running for more than {seconds:g} s. Nothing was changed; "
            "try again when it is done."
        ) from None
    try:
        yield
    finally:
        lock.release()
