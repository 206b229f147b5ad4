"""The trash: its manifests, its lock, and which prune an undo brings back."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from msgspec.structs import replace

from tfckpt_trainer.catalog.directory.other_formats import format_of
from tfckpt_trainer.catalog.directory.save_directories import TEMPORARY
from tfckpt_trainer.errors import (
    DamagedFileError,
    NewerFileError,
    UsageError,
    describe_error,
)
from tfckpt_trainer.rundir.disk_reserve import begin_change
from tfckpt_trainer.rundir.paths import RunDirectory, is_checkpoint_name
from tfckpt_trainer.rundir.records.trash import (
    TrashedCheckpoint,
    TrashManifest,
    TrashOrder,
    TrashPhase,
)
from tfckpt_trainer.rundir.storage.documents import load, load_if_exists, store
from tfckpt_trainer.rundir.storage.files import list_directory, make_directory
from tfckpt_trainer.rundir.storage.identity import Identity, identity_in
from tfckpt_trainer.rundir.storage.locks import locked
from tfckpt_trainer.rundir.storage.owners import signed_by
from tfckpt_trainer.rundir.storage.trees import walk
from tfckpt_trainer.words.advice import Advice, command_or_key

MANIFEST = "manifest.json"
RETENTION = "retention"
"""Value of `TrashManifest.by` for a trainer that pruned by its own rules."""
LOCK_SECONDS = 10.0
LARGEST_SEQUENCE = 1 << 62
"""A greater one is not one that this library gave."""
LARGEST_COUNTED = LARGEST_SEQUENCE >> 1
"""No new one follows a greater one: whoever may write to the trash could leave none."""


EMPTIED = ".emptied"
"""How the name of a directory ends whose prune is being deleted for good."""

# Compiled when they are used: most runs have no trash.
_SUFFIX = rf"\.index|\.meta|{TEMPORARY}|\.data-\d{{5}}-of-\d{{5}}"
_TEMPORARY = r"\.manifest\.json\.[0-9a-f]+\.tmp"

_Entry = tuple[Identity, TrashManifest | None, str]
"""The identity of a manifest, what it says unless it is damaged, and what is wrong with it."""


class TrashReader:
    """Reads the manifests in the trash repeatedly; reads only those that changed.

    Attributes:
        damaged: A sentence for each manifest that the last `read` could not read, by its id.
    """

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._known: dict[str, _Entry] | None = None
        self.damaged: dict[str, str] = {}

    def read(self) -> list[TrashManifest]:
        """Returns the prunes in the trash, newest first, without damaged ones.

        Raises:
            OSError: The trash cannot be read.
        """
        entries: dict[str, _Entry] = {}
        known = self._known or {}
        for directory in directories_in_trash(self._run):
            try:
                facts = os.lstat(directory / MANIFEST)
            except FileNotFoundError:
                if _holds_files(directory):
                    problem = _damage(directory, "it has no manifest")
                    entries[directory.name] = (0, 0, 0), None, problem
                continue
            except NotADirectoryError:
                continue
            except OSError as error:
                entries[directory.name] = (0, 0, 0), None, _damage(directory, describe_error(error))
                continue
            if directory.name.endswith(EMPTIED):
                # The next emptying goes on with it.
                continue
            identity = identity_in(facts)
            before = known.get(directory.name)
            if before is not None and before[0] == identity:
                entries[directory.name] = before
            else:
                entries[directory.name] = identity, *read_manifest(directory)
        self._known = entries
        self.damaged = {name: problem for name, (_, _, problem) in entries.items() if problem}
        manifests = [manifest for _, manifest, _ in entries.values() if manifest is not None]
        return sorted(manifests, key=lambda m: (m.sequence, m.at, m.id), reverse=True)

    def watch(self) -> None:
        """Reads the manifests if none were read yet, so that `in_transit` notices a change."""
        if self._known is None:
            self.read()

    def in_transit(self) -> frozenset[str]:
        """Returns the checkpoints that prunes and undos may be moving.

        These are the ones of running and interrupted prunes and undos, and of those that began or
        ended since the last read: who lists files between the two may have seen half of a move.
        """
        known = self._known
        now = self.read()
        before = now if known is None else [m for _, m, _ in known.values() if m is not None]
        was = {manifest.id: manifest for manifest in before}
        moving = [m for m in now if m.phase is not TrashPhase.TRASHED or was.get(m.id) is not m]
        there = {manifest.id for manifest in now}
        moving += [m for m in before if m.id not in there]
        return frozenset(name for manifest in moving for name in manifest.names)


def list_trash(run: RunDirectory) -> list[TrashManifest]:
    """Returns the prunes in the trash, newest first, without damaged ones."""
    return TrashReader(run).read()


def find_in_trash(run: RunDirectory, identifier: str | None) -> TrashManifest:
    """Returns the prune with this id; for None, the one that an undo brings back.

    Raises:
        UsageError: There is none.
    """
    reader = TrashReader(run)
    manifests = reader.read()
    if identifier is None:
        manifest = next_to_undo(manifests)
    else:
        manifest = next((m for m in manifests if m.id == identifier), None)
    if manifest is not None:
        return manifest
    damaged = reader.damaged
    damage = damaged.get(identifier, "") if identifier else next(iter(damaged.values()), "")
    if damage:
        raise UsageError(f"Nothing can be brought back. {damage}")
    if not manifests and not reader.damaged:
        raise UsageError(f"The trash of {run.root} is empty; there is nothing to bring back.")
    newest = ", ".join(manifest.id for manifest in manifests[:5]) or "damaged"
    raise UsageError(f"There is no prune {identifier} in the trash; the newest are {newest}.")


def has_trashed_files(place: Path, trashed: TrashedCheckpoint) -> bool:
    """Whether any file of a checkpoint is in the prune's directory of the trash."""
    return any(os.path.lexists(place / name) for name in trashed.files)


