"""Reserved disk space for prunes and undos on a full disk.

A prune writes a manifest before it moves files, which needs space. So a small file is kept in
reserve and deleted when a prune or an undo meets a full disk.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from tfckpt_trainer.advice import Advice, CommandOrKey, command_or_key
from tfckpt_trainer.errors import NotWritableError, TfckptError, describe_error
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.storage.files import write_atomic
from tfckpt_trainer.sizes import size

RESERVE_BYTES = 256 << 10

MIN_FREE_RESERVES = 8
"""The reserve is written only if this many times its size is free."""

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The errors of a full disk, and of an exceeded quota."""

_NOT_WRITABLE = {errno.EROFS, errno.EACCES, errno.EPERM}

Result = TypeVar("Result")


class DiskFullError(TfckptError):
    """The disk is full, even after the reserve was released. Nothing was changed."""


def keep_reserve(run: RunDirectory) -> bool:
    """Writes the reserve if it is missing and there is space; returns whether it exists.

    Does not raise disk errors, because the reserve is only a precaution.
    """
    try:
        if run.control.is_symlink() or not run.is_ours:
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
        run.reserve.unlink()
    except OSError:
        return False
    return True


def is_space_low(run: RunDirectory) -> bool:
    """Whether free space is too low for heartbeats and commands."""
    try:
        return _free_bytes(run) < RESERVE_BYTES // 4
    except OSError:
        return False


def is_full(error: BaseException) -> bool:
    """Whether an error means that the disk or a quota is full."""
    return isinstance(error, OSError) and error.errno in FULL


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


def disk_full_error(run: RunDirectory, error: OSError) -> DiskFullError:
    """Returns an error with the path, the free space and commands that free space."""
    path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else run.root
    free = "unknown"
    with suppress(OSError):
        free = size(_free_bytes(run))
    return DiskFullError(
        f"{path}: {os.strerror(error.errno or errno.ENOSPC)}. Needed: about "
        f"{size(RESERVE_BYTES)}. Free: {free}. Nothing was changed.",
        advice_to_free_space(run),
    )


def advice_to_free_space(run: RunDirectory, *, has_trash: bool = True) -> Advice:
    """Returns advice on how to free disk space in a run directory.

    It offers to prune checkpoints only if there are any.

    Args:
        run: The run directory.
        has_trash: Whether there may be something in its trash.
    """
    trash, prune = _empty_trash(run), _delete_checkpoints(run)
    if not _may_have_checkpoints(run):
        if not has_trash:
            return Advice.of("Free space elsewhere on this disk.")
        return Advice.of(
            "Empty the trash with {trash}, or free space elsewhere on this disk.", trash=trash
        )
    if not has_trash:
        return Advice.of(
            "Free disk space, or delete checkpoints for good with {prune}.",
            "Free disk space, or prune checkpoints with {prune} and empty the trash.",
            prune=prune,
        )
    return Advice.of(
        "Free space with {trash}, or delete checkpoints for good with {prune}.",
        "Empty the trash with {trash}. To free more, prune checkpoints with {prune} before that.",
        trash=trash,
        prune=prune,
    )


def _may_have_checkpoints(run: RunDirectory) -> bool:
    try:
        return any(name.endswith(".index") for name in os.listdir(run.root))
    except OSError:
        return True


def _empty_trash(run: RunDirectory) -> CommandOrKey:
    return command_or_key("trash", "trash", run.root, "empty")


def _delete_checkpoints(run: RunDirectory) -> CommandOrKey:
    return command_or_key("prune", "prune", run.root, "CKPT", "--delete")


@contextmanager
def replace_advice(advice: Advice) -> Iterator[None]:
    """Replaces the advice of a `DiskFullError` that the block raises."""
    try:
        yield
    except DiskFullError as error:
        raise DiskFullError(error.found, advice) from error


@contextmanager
def explain_disk_errors(run: RunDirectory) -> Iterator[None]:
    """Turns an `OSError` of the block into an error that names the path and what to do.

    Raises:
        TfckptError: The block raised an `OSError`.
    """
    try:
        yield
    except OSError as error:
        what_to_do = (
            advice_to_free_space(run)
            if is_full(error)
            else Advice.of(
                "Check with `ls -la {run}` that this user can write to it.", run=run.shell_word
            )
        )
        raise TfckptError(
            f"Training cannot start in {run.root}: {describe_error(error)}.",
            what_to_do.then("Then start again."),
        ) from error


_KEEP_TRASH = "Do not empty the trash: it contains the checkpoints to bring back."


def advice_for_undo(run: RunDirectory) -> Advice:
    """Returns advice on how to free space for an undo."""
    return Advice.of(
        "{keep_trash} Free space elsewhere on this disk, or delete other checkpoints with {prune}. "
        "Then try again with {again}.",
        keep_trash=_KEEP_TRASH,
        prune=_delete_checkpoints(run),
        again=command_or_key("undo", "undo", run.root),
    )


def advice_beside_trainer(run: RunDirectory) -> Advice:
    """Returns advice on how to free space while a trainer runs that takes no commands."""
    return Advice.of(
        "Free space elsewhere on this disk, or empty the trash with {trash}. Then try again. Or "
        "end training without a save with {stop}, and delete checkpoints with {prune}.",
        trash=_empty_trash(run),
        stop=command_or_key("force-stop", "stop", "--force", run.root),
        prune=_delete_checkpoints(run),
    )


def advice_for_undo_beside_trainer(run: RunDirectory) -> Advice:
    """Returns advice on how to free space for an undo while a trainer runs without commands."""
    return Advice.of(
        "{keep_trash} Free space elsewhere on this disk. Then try again with {again}.",
        keep_trash=_KEEP_TRASH,
        again=command_or_key("undo", "undo", run.root),
    )


def _free_bytes(run: RunDirectory) -> int:
    facts = os.statvfs(run.root)
    return facts.f_bavail * facts.f_frsize
