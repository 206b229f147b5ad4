"""Moves the files of checkpoints between run directory and trash, each by one rename.

A checkpoint exists if its index file does. So all index files are moved first, and moved back
last. The directories are flushed in between: a power loss may undo renames that were not flushed,
in any order.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tfckpt_trainer.catalog.directory.pins import is_pinned
from tfckpt_trainer.catalog.retention.matching import ManifestMatch
from tfckpt_trainer.errors import RefusedError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.trash import TrashedCheckpoint
from tfckpt_trainer.rundir.storage.files import (
    make_directory,
    move,
    sync_directory,
)

_INDEX = ".index"


def trash_files(
    run: RunDirectory,
    place: Path,
    checkpoints: Sequence[TrashedCheckpoint],
    *,
    strict: bool,
    heed_pins: bool = True,
) -> None:
    """Moves the files of checkpoints to the trash; files that are already there stay.

    Args:
        run: The run directory.
        place: The prune's directory in the trash.
        checkpoints: The checkpoints.
        strict: Whether to fail if a file is not the planned one; otherwise that file stays.
        heed_pins: Whether to fail if a checkpoint is pinned by now.

    Raises:
        RefusedError: A file was changed or replaced, or a checkpoint was pinned.
        OSError: A file operation failed.
    """
    moves = _Moves(run.root, place)
    for files in (_indexes, _others):
        for trashed in checkpoints:
            match = ManifestMatch(run, place, trashed)
            for name in files(trashed):
                if heed_pins:
                    _refuse_pinned(run, place, trashed)
                moved = moves.trash_files(name, match, strict=strict)
                if strict and not moved:
                    raise RefusedError(f"{name} changed while {trashed.name} was being pruned.")
            if heed_pins:
                # If the lock is not shared, a pin may be written at this moment. It is written
                # before it is acknowledged: either it is seen here, or `set_pins` sees the move.
                _refuse_pinned(run, place, trashed)
        moves.flush()


def check_can_return(run: RunDirectory, place: Path, trashed: TrashedCheckpoint) -> None:
    """Checks that a checkpoint can be moved back from the trash.

    Raises:
        RefusedError: A file is missing, or exists again in the run directory.
    """
    missing = next((name for name in trashed.files if not os.path.lexists(place / name)), None)
    if missing is not None:
        raise RefusedError(
            f"{missing} is missing from {place}; {trashed.name} cannot be brought back completely."
        )
    again = next((name for name in trashed.files if os.path.lexists(run.root / name)), None)
    if again is not None:
        raise RefusedError(f"{again} exists again; move it away to bring {trashed.name} back.")


def bring_back(
    run: RunDirectory,
    place: Path,
    checkpoints: Sequence[TrashedCheckpoint],
    *,
    only_whole: bool = False,
) -> list[TrashedCheckpoint]:
    """Moves the files of checkpoints back, the index files last.

    Args:
        run: The run directory.
        place: The prune's directory in the trash.
        checkpoints: The checkpoints.
        only_whole: Whether one stays too if a file that had not moved is another one by now.

    Returns:
        The checkpoints that are back; not those that were saved again under the same name.

    Raises:
        OSError: A file operation failed.
    """
    returning = [
        trashed
        for trashed in checkpoints
        if not _is_replaced(run, place, trashed)
        and not (only_whole and _has_changed(run, place, trashed))
    ]
    moves = _Moves(run.root, place)
    for files in (_others, _indexes):
        for trashed in returning:
            for name in reversed(list(files(trashed))):
                if os.path.lexists(place / name):
                    moves.bring_back(name)
        moves.flush()
    return returning


class _Moves:
    """Renames files between run directory and trash, and flushes the changed directories."""

    def __init__(self, root: Path, place: Path) -> None:
        self._root = root
        self._place = place
        self._changed: set[Path] = set()

    def trash_files(self, name: str, match: ManifestMatch, *, strict: bool) -> bool:
        """Moves a file to the trash; returns whether the planned file is there."""
        source, target = self._root / name, self._place / name
        is_it = match.is_unchanged if strict else match.is_same_file
        if os.path.lexists(target):
            return True
        if not is_it(source, name):
            return False
        self._move(name, self._root, self._place)
        if match.is_unchanged(target, name) or (not strict and match.is_same_file(target, name)):
            return True
        # Another process replaced the file after it was checked.
        self._move(name, self._place, self._root)
        return False

    def bring_back(self, name: str) -> None:
        """Moves a file back to the run directory."""
        self._move(name, self._place, self._root)

    def flush(self) -> None:
        """Flushes the directories that changed since the last flush.

        Raises:
            NotFlushedError: A flush failed.
        """
        for directory in sorted(self._changed):
            sync_directory(directory)
        self._changed.clear()

    def _move(self, name: str, source: Path, target: Path) -> None:
        self._make_parents(name, target)
        move(source / name, target / name)
        self._changed |= {(source / name).parent, (target / name).parent}

    def _make_parents(self, name: str, base: Path) -> None:
        directory = base
        for part in name.split("/")[:-1]:
            directory = directory / part
            if not directory.is_dir() or directory.is_symlink():
                # If the directory is lost in a power loss, so are the files moved into it.
                make_directory(directory, durable=True)


def _refuse_pinned(run: RunDirectory, place: Path, trashed: TrashedCheckpoint) -> None:
    # If it was saved again under the same name, the pin belongs to the new checkpoint.
    if is_pinned(run, trashed.name) and not _is_replaced(run, place, trashed):
        raise RefusedError(f"{trashed.name} cannot be pruned: it was just pinned.")


def _is_replaced(run: RunDirectory, place: Path, trashed: TrashedCheckpoint) -> bool:
    """Whether a file of another save has the name of a file of the checkpoint that had moved."""
    return any(
        os.path.lexists(place / name) and os.path.lexists(run.root / name) for name in trashed.files
    )


def _has_changed(run: RunDirectory, place: Path, trashed: TrashedCheckpoint) -> bool:
    """Whether a file of the checkpoint that had not moved is another one by now."""
    match = ManifestMatch(run, place, trashed)
    return any(
        os.path.lexists(run.root / name) and not match.is_same_file(run.root / name, name)
        for name in trashed.files
    )


def _indexes(trashed: TrashedCheckpoint) -> Iterator[str]:
    return _having_suffix(trashed.files, is_index=True)


def _others(trashed: TrashedCheckpoint) -> Iterator[str]:
    return _having_suffix(trashed.files, is_index=False)


def _having_suffix(files: Iterable[str], *, is_index: bool) -> Iterator[str]:
    return (name for name in files if name.endswith(_INDEX) is is_index)