def find_trashed(run: RunDirectory, text: str) -> tuple[TrashManifest, TrashedCheckpoint] | None:
    """Returns the newest prune with a checkpoint of this name or step in the trash, and which.

    A checkpoint also counts if only some of its files are in the trash.
    """
    for manifest in list_trash(run):
        for trashed in manifest.checkpoints:
            if text in (trashed.name, str(trashed.step)) and has_trashed_files(
                run.trash / manifest.id, trashed
            ):
                return manifest, trashed
    return None


def in_trash_error(run: RunDirectory, text: str) -> UsageError | None:
    """Returns the error for a name or a step that is in the trash; None if it is not there."""
    match = find_trashed(run, text)
    if match is None:
        return None
    manifest, trashed = match
    undo = command_or_key("trash", "undo", run.root, "--trash", manifest.id)
    advice = Advice.of("Bring it back with {undo}.", undo=undo)
    return UsageError(f"{trashed.name} is in the trash.", advice)


def next_to_undo(manifests: Sequence[TrashManifest]) -> TrashManifest | None:
    """Returns the newest prune that a user asked for, otherwise the newest; None if there is none.

    The next save prunes again what a trainer pruned.

    Args:
        manifests: The prunes in the trash, newest first.
    """
    asked_for = (manifest for manifest in manifests if manifest.by != RETENTION)
    return next(asked_for, next(iter(manifests), None))


@contextmanager
def locked_trash(run: RunDirectory, timeout: float | None = None) -> Iterator[None]:
    """Holds the lock of the trash, which each prune, undo, pin and emptying needs.

    Args:
        run: The run directory.
        timeout: Seconds to wait for the lock; None for the default.

    Raises:
        RefusedError: Another action holds the lock, or a symbolic link is in the way.
        NotWritableError: The directory cannot be written to.
    """
    run.require_changeable()
    seconds = LOCK_SECONDS if timeout is None else timeout
    what = f"prune, undo, pin or emptying of {run.root}"
    with ExitStack() as held:

        def acquire() -> None:
            make_directory(run.control, durable=True)
            held.enter_context(locked(run.trash_lock, seconds, what))

        begin_change(run, acquire)
        yield


