"""The trash: whole checkpoints that a prune moved away, until they are brought back or emptied."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tfckpt_trainer.catalog.retention.pins import is_pinned
from tfckpt_trainer.catalog.scan.directory_listing import Identity
from tfckpt_trainer.catalog.scan.history import entries_of
from tfckpt_trainer.errors import DamagedFileError, RefusedError, UsageError, in_words
from tfckpt_trainer.rundir.documents import load, load_if_there, store
from tfckpt_trainer.rundir.files import make_directory, sync_directory
from tfckpt_trainer.rundir.paths import RunDirectory, is_plain_name
from tfckpt_trainer.rundir.records.trash import (
    TrashedCheckpoint,
    TrashManifest,
    TrashOrder,
    TrashPhase,
)
from tfckpt_trainer.rundir.reserve import keep_reserve, with_room

if TYPE_CHECKING:
    from filelock import BaseFileLock

MANIFEST = "manifest.json"
RETENTION = "retention"
"""Who pruned, where a trainer did by its own rules."""
LOCK_SECONDS = 10.0


class TrashLook:
    """Looks at the trash again and again; a manifest that was not replaced is not read twice.

    Attributes:
        damaged: What the last look could not read: a sentence for each manifest.
    """

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._known: dict[str, tuple[Identity, TrashManifest | None, str]] = {}
        self.damaged: tuple[str, ...] = ()

    def take(self) -> list[TrashManifest]:
        """Returns what is in the trash, newest first; damaged entries are left out.

        Raises:
            OSError: The trash cannot be read.
        """
        known: dict[str, tuple[Identity, TrashManifest | None, str]] = {}
        for directory in _directories(self._run):
            try:
                facts = os.lstat(directory / MANIFEST)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                known[directory.name] = (0, 0, 0), None, _damage(directory, in_words(error))
                continue
            identity = (facts.st_size, facts.st_mtime_ns, facts.st_ino)
            before = self._known.get(directory.name)
            if before is not None and before[0] == identity:
                known[directory.name] = before
            else:
                known[directory.name] = identity, *_read_manifest(directory)
        self._known = known
        self.damaged = tuple(problem for _, _, problem in known.values() if problem)
        manifests = [manifest for _, manifest, _ in known.values() if manifest is not None]
        return sorted(manifests, key=lambda m: (m.sequence, m.at, m.id), reverse=True)

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


def has_begun(place: Path, trashed: TrashedCheckpoint) -> bool:
    """Whether any file of a checkpoint is in the prune's directory of the trash."""
    return any(os.path.lexists(place / name) for name in trashed.files)


def find_trashed(run: RunDirectory, text: str) -> tuple[TrashManifest, TrashedCheckpoint] | None:
    """Returns the newest prune with a checkpoint of this name or step in the trash, and which.

    A checkpoint also counts if only some of its files are in the trash.
    """
    for manifest in list_trash(run):
        for trashed in manifest.checkpoints:
            if text in (trashed.name, str(trashed.step)) and has_begun(
                run.trash / manifest.id, trashed
            ):
                return manifest, trashed
    return None


def in_trash_error(run: RunDirectory, text: str) -> UsageError | None:
    """Returns the error for a name or a step that is in the trash; None if it is not there."""
    found = find_trashed(run, text)
    if found is None:
        return None
    manifest, trashed = found
    command = f"tfckpt-tui undo {shlex.quote(str(run.root))} --trash {manifest.id}"
    return UsageError(f"{trashed.name} is in the trash. Bring it back with `{command}`.")


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

    run.refuse_links()
    seconds = LOCK_SECONDS if patience is None else patience
    lock = FileLock(run.trash_lock, timeout=seconds)
    try:
        with_room(run, lambda: _acquire(run, lock))
    except Timeout:
        raise RefusedError(
            f"Another prune, undo, pin or emptying of {run.root} goes on, for more than "
            f"{seconds:g} s. Nothing was changed; try again when it is done."
        ) from None
    try:
        yield
    finally:
        lock.release()


def _acquire(run: RunDirectory, lock: BaseFileLock) -> None:
    make_directory(run.control, durable=True)
    lock.acquire()


def next_sequence(run: RunDirectory) -> int:
    """Returns the next place in the order of prunes, and notes it; the trash is locked.

    Raises:
        OSError: The disk refused.
    """
    highest = max((manifest.sequence for manifest in list_trash(run)), default=0)
    with suppress(DamagedFileError):
        noted = load_if_there(run.trash_order, TrashOrder)
        highest = max(highest, noted.sequence if noted is not None else 0)
    # Not flushed: after a power loss the manifests themselves tell the order of what is left.
    store(run.trash_order, TrashOrder(sequence=highest + 1), durable=False)
    return highest + 1


