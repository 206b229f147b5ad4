"""The supervisor's lock: a launch takes it, and the supervisor holds it until it exits."""

from __future__ import annotations

import fcntl
import os

from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.storage.files import open_lock


def take_lock(run: RunDirectory) -> int | None:
    """Takes the lock of a run's supervisor.

    It is a `flock`, as `filelock` uses it too. It belongs to the open file, so a launch can pass
    it to the supervisor without releasing it.

    Returns:
        The descriptor that holds the lock until its last copy is closed, or None if another
        process holds it.
    """
    descriptor = open_lock(run.supervisor_lock)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def is_lock_held(run: RunDirectory) -> bool:
    """Whether a supervisor runs, or a launch is about to start one."""
    if not run.supervisor_lock.exists():
        return False
    descriptor = take_lock(run)
    if descriptor is None:
        return True
    os.close(descriptor)
    return False