def next_sequence(run: RunDirectory) -> int:
    """Returns and stores the next sequence number of a prune; the caller holds the lock.

    Raises:
        OSError: It could not be stored.
    """
    sequences = [manifest.sequence for manifest in list_trash(run)]
    with suppress(DamagedFileError):
        noted = load_if_exists(run.trash_order, TrashOrder)
        sequences += [noted.sequence] if noted is not None else []
    highest = max((one for one in sequences if one <= LARGEST_COUNTED), default=0)
    # Not flushed: after a power loss, the manifests still have their order.
    store(run.trash_order, TrashOrder(sequence=highest + 1), durable=False)
    return highest + 1


def directories_in_trash(run: RunDirectory) -> Iterator[Path]:
    """Yields the directories of the prunes in the trash."""
    for entry in list_directory(run.trash):
        if entry.is_dir(follow_symlinks=False):
            yield Path(entry.path)


def is_temporary_manifest(name: str) -> bool:
    """Whether a file is what the store of a manifest leaves if it is killed."""
    return re.fullmatch(_TEMPORARY, name) is not None


def _holds_files(directory: Path) -> bool:
    """Whether a directory without a manifest has files that no killed prune or undo left."""
    return any(
        place != str(directory) or not is_temporary_manifest(name)
        for place, names in walk(directory)
        for name in names
    )


def read_manifest(directory: Path) -> tuple[TrashManifest | None, str]:
    """Returns the manifest of a directory of the trash, or None and what is wrong with it."""
    try:
        manifest = load(directory / MANIFEST, TrashManifest)
    except FileNotFoundError:
        return None, ""
    except NewerFileError as error:
        return None, f"{directory} cannot be used: {error}"
    except (DamagedFileError, OSError) as error:
        return None, _damage(directory, describe_error(error))
    if manifest.id != directory.name.removesuffix(EMPTIED):
        return None, _damage(directory, "its manifest is of another prune")
    problem = next(filter(None, map(_problem_of, manifest.checkpoints)), "")
    if manifest.sequence > LARGEST_SEQUENCE:
        problem = f"its manifest is the {manifest.sequence:,}th of the run"
    return (None, _damage(directory, problem)) if problem else (_signed(directory, manifest), "")


def _signed(directory: Path, manifest: TrashManifest) -> TrashManifest:
    """Adds whose file a manifest is, if that is not the user who pruned by its words."""
    with suppress(OSError):
        owner = os.lstat(directory / MANIFEST).st_uid
        return replace(manifest, by=signed_by(manifest.by, owner))
    return manifest


def _damage(directory: Path, why: str) -> str:
    return (
        f"{directory} cannot be used: {why.rstrip('.')}. Its files stay there: move the ones that "
        f"you need to the run directory, and delete the rest with "
        f"`rm -r {shlex.quote(os.fspath(directory))}`."
    )


def _problem_of(trashed: TrashedCheckpoint) -> str:
    """Returns why this library did not write what a manifest says of a checkpoint; empty if it did.

    All files have to be those of the checkpoint, and each needs its facts.
    """
    name = trashed.name
    if not is_checkpoint_name(name):
        return f"its manifest lists {name!r}, which cannot be the name of a checkpoint"
    if not len(trashed.files) == len(trashed.identities) == len(trashed.checksums):
        return f"its manifest lists files of {name} without their sizes or checksums"
    if trashed.files == [name] and format_of(name) is not None:
        # A file of another format is all of its checkpoint.
        return ""
    own = {
        f".tfckpt/records/{name}.json",
        f".tfckpt/records/{name}.json.copy",
        f".tfckpt/saving/{name}.json",
        f".tfckpt/results/{name}.json",
        f".tfckpt/verifications/{name}.json",
        f".tfckpt/workers/{name}",
    }
    for file in trashed.files:
        plain = file.removeprefix(".tfckpt/saving/")
        belongs = plain.startswith(name) and re.fullmatch(_SUFFIX, plain[len(name) :])
        if not belongs and file not in own:
            return f"its manifest lists {file!r}, which is not a file of checkpoint {name!r}"
    return ""
