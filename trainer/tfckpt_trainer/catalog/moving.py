"""Moves the files of one checkpoint between run directory and trash, each by one rename."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tfckpt_trainer.catalog.files import identity_of
from tfckpt_trainer.errors import DamagedFileError, RefusedError
from tfckpt_trainer.rundir.files import make_directory
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records import TrashedCheckpoint

_SUFFIX = re.compile(r"\.index|\.meta|_temp|\.data-\d{5}-of-\d{5}")


def refuse_links(run: RunDirectory) -> None:
    """Checks that no directory through which files move is a symbolic link.

    Raises:
        RefusedError: One is.
    """
    for directory in (
        run.control,
        run.trash,
        run.records_directory,
        run.verifications_directory,
        run.saving_directory,
        run.control / "workers",
    ):
        if directory.is_symlink():
            raise RefusedError(f"{directory} is a symbolic link; nothing is moved through it.")


def check_files(trashed: TrashedCheckpoint) -> None:
    """Checks that a manifest names nothing but files of its checkpoint.

    Raises:
        DamagedFileError: It names something else.
    """
    name = trashed.name
    own = {
        f".tfckpt/records/{name}.json",
        f".tfckpt/verifications/{name}.json",
        f".tfckpt/workers/{name}",
    }
    for file in trashed.files:
        plain = file.removeprefix(".tfckpt/saving/")
        belongs = plain.startswith(name) and _SUFFIX.fullmatch(plain[len(name) :])
        if not belongs and file not in own:
            raise DamagedFileError(
                f"A manifest in the trash gives {file!r} to checkpoint {name!r}, to which it "
                "cannot belong; nothing was moved."
            )


def has_begun(place: Path, trashed: TrashedCheckpoint) -> bool:
    """Whether any file of a checkpoint is in the trash already."""
    return any(os.path.lexists(place / name) for name in trashed.files)


def is_unchanged(run: RunDirectory, trashed: TrashedCheckpoint) -> bool:
    """Whether every file is where it was, and the same."""
    return all(_is_same(run.root / name, identity) for name, identity in _pairs(trashed))


def put_away(run: RunDirectory, place: Path, trashed: TrashedCheckpoint, *, strict: bool) -> None:
    """Moves the files of a checkpoint to the trash; what is there already stays there.

    Args:
        run: The run directory.
        place: The prune's directory in the trash.
        trashed: What to move.
        strict: Whether to stop at a file that is not the one that was planned for. If not,
            that one is left where it is.

    Raises:
        RefusedError: A file was changed or replaced since.
        OSError: The disk refused.
    """
    for name, identity in _pairs(trashed):
        source, target = run.root / name, place / name
        if os.path.lexists(target) or _move_if_same(source, target, identity):
            continue
        if strict:
            raise RefusedError(
                f"{name} was changed while {trashed.name} was being pruned; it stays. Look again."
            )


def can_come_back(run: RunDirectory, place: Path, trashed: TrashedCheckpoint) -> None:
    """Checks that all of a checkpoint is in the trash and nothing is in its way.

    Raises:
        RefusedError: Something is missing, or is there again.
    """
    for name in trashed.files:
        if not os.path.lexists(place / name):
            raise RefusedError(
                f"{name} is gone from {place}; {trashed.name} cannot be brought back whole."
            )
        if os.path.lexists(run.root / name):
            raise RefusedError(f"{name} is there again; move it away to bring {trashed.name} back.")


def bring_back(run: RunDirectory, place: Path, trashed: TrashedCheckpoint) -> bool:
    """Moves the files of a checkpoint back, the index last; what is back already stays.

    Returns:
        Whether it is back; not if another file took the place of one of its files.

    Raises:
        OSError: The disk refused.
    """
    names = [name for name in reversed(trashed.files) if os.path.lexists(place / name)]
    if any(os.path.lexists(run.root / name) for name in names):
        return False
    for name in names:
        make_directory((run.root / name).parent)
        os.rename(place / name, run.root / name)
    return True


def remove_empty(directory: Path) -> None:
    """Removes a directory and those in it, as far as they are empty."""
    for path, _, _ in os.walk(directory, topdown=False):
        try:
            os.rmdir(path)
        except OSError:
            # Somebody put something there; the next emptying of the trash takes it.
            return


def _move_if_same(source: Path, target: Path, identity: tuple[int, int, int] | None) -> bool:
    if not _is_same(source, identity):
        return False
    make_directory(target.parent)
    os.rename(source, target)
    if _is_same(target, identity):
        return True
    # Another process replaced it between the look and the move.
    os.rename(target, source)
    return False


def _is_same(path: Path, identity: tuple[int, int, int] | None) -> bool:
    found = identity_of(path)
    return found is not None and (identity is None or found == identity)


def _pairs(trashed: TrashedCheckpoint) -> list[tuple[str, tuple[int, int, int] | None]]:
    if len(trashed.identities) == len(trashed.files):
        return list(zip(trashed.files, trashed.identities, strict=True))
    return [(name, None) for name in trashed.files]
