"""A small file that is given up on a full disk, so that disk space can be freed in good order.

A prune writes a manifest before it moves anything, and an undo does. On a disk without one free
block neither can, though they are needed most there. The reserve is written while there is room,
and deleted when an action that frees space, or takes it back, meets a full disk.
"""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.rundir.files import write_atomic
from tfckpt_trainer.rundir.paths import RunDirectory

RESERVE_BYTES = 256 << 10

PLENTY = 8
"""The reserve is written where so many times its size is free."""

_FULL = {errno.ENOSPC, errno.EDQUOT}

Result = TypeVar("Result")


class DiskFullError(TfckptError):
    """The disk is full, and so is what was kept back for that; nothing was changed.

    Attributes:
        found: What was found, as a sentence or more.
    """

    def __init__(self, found: str, advice: str) -> None:
        super().__init__(f"{found} {advice}")
        self.found = found


def keep_reserve(run: RunDirectory) -> bool:
    """Writes the reserve where it is missing and there is room; returns whether it is there.

    No error comes out: it is a precaution, and whatever is done goes on without it.
    """
    try:
        if run.control.is_symlink() or not run.is_ours:
            return False
        if os.path.lexists(run.reserve):
            return True
        if _free_bytes(run) < PLENTY * RESERVE_BYTES:
            return False
        # Not zeros: a file system that compresses would keep no room for them.
        write_atomic(run.reserve, os.urandom(RESERVE_BYTES))
    except OSError:
        return False
    return True


def release_reserve(run: RunDirectory) -> bool:
    """Deletes the reserve; returns whether there was one."""
    try:
        run.reserve.unlink()
    except OSError:
        return False
    return True


def is_short(run: RunDirectory) -> bool:
    """Whether so little is free that heartbeats and commands may not be written any more."""
    try:
        return _free_bytes(run) < RESERVE_BYTES // 4
    except OSError:
        return False


def is_full(error: BaseException) -> bool:
    """Whether an error says that the disk or a quota is full."""
    return isinstance(error, OSError) and error.errno in _FULL


def with_room(run: RunDirectory, act: Callable[[], Result]) -> Result:
    """Does `act`, and once more with the room of the reserve if the disk is full.

    Args:
        run: The run directory.
        act: Leaves nothing half done where the disk refuses.

    Raises:
        DiskFullError: There is no reserve, or it does not suffice.
    """
    try:
        return act()
    except OSError as error:
        if not is_full(error):
            raise
        if not release_reserve(run):
            raise disk_full(run, error) from error
    try:
        return act()
    except OSError as error:
        if not is_full(error):
            raise
        raise disk_full(run, error) from error


def disk_full(run: RunDirectory, error: OSError) -> DiskFullError:
    """Returns what to tell of a full disk: where, how much is free, and which commands help."""
    path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else run.root
    free = "unknown"
    with suppress(OSError):
        free = f"{_free_bytes(run):,} bytes"
    root = shlex.quote(str(run.root))
    return DiskFullError(
        f"{path}: {os.strerror(error.errno or errno.ENOSPC)}. About {RESERVE_BYTES:,} bytes are "
        f"needed, free: {free}. Nothing was changed.",
        f"Free space with `tfckpt-tui trash {root} empty`, or delete checkpoints for good with "
        f"`tfckpt-tui prune {root} CKPT --delete`.",
    )


@contextmanager
def advising(advice: str) -> Iterator[None]:
    """Gives `advice` with a `DiskFullError` of the block, in place of the usual one."""
    try:
        yield
    except DiskFullError as error:
        raise DiskFullError(error.found, advice) from error


def advice_for_undo(run: RunDirectory) -> str:
    """Returns how to make room for an undo: without what it brings back."""
    root = shlex.quote(str(run.root))
    return (
        "Do not empty the trash: it holds what is to be brought back. Free space elsewhere on "
        f"this disk, or delete other checkpoints with `tfckpt-tui prune {root} CKPT --delete`, "
        f"and try again with `tfckpt-tui undo {root}`."
    )


def advice_beside_trainer(run: RunDirectory) -> str:
    """Returns how to make room where a trainer lives that cannot be asked for anything."""
    root = shlex.quote(str(run.root))
    return (
        "Free space elsewhere on this disk, or empty the trash with `tfckpt-tui trash "
        f"{root} empty`, and try again. To end training without a save, use `tfckpt-tui stop "
        f"--force {root}`; checkpoints can then be deleted with `tfckpt-tui prune {root} CKPT "
        "--delete`."
    )


def advice_for_undo_beside_trainer(run: RunDirectory) -> str:
    """Returns how to make room for an undo where a trainer lives that cannot be asked."""
    root = shlex.quote(str(run.root))
    return (
        "Do not empty the trash: it holds what is to be brought back. Free space elsewhere on "
        f"this disk, and try again with `tfckpt-tui undo {root}`."
    )


def _free_bytes(run: RunDirectory) -> int:
    facts = os.statvfs(run.root)
    return facts.f_bavail * facts.f_frsize
