"""Pins: a pinned checkpoint is never pruned. A prune never overtakes an acknowledged pin."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tfckpt_trainer.bundle.index import index_path
from tfckpt_trainer.bundle.links import follow_link
from tfckpt_trainer.catalog.directory.checkpoint_files import owner_of, owner_of_part
from tfckpt_trainer.catalog.directory.trash import find_trashed, in_trash_error, locked_trash
from tfckpt_trainer.errors import UnknownCheckpointError, UsageError, describe_error
from tfckpt_trainer.rundir.disk_reserve import retry_with_reserve
from tfckpt_trainer.rundir.paths import RunDirectory, is_plain_name
from tfckpt_trainer.rundir.storage.files import (
    NotFlushedError,
    delete_file,
    list_directory,
    make_directory,
    write_atomic,
)
from tfckpt_trainer.words.advice import only_command


def pin(run: RunDirectory, name: str) -> None:
    """Writes the pin of a checkpoint.

    Neither takes the lock nor checks that the checkpoint exists; `set_pins` does.

    Raises:
        RefusedError: A directory of the path is a symbolic link.
        NotFlushedError: The pin was written but could not be flushed.
        OSError: The pin was not written.
    """
    run.require_changeable()
    make_directory(run.pins_directory, durable=True)
    write_atomic(run.pin(name), b"")


def unpin(run: RunDirectory, name: str) -> None:
    """Removes the pin of a checkpoint, if it has one.

    Raises:
        RefusedError: A directory of the path is a symbolic link.
    """
    run.require_changeable()
    delete_file(run.pin(name))


def is_pinned(run: RunDirectory, name: str) -> bool:
    """Whether a checkpoint is pinned now."""
    return os.path.lexists(run.pin(name))


def pinned_names(run: RunDirectory) -> frozenset[str]:
    """Returns the names of all pinned checkpoints."""
    try:
        return frozenset(os.listdir(run.pins_directory))
    except (FileNotFoundError, NotADirectoryError):
        return frozenset()


def set_pins(
    run: RunDirectory, names: Sequence[str], *, pinned: bool, timeout: float | None = None
) -> tuple[str, ...]:
    """Pins or unpins checkpoints, all or none.

    Waits for a running prune, undo or emptying of the trash, and they wait for it.

    Args:
        run: The run directory.
        names: The checkpoints.
        pinned: Whether to pin them.
        timeout: Seconds to wait for the lock of the trash; None for the default.

    Returns:
        Warnings about pins that may not survive a power loss.

    Raises:
        UsageError: A checkpoint does not exist, or is in the trash.
        RefusedError: The trash is locked, or a symbolic link is in the way.
        DiskFullError: The disk is full.
        OSError: A file operation failed; no pin was changed.
    """
    run.require_changeable()
    # The pin of a checkpoint that is gone or in the trash can be removed.
    wanted = [name for name in names if pinned or not is_pinned(run, name)]
    # Before anything is created: the directory may not belong to this library.
    _check_exist(run, wanted)
    with locked_trash(run, timeout):
        _check_exist(run, wanted)
        return retry_with_reserve(run, lambda: _set_all(run, names, pinned=pinned))


def _set_all(run: RunDirectory, names: Sequence[str], *, pinned: bool) -> tuple[str, ...]:
    changing = [name for name in names if is_pinned(run, name) is not pinned]
    warnings = []
    try:
        for name in changing:
            try:
                (pin if pinned else unpin)(run, name)
            except NotFlushedError as error:
                warnings.append(
                    f"The change to {name} may not survive a power loss: {describe_error(error)}."
                )
        if pinned:
            # If the lock is not shared, a prune that did not see the pin may have moved it.
            _check_exist(run, names)
    except BaseException:
        for name in changing:
            with suppress(OSError):
                (unpin if pinned else pin)(run, name)
        raise
    return tuple(warnings)


def _has_index(run: RunDirectory, name: str) -> bool:
    """Whether a checkpoint certainly exists, without listing the directory."""
    if not is_plain_name(name):
        return False
    try:
        return stat.S_ISREG(os.lstat(index_path(run.root / name)).st_mode)
    except OSError:
        return False


def _link_error(run: RunDirectory, name: str) -> UsageError:
    link, _ = follow_link(os.fspath(run.root), index_path(Path(name)).name)
    target = owner_of(link.file)
    what = f"{name} is a symbolic link{f' to {target}' if target else ''} and cannot be pinned."
    if not target:
        return UsageError(f"{what} Prunes never move links.")
    return UsageError(f"{what} Pin its target.", only_command("Run ", "pin", run.root, target))


def _check_exist(run: RunDirectory, names: Sequence[str]) -> None:
    names = [name for name in names if not _has_index(run, name)]
    if not names:
        return
    seen, with_index = set(), set()
    for directory in (run.root, run.saving_directory):
        for entry in list_directory(directory):
            if not entry.is_symlink():
                owner = owner_of_part(entry.name)
                seen.add(owner)
                if entry.name.endswith(".index"):
                    with_index.add(owner)
    for name in names:
        if is_plain_name(name) and index_path(run.root / name).is_symlink():
            raise _link_error(run, name)
        # Without its index file, a prune may be moving it at this moment.
        if not name or name not in seen or (name not in with_index and find_trashed(run, name)):
            raise in_trash_error(run, name) or UnknownCheckpointError(
                f"There is no checkpoint {name!r}.",
                name,
                only_command("List them with ", "ls", run.root),
            )
