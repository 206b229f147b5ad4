"""The supervisor's lock: taken by a launch, handed on to the supervisor, held for its life."""

from __future__ import annotations

import fcntl
import os

from tfckpt_trainer.rundir.paths import RunDirectory


def take_lock(run: RunDirectory) -> int | None:
    """Takes the lock of a run's supervisor.

    It is a `flock`, as `filelock` takes it too. It belongs to the open file, so a launch can
    hand it to the supervisor, and at no moment in between could another launch take it.

    Returns:
        The descriptor that holds the lock until its last copy is closed, or None where
        somebody else holds it.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    descriptor = os.open(run.supervisor_lock, flags, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def lock_is_held(run: RunDirectory) -> bool:
    """Whether a supervisor lives, or a launch is about to start one."""
    if not run.supervisor_lock.exists():
        return False
    descriptor = take_lock(run)
    if descriptor is None:
        return True
    os.close(descriptor)
    return False
