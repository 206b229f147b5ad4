"""Reserved disk space for prunes and undos on a full disk.

A prune writes a manifest before it moves files, which needs space. So a small file is kept in
reserve and deleted when a prune or an undo meets a full disk.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from tfckpt_trainer.errors import NotWritableError
from tfckpt_trainer.rundir.full_disk import DiskFullError, advice_to_free_space, is_full
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.storage.disk import disk
from tfckpt_trainer.rundir.storage.files import write_atomic
from tfckpt_trainer.words.counts import size

RESERVE_BYTES = 256 << 10

MIN_FREE_RESERVES = 8
"""The reserve is written only if this many times its size is free."""

_NOT_WRITABLE = {errno.EROFS, errno.EACCES, errno.EPERM}

Result = TypeVar("Result")


def keep_reserve(run: RunDirectory) -> bool:
    """Writes the reserve if it is missing and there is space; returns whether it exists.

    Does not raise disk errors, because the reserve is only a precaution.
    """
    try:
        if not run.is_ours:
            return False
        if os.path.lexists(run.reserve):
            return True
        if _free_bytes(run) < MIN_FREE_RESERVES * RESERVE_BYTES:
            return False
        # Random bytes, because a compressing file system reserves no space for zeros.
        write_atomic(run.reserve, os.urandom(RESERVE_BYTES))
    except OSError:
        return False
    return True


def release_reserve(run: RunDirectory) -> bool:
    """Deletes the reserve; returns whether it existed."""
    try:
        disk().remove(run.reserve)
    except OSError:
        return False
    return True


def is_space_low(run: RunDirectory) -> bool:
    """Whether free space is too low for heartbeats and commands."""
    try:
        return _free_bytes(run) < RESERVE_BYTES // 4
    except OSError:
        return False


def retry_with_reserve(run: RunDirectory, act: Callable[[], Result]) -> Result:
    """Calls `act`. If the disk is full, releases the reserve and calls it again.

    Args:
        run: The run directory.
        act: The action. It must change nothing if it fails.

    Raises:
        DiskFullError: There is no reserve, or the disk is still full.
    """
    try:
        return act()
    except OSError as error:
        if not is_full(error):
            raise
        if not release_reserve(run):
            raise disk_full_error(run, error) from error
    try:
        return act()
    except OSError as error:
        if not is_full(error):
            raise
        raise disk_full_error(run, error) from error


def begin_change(run: RunDirectory, act: Callable[[], Result]) -> Result:
    """Calls `act`, the first write of a change; see `retry_with_reserve`.

    Raises:
        DiskFullError: There is no reserve, or the disk is still full.
        NotWritableError: The directory is read-only, or belongs to another user.
        OSError: Another error of the disk.
    """
    try:
        return retry_with_reserve(run, act)
    except OSError as error:
        if error.errno not in _NOT_WRITABLE:
            raise
        raise NotWritableError(run.root, error) from error


def disk_full_error(
    run: RunDirectory, error: OSError, outcome: str = "Nothing was changed."
) -> DiskFullError:
    """Returns an error with the path, the free space and commands that free space.

    Args:
        run: The run directory.
        error: The error of the disk.
        outcome: What was changed, as a sentence.
    """
    path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else run.root
    free = "unknown"
    with suppress(OSError):
        free = size(_free_bytes(run))
    return DiskFullError(
        f"{path}: {os.strerror(error.errno or errno.ENOSPC)}. Needed: a few kilobytes for each "
        f"checkpoint. Free: {free}. {outcome}",
        advice_to_free_space(run),
    )


def _free_bytes(run: RunDirectory) -> int:
    facts = os.statvfs(run.root)
    return facts.f_bavail * facts.f_frsize
