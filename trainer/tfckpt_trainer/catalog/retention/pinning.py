"""Pins and unpins checkpoints, so that no acknowledged pin is overtaken by a prune."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from tfckpt_trainer.catalog.retention.pins import is_pinned, pin, unpin
from tfckpt_trainer.catalog.retention.trash import find_trashed, in_trash_error, locked_trash
from tfckpt_trainer.catalog.scan.checkpoint_files import owner_of
from tfckpt_trainer.catalog.scan.history import entries_of
from tfckpt_trainer.errors import UnknownCheckpointError, in_words
from tfckpt_trainer.rundir.files import NotFlushedError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.reserve import with_room


def set_pins(
    run: RunDirectory, names: Sequence[str], *, pinned: bool, patience: float | None = None
) -> tuple[str, ...]:
    """Pins or unpins checkpoints: all of them, or none where one cannot be.

    It waits for a prune, an undo or an emptying that goes on, as those wait for it.

    Args:
        run: The run directory.
        names: Of the checkpoints.
        pinned: Whether to pin them.
        patience: Seconds to wait, if not the usual ones.

    Returns:
        Sentences about what is done and may not survive a power loss.

    Raises:
        UsageError: There is no such checkpoint, or it is in the trash.
        RefusedError: Something moves checkpoints for long, or a link stands in the way.
        DiskFullError: The disk is full.
        OSError: The disk refused; what had been pinned is no longer.
    """
    run.refuse_links()
    # A pin whose checkpoint is gone or in the trash can always be taken off.
    wanted = [name for name in names if pinned or not is_pinned(run, name)]
    # Before anything is created in a directory of somebody else.
    _check_in_view(run, wanted)
    with locked_trash(run, patience):
        _check_in_view(run, wanted)
        return with_room(run, lambda: _set_all(run, names, pinned=pinned))


def _set_all(run: RunDirectory, names: Sequence[str], *, pinned: bool) -> tuple[str, ...]:
    changing = [name for name in names if is_pinned(run, name) is not pinned]
    warnings = []
    try:
        for name in changing:
            try:
                (pin if pinned else unpin)(run, name)
            except NotFlushedError as error:
                warnings.append(f"It may not survive a power loss: {in_words(error)}.")
        if pinned:
            # Where the lock is not shared, a prune may have moved it since; it did not see the pin.
            _check_in_view(run, names)
    except BaseException:
        for name in changing:
            with suppress(OSError):
                (unpin if pinned else pin)(run, name)
        raise
    return tuple(warnings)


def _check_in_view(run: RunDirectory, names: Sequence[str]) -> None:
    seen, with_index = set(), set()
    for directory in (run.root, run.saving_directory):
        for entry in entries_of(directory):
            if not entry.is_symlink():
                seen.add(owner_of(entry.name))
                if entry.name.endswith(".index"):
                    with_index.add(owner_of(entry.name))
    for name in names:
        # Without its index it may be half of one that a prune has in hand.
        if not name or name not in seen or (name not in with_index and find_trashed(run, name)):
            raise in_trash_error(run, name) or UnknownCheckpointError(
                f"There is no checkpoint {name!r}; list them with `tfckpt-tui ls {run.root}`.", name
            )