@dataclass(frozen=True)
class Emptied:
    """What was deleted for good.

    Attributes:
        freed: Bytes that became free.
        names: Of the checkpoints.
        kept: A sentence for each prune that stays because something in it is pinned.
        problems: A sentence for each prune that could not be read or deleted.
        warnings: Sentences about what the disk refused once it was done.
    """

    freed: int
    names: tuple[str, ...]
    kept: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def trashed_before(run: RunDirectory, before: float | None = None) -> tuple[TrashManifest, ...]:
    """Returns what emptying would delete for good, newest first.

    Args:
        run: The run directory.
        before: Only what was pruned before this time, in seconds since the epoch.
    """
    return _trashed_before(TrashLook(run), before)


def _trashed_before(look: TrashLook, before: float | None) -> tuple[TrashManifest, ...]:
    return tuple(
        manifest
        for manifest in look.take()
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
    only: str | None = None,
    until_freed: int | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Emptied:
    """Deletes for good what is in the trash; what is on its way there or back stays.

    What is pinned stays too, unless a checkpoint of that name is in view: the pin is that one's.

    Args:
        run: The run directory.
        before: Only what was pruned before this time, in seconds since the epoch.
        by: Only what was pruned by this one.
        only: Only the prune with this id.
        until_freed: Stop when so many bytes are free, the oldest first.
        on_progress: Told after each file how many bytes are free.

    Raises:
        RefusedError: A prune or an undo goes on, or the trash is a symbolic link.
        OSError: The trash cannot be read.
    """
    if not run.trash.is_dir():
        return Emptied(0, ())
    with locked_trash(run):
        emptying = _Emptying(run, on_progress)
        for directory in _directories(run):
            # What an emptying that was cut off left: without its manifest it is garbage.
            if only is None and _has_no_manifest(directory):
                emptying.delete(directory)
        look = TrashLook(run)
        manifests = _trashed_before(look, before)
        if only is None:
            emptying.problems += look.damaged
        for manifest in reversed(manifests):
            if until_freed is not None and emptying.freed >= until_freed:
                break
            if by in (None, manifest.by) and only in (None, manifest.id):
                emptying.delete_prune(manifest)
        # It may have been given up to come so far.
        keep_reserve(run)
    return emptying.done()


class _Emptying:
    """Deletes one prune after the other; what cannot be deleted does not keep the next."""

    def __init__(self, run: RunDirectory, on_progress: Callable[[int], None] | None) -> None:
        self._run = run
        self._on_progress = on_progress
        self.freed = 0
        self.problems: list[str] = []
        self._names: list[str] = []
        self._kept: list[str] = []

    def delete_prune(self, manifest: TrashManifest) -> None:
        """Deletes what one prune moved away, its manifest first."""
        pinned = [
            trashed.name
            for trashed in manifest.checkpoints
            if is_pinned(self._run, trashed.name)
            and not os.path.lexists(self._run.root / f"{trashed.name}.index")
        ]
        if pinned:
            self._kept.append(
                f"{', '.join(pinned)} in {manifest.id} stays in the trash: pinned. Bring it back "
                f"with `tfckpt-tui undo {self._run.root} --trash {manifest.id}`."
            )
            return
        directory = self._run.trash / manifest.id
        try:
            (directory / MANIFEST).unlink()
            # Before the rest goes: a power loss must not bring back a manifest of nothing.
            sync_directory(directory)
        except OSError as error:
            self.problems.append(_not_deleted(directory, error))
            return
        self._names += [trashed.name for trashed in manifest.checkpoints]
        self.delete(directory)

    def delete(self, directory: Path) -> None:
        """Deletes a directory of the trash."""
        try:
            self.freed = _delete(directory, self.freed, self._on_progress)
        except OSError as error:
            self.problems.append(_not_deleted(directory, error))

    def done(self) -> Emptied:
        """Returns what was deleted."""
        return Emptied(self.freed, tuple(self._names), tuple(self._kept), tuple(self.problems))


def _not_deleted(directory: Path, error: OSError) -> str:
    return (
        f"{directory} could not be deleted wholly: {in_words(error)}. Try again, or look at it "
        "with `ls -lR`."
    )


def _has_no_manifest(directory: Path) -> bool:
    """Whether there is certainly none; a disk that cannot be read tells nothing."""
    try:
        os.lstat(directory / MANIFEST)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


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


def _read_manifest(directory: Path) -> tuple[TrashManifest | None, str]:
    """Returns a manifest, or None and what is wrong with it."""
    try:
        manifest = load(directory / MANIFEST, TrashManifest)
    except FileNotFoundError:
        return None, ""
    except (DamagedFileError, OSError) as error:
        return None, _damage(directory, in_words(error))
    if manifest.id == directory.name and _names_are_safe(manifest):
        return manifest, ""
    return None, _damage(directory, "its manifest names files outside of it, or another prune")


def _damage(directory: Path, why: str) -> str:
    return (
        f"{directory} cannot be used: {why.rstrip('.')}. Its files stay there: move those that "
        f"you need to the run directory, and delete the rest with `rm -r {directory}`."
    )


def _names_are_safe(manifest: TrashManifest) -> bool:
    """Whether no name in a manifest leads out of the run directory."""
    return all(
        is_plain_name(part)
        for trashed in manifest.checkpoints
        for name in trashed.files
        for part in name.split("/")
    )
