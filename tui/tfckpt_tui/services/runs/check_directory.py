"""Checks that a directory without files of ours has checkpoints; else, says what it has."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tfckpt_trainer.bundle.index import index_path
from tfckpt_trainer.catalog.directory.checkpoint_files import owner_of, owner_of_part
from tfckpt_trainer.catalog.directory.other_formats import SAVED_MODEL, find_neighbours
from tfckpt_trainer.catalog.directory.saved_model import SAVED_MODEL_FILES
from tfckpt_trainer.catalog.directory.version_one import find_version_one
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.machine.permissions import opening_advice
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.words.counts import join_names
from tfckpt_tui.formats import units
from tfckpt_tui.services.metrics.metric_tail import find_metric_files

_MOST_SEARCHED = 100
"""Subdirectories that are searched for checkpoints."""


def check_directory(run: RunDirectory, *, may_be_empty: bool) -> None:
    """Checks that a directory can be opened as a run.

    Args:
        run: The directory.
        may_be_empty: Whether an empty directory is accepted, because a run can be launched in it.

    Raises:
        UsageError: It does not exist, cannot be read, or has neither checkpoints nor event files.
    """
    root = run.root
    try:
        with os.scandir(root) as entries:
            next(entries, None)
        if run.is_ours or run.state_file.exists() or _has_checkpoint(root):
            return
        if find_version_one(root):
            return
        names = os.listdir(root)
    except FileNotFoundError:
        _refuse_checkpoint(root)
        raise UsageError(
            f"{root} does not exist; check the path, or start a run there with "
            f"`tfckpt-tui launch {run.shell_word} -- COMMAND`."
        ) from None
    except NotADirectoryError:
        _refuse_checkpoint(root)
        raise UsageError(
            f"{root} is not a directory; name the directory of the checkpoints. That may be "
            f"{root.parent}."
        ) from None
    except OSError as error:
        raise UsageError(
            f"{root} cannot be read: {error.strerror}.", opening_advice(error)
        ) from error
    if not names and may_be_empty:
        return
    if _has_other_files(root) or find_metric_files(run).paths:
        return
    raise _no_checkpoints(root, names)


def _no_checkpoints(root: Path, names: Sequence[str]) -> UsageError:
    """Returns an error that says what a directory has instead of checkpoints."""
    if not names:
        return UsageError(
            f"{root} is empty; start a run there with "
            f"`tfckpt-tui launch {RunDirectory(root).shell_word} -- COMMAND`."
        )
    inside = _with_checkpoints(root, names)
    if len(inside) > 1:
        return UsageError(
            f"{root} has no checkpoints itself; there are some in {join_names(inside)}. "
            f"List the runs with `tfckpt-tui browse {RunDirectory(root).shell_word}`."
        )
    if inside:
        what = "is a SavedModel" if SAVED_MODEL_FILES & set(names) else "has no checkpoints itself"
        return UsageError(
            f"{root} {what}; its checkpoints are in {inside[0]}. "
            f"Open them with `tfckpt-tui {shlex.quote(str(root / inside[0]))}`."
        )
    others = units.count(len(names), "other entry", "other entries")
    return UsageError(
        f"{root} has no checkpoints; it holds {others}, the first is {sorted(names)[0]!r}. "
        "Name a directory with checkpoints (NAME.index, NAME.data-…)."
    )


def _refuse_checkpoint(path: Path) -> None:
    """Raises an error if a path is that of a checkpoint, or of one of its files."""
    for name in (path.name, owner_of(path.name)):
        if name and index_path(path.parent / name).is_file():
            place = RunDirectory(path.parent).shell_word
            raise UsageError(
                f"{path} is a checkpoint, not a run directory. Name both: "
                f"`tfckpt-tui inspect {place} {shlex.quote(name)}`."
            )


def _has_checkpoint(root: Path) -> bool:
    """Whether a file or directory here belongs to a checkpoint; reads names until one does."""
    with os.scandir(root) as entries:
        return any(owner_of_part(entry.name) for entry in entries)


def _has_other_files(root: Path) -> bool:
    """Whether other programs keep checkpoints here, such as Keras; a SavedModel is none."""
    with suppress(OSError):
        return any(other.format != SAVED_MODEL for other in find_neighbours(root).others)
    return False


def _with_checkpoints(root: Path, names: Sequence[str]) -> list[str]:
    """Returns the subdirectories with checkpoints, such as `variables` of a SavedModel."""
    found = []
    for name in sorted(names)[:_MOST_SEARCHED]:
        # Most names are not those of directories.
        with suppress(OSError):
            if _has_checkpoint(root / name):
                found.append(name)
    return found
