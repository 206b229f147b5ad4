"""The trash: whole checkpoints that a prune moved away, until they are brought back or emptied."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tfckpt_trainer.catalog.history import entries_of
from tfckpt_trainer.errors import DamagedFileError, RefusedError, UsageError
from tfckpt_trainer.rundir.documents import load
from tfckpt_trainer.rundir.paths import RunDirectory, is_plain_name
from tfckpt_trainer.rundir.records import TrashManifest, TrashPhase

MANIFEST = "manifest.json"
RETENTION = "retention"
"""Who pruned, where a trainer did by its own rules."""
LOCK_SECONDS = 10.0


class TrashLook:
    """Looks at the trash again and again; a manifest that was not replaced is not read twice."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._known: dict[str, tuple[tuple[int, int, int], TrashManifest | None]] = {}

    def take(self) -> list[TrashManifest]:
        """Returns what is in the trash, newest first; damaged entries are left out.

        Raises:
            OSError: The trash cannot be read.
        """
        known = {}
        for directory in _directories(self._run):
            try:
                facts = os.lstat(directory / MANIFEST)
            except (FileNotFoundError, NotADirectoryError):
                continue
            identity = (facts.st_size, facts.st_mtime_ns, facts.st_ino)
            before = self._known.get(directory.name)
            if before is not None and before[0] == identity:
                known[directory.name] = before
            else:
                known[directory.name] = identity, _read_manifest(directory)
        self._known = known
        manifests = [manifest for _, manifest in known.values() if manifest is not None]
        return sorted(manifests, key=lambda manifest: (manifest.at, manifest.id), reverse=True)

    def in_transit(self) -> frozenset[str]:
        """Returns the names that a prune or an undo has in hand, or had when it was cut off."""
        return frozenset(
            trashed.name
            for manifest in self.take()
            if manifest.phase is not TrashPhase.TRASHED
            for trashed in manifest.checkpoints
        )


def list_trash(run: RunDirectory) -> list[TrashManifest]:
    """Returns what is in the trash, newest first; damaged entries are left out."""
    return TrashLook(run).take()


def find_in_trash(run: RunDirectory, identifier: str | None) -> TrashManifest:
    """Returns one prune by its id, or the one that an undo means.

    Raises:
        UsageError: There is none.
    """
    manifests = list_trash(run)
    if identifier is None:
        found = next_to_undo(manifests)
    else:
        found = next((m for m in manifests if m.id == identifier), None)
    if found is not None:
        return found
    if not manifests:
        raise UsageError(f"The trash of {run.root} is empty; there is nothing to bring back.")
    known = ", ".join(manifest.id for manifest in manifests[:5])
    raise UsageError(f"There is no {identifier} in the trash; the newest are {known}.")


def next_to_undo(manifests: Sequence[TrashManifest]) -> TrashManifest | None:
    """Returns the newest prune that a person asked for, else the newest; None of none.

    A trainer prunes after each save, and would at once prune again what comes back.

    Args:
        manifests: What is in the trash, newest first.
    """
    asked_for = (manifest for manifest in manifests if manifest.by != RETENTION)
    return next(asked_for, next(iter(manifests), None))


@contextmanager
def locked_trash(run: RunDirectory, patience: float | None = None) -> Iterator[None]:
    """Keeps every other prune, undo and emptying of this run waiting.

    Args:
        run: The run directory.
        patience: Seconds to wait for another one, if not the usual ones.

    Raises:
        RefusedError: Another one goes on for long, or a link stands where a directory must be.
    """
    # Imported when something moves: whoever only looks at the trash need not wait for it.
    from filelock import FileLock, Timeout

    for directory in (run.control, run.trash):
        if directory.is_symlink():
            raise RefusedError(f"{directory} is a symbolic link; nothing is moved through it.")
    try:
        with FileLock(run.trash_lock, timeout=LOCK_SECONDS if patience is None else patience):
            yield
    except Timeout:
        raise RefusedError(
            f"Another prune, undo or emptying of {run.root} goes on; try again when it is done."
        ) from None


@dataclass(frozen=True)
class Emptied:
    """What was deleted for good: bytes that became free, and the names of the checkpoints."""

    freed: int
    names: tuple[str, ...]


def trashed_before(run: RunDirectory, before: float | None = None) -> tuple[TrashManifest, ...]:
    """Returns what emptying would delete for good, newest first.

    Args:
        run: The run directory.
        before: Only what was pruned before this time, in seconds since the epoch.
    """
    return tuple(
        manifest
        for manifest in list_trash(run)
        if manifest.phase is TrashPhase.TRASHED and (before is None or manifest.at < before)
    )


def trashed_bytes(run: RunDirectory) -> int:
    """Returns how many bytes emptying the trash would free."""
    return sum(trashed.size for m in trashed_before(run) for trashed in m.checkpoints)


def empty_trash(
    run: RunDirectory,
    before: float | None = None,
    *,
    by: str | None = None,
    until_freed: int | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Emptied:
    """Deletes for good what is in the trash; what is on its way there or back stays.

    Args:
        run: The run directory.
        before: Only what was pruned before this time, in seconds since the epoch.
        by: Only what was pruned by this one.
        until_freed: Stop when so many bytes are free, the oldest first.
        on_progress: Told after each file how many bytes are free.

    Raises:
        RefusedError: A prune or an undo goes on, or the trash is a symbolic link.
        OSError: Something could not be deleted.
    """
    if not run.trash.is_dir():
        return Emptied(0, ())
    freed, names = 0, []
    with locked_trash(run):
        for directory in _directories(run):
            # What an emptying that was cut off left: without its manifest it is garbage.
            if not os.path.lexists(directory / MANIFEST):
                freed = _delete(directory, freed, on_progress)
        for manifest in reversed(trashed_before(run, before)):
            if until_freed is not None and freed >= until_freed:
                break
            if by in (None, manifest.by):
                directory = run.trash / manifest.id
                (directory / MANIFEST).unlink()
                freed = _delete(directory, freed, on_progress)
                names += [trashed.name for trashed in manifest.checkpoints]
    return Emptied(freed, tuple(names))


def _delete(directory: Path, freed: int, on_progress: Callable[[int], None] | None) -> int:
    """Deletes a directory; returns how many bytes are free by then, `freed` of them before."""
    for place, _, names in os.walk(directory):
        if Path(place) != directory:
            freed += sum(os.lstat(os.path.join(place, name)).st_size for name in names)
    # The data files lie on top, and take their time. Nothing is deleted through a link, even if
    # one is put in the way meanwhile.
    top = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        with os.scandir(top) as entries:
            files = [entry for entry in entries if not entry.is_dir(follow_symlinks=False)]
        for file in files:
            freed += os.lstat(file.name, dir_fd=top).st_size
            os.unlink(file.name, dir_fd=top)
            if on_progress is not None:
                on_progress(freed)
    finally:
        os.close(top)
    shutil.rmtree(directory)
    return freed


def _directories(run: RunDirectory) -> Iterator[Path]:
    for entry in entries_of(run.trash):
        if entry.is_dir(follow_symlinks=False):
            yield Path(entry.path)


def _read_manifest(directory: Path) -> TrashManifest | None:
    try:
        manifest = load(directory / MANIFEST, TrashManifest)
    except (DamagedFileError, OSError):
        return None
    return manifest if manifest.id == directory.name and _names_are_safe(manifest) else None


def _names_are_safe(manifest: TrashManifest) -> bool:
    """Whether no name in a manifest leads out of the run directory."""
    return all(
        is_plain_name(part)
        for trashed in manifest.checkpoints
        for name in trashed.files
        for part in name.split("/")
    )
