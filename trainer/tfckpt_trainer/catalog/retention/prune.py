"""Prune and undo: move checkpoints to the trash and back, safely across crashes.

TensorFlow finds a checkpoint by its index file, so that file is moved first and returned last: at
every moment a checkpoint is complete or gone. The manifest is written before any file is moved. By
it, the next prune or undo, or `settle_interrupted_prunes`, brings back what an interrupted one had
moved.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tfckpt_trainer.bundle.index import index_lies_at
from tfckpt_trainer.catalog.directory.checkpoint_files import CheckpointFiles
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.catalog.directory.history import read_state_list
from tfckpt_trainer.catalog.directory.other_formats import OtherFile
from tfckpt_trainer.catalog.directory.pins import pinned_names
from tfckpt_trainer.catalog.directory.save_directories import parts_directory
from tfckpt_trainer.catalog.directory.trash import (
    MANIFEST,
    TrashReader,
    find_in_trash,
    has_trashed_files,
    list_trash,
    locked_trash,
    next_sequence,
)
from tfckpt_trainer.catalog.retention.matching import Checksums
from tfckpt_trainer.catalog.retention.moving import (
    bring_back,
    check_can_return,
    trash_files,
)
from tfckpt_trainer.catalog.retention.state_list import (
    list_entries,
    remove_from_state_file,
    return_to_state_file,
)
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.catalog.scan.named_checkpoints import scan_for_prune
from tfckpt_trainer.catalog.scan.ownership import has_proven_parts, names_of_others
from tfckpt_trainer.catalog.scan.protection import (
    NOT_IN_USE,
    protections,
    require_prunable_files,
)
from tfckpt_trainer.catalog.scan.states import CheckpointEvidence
from tfckpt_trainer.errors import (
    RefusedError,
    TfckptError,
    UnknownCheckpointError,
    UsageError,
    describe_error,
)
from tfckpt_trainer.machine.permissions import advice_about
from tfckpt_trainer.rundir.disk_reserve import (
    disk_full_error,
    keep_reserve,
    retry_with_reserve,
)
from tfckpt_trainer.rundir.full_disk import (
    DiskFullError,
    advice_for_undo,
    is_full,
    replace_advice,
)
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.trash import (
    ListEntry,
    TrashedCheckpoint,
    TrashManifest,
    TrashPhase,
)
from tfckpt_trainer.rundir.storage.documents import store
from tfckpt_trainer.rundir.storage.files import (
    delete_file,
    delete_if_without_files,
    facts_of,
    make_directory,
    sync_directory,
)
from tfckpt_trainer.rundir.storage.identity import Identity, identity_in, identity_of
from tfckpt_trainer.rundir.storage.owners import is_own_there
from tfckpt_trainer.words.advice import Advice, command_or_key
from tfckpt_trainer.words.counts import few_of
from tfckpt_trainer.words.times import utc_time


def _ignore(_warning: str) -> None:
    """Ignores a warning."""


OnWarning = Callable[[str], None]
"""Called with a sentence about a step that failed after the action itself was done."""


def event_of(kind: EventKind, manifest: TrashManifest) -> tuple[str, dict[str, Any]]:
    """Returns the message and the details of the event of a prune or an undo."""
    what = "Moved to the trash" if kind is EventKind.PRUNE else "Brought back"
    details = {"trash": manifest.id, "names": manifest.names}
    return f"{what}: {few_of(manifest.names)}.", details


def event_of_settled(manifest: TrashManifest) -> tuple[EventKind, str, dict[str, Any]]:
    """Returns the event of a prune or undo that was interrupted, and is settled now."""
    is_undo = manifest.phase is TrashPhase.UNDOING
    kind = EventKind.UNDO if is_undo else EventKind.PRUNE
    message, details = event_of(kind, manifest)
    return kind, f"{message} It had been interrupted.", details


def move_to_trash(
    run: RunDirectory,
    names: Sequence[str],
    *,
    by: str,
    now: float,
    update_state_file: bool,
    in_use: Mapping[str, str] = NOT_IN_USE,
    timeout: float | None = None,
    on_warning: OnWarning = _ignore,
) -> TrashManifest:
    """Moves checkpoints to the trash, all or none.

    Args:
        run: The run directory; the caller holds its lock or is its trainer.
        names: The checkpoints.
        by: Who asked.
        now: Seconds since the epoch.
        update_state_file: Whether to remove them from TensorFlow's state file. False beside a
            trainer that does not use this library, which writes that file itself.
        in_use: Names of checkpoints that another process may read or write, each with the reason.
        timeout: Seconds to wait for the lock of the trash; None for the default.
        on_warning: Called if a step fails after all files were moved.

    Raises:
        UsageError: A checkpoint does not exist, or no name was given.
        RefusedError: A checkpoint is protected or has changed; the message names what is in the
            trash all the same.
        DiskFullError: The disk is full; the message names what is in the trash all the same.
        OSError: A file operation failed; files that had been moved were moved back.
        TfckptError: A file operation failed, and some files could not be moved back.
    """

    def act() -> TrashManifest:
        with _ready_trash(run, on_warning, timeout):
            catalog, checkpoints = scan_for_prune(run, names, in_use, now)
            catalog.refuse_newer()
            chosen = require_prunable(checkpoints, names, in_use)
            manifest = _manifest(run, catalog, chosen, by, now, update_state_file)
            return _start(run, manifest, checkpoints, on_warning)

    keep_reserve(run)
    with _telling_what_moved(run):
        return retry_with_reserve(run, act)


def move_files_to_trash(
    run: RunDirectory,
    names: Sequence[str],
    *,
    by: str,
    now: float,
    on_warning: OnWarning = _ignore,
) -> TrashManifest:
    """Moves files of other formats to the trash, all or none; `undo` brings them back.

    Args:
        run: The run directory; the caller holds its lock.
        names: The files.
        by: Who asked.
        now: Seconds since the epoch.
        on_warning: Called if a step fails after all files were moved.

    Raises:
        UsageError: A file does not exist.
        RefusedError: A file is protected or has changed; the message names what is in the trash
            all the same.
        DiskFullError: The disk is full; the message names what is in the trash all the same.
        OSError: A file operation failed; files that had been moved were moved back.
        TfckptError: A file operation failed, and some files could not be moved back.
    """

    def act() -> TrashManifest:
        with _ready_trash(run, on_warning):
            chosen = require_prunable_files(run.root, names, now)
            checksums = Checksums()
            trashed = [_trashed_file(run, file, checksums) for file in chosen]
            return _start(run, _new_manifest(run, trashed, by, now), (), on_warning)

    keep_reserve(run)
    with _telling_what_moved(run):
        return retry_with_reserve(run, act)


@contextmanager
def _telling_what_moved(run: RunDirectory) -> Iterator[None]:
    """Has an error of the disk name the checkpoints that an unfinished action left in the trash."""
    try:
        yield
    except (OSError, DiskFullError) as error:
        names = _left_in_trash(run)
        if not names:
            raise
        outcome = f"Now in the trash: {few_of(names)}."
        cause = error.__cause__ if isinstance(error, DiskFullError) else error
        if isinstance(cause, OSError) and is_full(cause):
            full = disk_full_error(run, cause, outcome)
            raise DiskFullError(full.found, advice_for_undo(run)) from error
        is_closed = isinstance(cause, OSError) and advice_about(cause) is not None
        first = "Then" if is_closed else "When the disk works again"
        raise TfckptError(
            f"{_why(error)}. {outcome}",
            Advice.of(
                f"{first}, bring them back with {{undo}}.",
                undo=command_or_key("undo", "undo", run.root),
            ),
        ) from error


def _left_in_trash(run: RunDirectory) -> list[str]:
    """Returns the checkpoints of unfinished prunes and undos that have files in the trash."""
    with suppress(OSError, TfckptError):
        return [
            trashed.name
            for manifest in list_trash(run)
            if manifest.phase is not TrashPhase.TRASHED
            for trashed in manifest.checkpoints
            if has_trashed_files(run.trash / manifest.id, trashed)
        ]
    return []


@contextmanager
def _ready_trash(
    run: RunDirectory, on_warning: OnWarning, timeout: float | None = None
) -> Iterator[None]:
    """Holds the lock of the trash, where files can be moved and no prune is interrupted."""
    run.require_changeable()
    make_directory(run.control, durable=True)
    make_directory(run.trash, durable=True)
    with locked_trash(run, timeout):
        _settle_interrupted(run, on_warning)
        _refuse_another_device(run)
        yield


def undo(
    run: RunDirectory,
    identifier: str | None,
    *,
    update_state_file: bool,
    on_warning: OnWarning = _ignore,
) -> TrashManifest:
    """Moves the checkpoints of one prune back from the trash, all or none.

    Args:
        run: The run directory; the caller holds its lock or is its trainer.
        identifier: The id of the prune; None for the newest.
        update_state_file: Whether to add them to TensorFlow's state file again.
        on_warning: Called if a step fails after all files were moved.

    Raises:
        UsageError: There is no such prune.
        RefusedError: A file with the same name exists now, or one is missing from the trash;
            nothing was moved.
        DiskFullError: The disk is full; the next prune or undo goes on with this one.
        OSError: A file operation failed before anything was moved.
        TfckptError: A file operation failed; the next prune or undo goes on with this one.
    """
    run.require_changeable()
    if not run.trash.is_dir():
        # Raises the error for an empty trash, without creating anything in the directory.
        find_in_trash(run, identifier)

    def act() -> TrashManifest:
        with locked_trash(run):
            settled = _settle_interrupted(run, on_warning)
            undone = next((m for m in settled if _is_undo_of(m, identifier)), None)
            if undone is not None:
                return undone
            manifest = find_in_trash(run, identifier)
            with _naming_others(run, manifest, wanted=identifier):
                _check_can_return(run, manifest)
                return _undo(run, manifest, update_state_file, on_warning)

    with replace_advice(advice_for_undo(run)), _telling_what_moved(run):
        return retry_with_reserve(run, act)


def _undo(
    run: RunDirectory, manifest: TrashManifest, update_state_file: bool, on_warning: OnWarning
) -> TrashManifest:
    place = run.trash / manifest.id
    begun = replace(manifest, phase=TrashPhase.UNDOING, update_state_file=update_state_file)
    store(place / MANIFEST, begun)
    try:
        return _move_back(run, begun, on_warning)
    except OSError:
        with suppress(OSError, RefusedError):
            # What was refused must not be done by whoever comes next.
            trash_files(run, place, manifest.checkpoints, strict=False, heed_pins=False)
            _check_can_return(run, manifest)
            store(place / MANIFEST, manifest)
        raise


@contextmanager
def _naming_others(
    run: RunDirectory, manifest: TrashManifest, *, wanted: str | None
) -> Iterator[None]:
    """Has the refusal of a prune that nobody named say how another one comes back."""
    try:
        yield
    except (RefusedError, PermissionError) as error:
        others = [other for other in list_trash(run) if other.id != manifest.id]
        if wanted is not None or not others:
            raise
        undo = command_or_key("trash", "undo", run.root, "--trash", others[0].id)
        advice = Advice.of("Bring back the prune before it with {undo}.", undo=undo)
        raise RefusedError(f"{describe_error(error).rstrip('.')}.", advice) from error


def _is_undo_of(manifest: TrashManifest, identifier: str | None) -> bool:
    return manifest.phase is TrashPhase.UNDOING and identifier in (None, manifest.id)


def _check_can_return(run: RunDirectory, manifest: TrashManifest) -> None:
    for trashed in manifest.checkpoints:
        check_can_return(run, run.trash / manifest.id, trashed)


def settle_interrupted_prunes(
    run: RunDirectory, on_warning: OnWarning = _ignore
) -> list[TrashManifest]:
    """Brings back what each interrupted prune and undo had moved.

    A prune that had moved all its files is done. The plan of a later prune knows nothing of one
    that was interrupted, so nothing more is moved for that.

    Args:
        run: The run directory.
        on_warning: Called with a sentence about what stays as it is.

    Returns:
        Those that changed something, each with the checkpoints that are in another place now.

    Raises:
        RefusedError: The trash is locked, or a symbolic link is in the way.
        OSError: A file operation failed; the next call tries again.
    """
    if not TrashReader(run).in_transit():
        return []

    def act() -> list[TrashManifest]:
        with locked_trash(run):
            return _settle_interrupted(run, on_warning)

    return retry_with_reserve(run, act)


def _settle_interrupted(run: RunDirectory, on_warning: OnWarning) -> list[TrashManifest]:
    interrupted = [m for m in list_trash(run) if m.phase is not TrashPhase.TRASHED]
    settled = [_settle_or_leave(run, manifest, on_warning) for manifest in interrupted]
    return [manifest for manifest in settled if manifest.checkpoints]


def _settle_or_leave(
    run: RunDirectory, manifest: TrashManifest, on_warning: OnWarning
) -> TrashManifest:
    """Settles a prune or undo; leaves one that another user made so that this user cannot.

    Otherwise whoever may write to the trash could keep a run from pruning, and from starting.
    """
    try:
        return _settle(run, manifest, on_warning)
    except (OSError, RefusedError) as error:
        may_be_others = isinstance(error, PermissionError) or _is_of_others(run, manifest)
        if is_full(error) or not may_be_others:
            raise
        why = describe_error(error).rstrip(".")
        on_warning(f"A prune or undo was interrupted, and stays as it is: {why}.")
        return replace(manifest, checkpoints=[])


def _is_of_others(run: RunDirectory, manifest: TrashManifest) -> bool:
    """Whether another user made the directory of a prune, or its manifest."""
    place, user = run.trash / manifest.id, os.geteuid()
    found = filter(None, map(facts_of, (place, place / MANIFEST)))
    return not all(is_own_there(run.trash, facts.st_uid, user) for facts in found)


def _settle(run: RunDirectory, manifest: TrashManifest, on_warning: OnWarning) -> TrashManifest:
    if manifest.phase is TrashPhase.UNDOING:
        return _move_back(run, manifest, on_staying=on_warning, only_whole=True)
    place, pinned = run.trash / manifest.id, pinned_names(run)
    if pinned.isdisjoint(manifest.names) and _is_moved(run, manifest):
        return _mark_done(run, manifest)
    moved = {t.name for t in manifest.checkpoints if has_trashed_files(place, t)}
    undoing = replace(manifest, phase=TrashPhase.UNDOING)
    back = _move_back(run, undoing, on_staying=on_warning, only_whole=True)
    return replace(back, checkpoints=[t for t in back.checkpoints if t.name in moved])


def _is_moved(run: RunDirectory, manifest: TrashManifest) -> bool:
    """Whether all files of a prune are in the trash."""
    place = run.trash / manifest.id
    names = [name for trashed in manifest.checkpoints for name in trashed.files]
    return all(
        os.path.lexists(place / name) and not os.path.lexists(run.root / name) for name in names
    )


def _start(
    run: RunDirectory,
    manifest: TrashManifest,
    checkpoints: Sequence[Checkpoint],
    on_warning: OnWarning,
) -> TrashManifest:
    """Carries out a new prune; if it fails or is interrupted, moves everything back."""
    place = run.trash / manifest.id
    try:
        make_directory(place, durable=True)
        store(place / MANIFEST, manifest)
    except OSError:
        # A manifest that could not be flushed must not be finished later.
        _drop(place)
        raise
    try:
        return _move_to_trash(run, manifest, checkpoints, on_warning)
    except RefusedError as error:
        _roll_back(run, manifest)
        left = [one.name for one in manifest.checkpoints if has_trashed_files(place, one)]
        outcome = f"Now in the trash: {few_of(left)}." if left else "Nothing was moved."
        raise RefusedError(f"{error} {outcome} Prune again to see the new plan.") from error
    except BaseException:
        # Also by a signal.
        _roll_back(run, manifest)
        raise


def _roll_back(run: RunDirectory, manifest: TrashManifest) -> None:
    """Moves back the files of a failed prune, as far as possible."""
    back = replace(manifest, phase=TrashPhase.UNDOING)
    # If this cannot be written, the next action completes the prune instead of undoing it.
    with suppress(OSError, DiskFullError):
        retry_with_reserve(run, lambda: store(run.trash / manifest.id / MANIFEST, back))
    with suppress(OSError, DiskFullError):
        _move_back(run, back)


def _move_to_trash(
    run: RunDirectory,
    manifest: TrashManifest,
    checkpoints: Sequence[Checkpoint],
    on_warning: OnWarning,
) -> TrashManifest:
    """Moves the files of a manifest to the trash, and marks it as done.

    Args:
        run: The run directory.
        manifest: The prune.
        checkpoints: All checkpoints of the directory, newest first.
        on_warning: Called if a step fails after all files were moved.
    """
    is_listed = True
    if manifest.update_state_file:
        names = frozenset(manifest.names)
        remaining = [checkpoint for checkpoint in checkpoints if checkpoint.name not in names]
        is_listed = remove_from_state_file(run, names, remaining)
    trash_files(run, run.trash / manifest.id, manifest.checkpoints, strict=True)
    if not is_listed:
        on_warning(f"{run.state_file} cannot be read as TensorFlow's list, and was not changed.")
    try:
        return retry_with_reserve(run, lambda: _mark_done(run, manifest))
    except (OSError, DiskFullError) as error:
        on_warning(
            f"The manifest of {manifest.id} could not be updated ({_why(error)}); the next prune "
            "or undo updates it."
        )
        return replace(manifest, phase=TrashPhase.TRASHED)


def _mark_done(run: RunDirectory, manifest: TrashManifest) -> TrashManifest:
    done = replace(manifest, phase=TrashPhase.TRASHED)
    store(run.trash / manifest.id / MANIFEST, done)
    return done


def _move_back(
    run: RunDirectory,
    manifest: TrashManifest,
    on_warning: OnWarning | None = None,
    on_staying: OnWarning = _ignore,
    *,
    only_whole: bool = False,
) -> TrashManifest:
    """Moves the checkpoints of a manifest back; a checkpoint that was saved again stays.

    Args:
        run: The run directory.
        manifest: The prune.
        on_warning: Called if a step fails after all files were moved; None raises the error.
        on_staying: Called with a sentence about the checkpoints that stay.
        only_whole: See `bring_back`.
    """
    place = run.trash / manifest.id
    returned = bring_back(run, place, manifest.checkpoints, only_whole=only_whole)
    names = {trashed.name for trashed in returned}
    staying = [trashed for trashed in manifest.checkpoints if trashed.name not in names]
    there = [trashed for trashed in returned if index_lies_at(run.root / trashed.name)]
    if staying:
        if manifest.update_state_file:
            _list_again(run, there, on_staying)
        # Where there is an index, the files belong to the new save, also if they are equal.
        without_index = [one for one in staying if not index_lies_at(run.root / one.name)]
        trash_files(run, place, without_index, strict=False, heed_pins=False)
        kept = replace(manifest, checkpoints=staying, phase=TrashPhase.TRASHED)
        store(place / MANIFEST, kept)
        on_staying(
            f"What was pruned of {few_of(kept.names)} stays in the trash: there is another save of "
            "that name."
        )
        return replace(manifest, checkpoints=returned)
    try:
        if manifest.update_state_file:
            _list_again(run, there, on_warning or on_staying)
        return _close(run, manifest)
    except (OSError, DiskFullError) as error:
        if on_warning is None:
            raise
        on_warning(
            f"The manifest of {manifest.id} or TensorFlow's state file could not be updated "
            f"({_why(error)}); the next prune or undo updates it."
        )
        return manifest


def _list_again(
    run: RunDirectory, returned: Sequence[TrashedCheckpoint], on_refusal: OnWarning
) -> None:
    """Returns checkpoints to TensorFlow's state file, if this user may replace it."""
    try:
        retry_with_reserve(run, lambda: return_to_state_file(run, returned))
    except PermissionError as error:
        # Their files are back, and whoever tries again as this user is refused again.
        names = few_of([trashed.name for trashed in returned])
        on_refusal(f"TensorFlow's state file does not list {names} again: {_why(error)}.")


def _close(run: RunDirectory, manifest: TrashManifest) -> TrashManifest:
    """Removes a manifest without checkpoints."""
    place = run.trash / manifest.id
    delete_file(place / MANIFEST)
    delete_if_without_files(place)
    sync_directory(run.trash)
    return manifest


def _drop(place: Path) -> None:
    """Removes the directory of a prune that moved nothing."""
    with suppress(OSError):
        delete_file(place / MANIFEST)
        delete_if_without_files(place)


def _why(error: Exception) -> str:
    return describe_error(error).rstrip(".")


def require_prunable(
    checkpoints: Sequence[Checkpoint],
    names: Sequence[str],
    in_use: Mapping[str, str],
    action: str = "pruned",
) -> list[Checkpoint]:
    """Returns the checkpoints with these names.

    Raises:
        UsageError: A checkpoint does not exist, or no name was given.
        RefusedError: A checkpoint is protected.
    """
    by_name = {checkpoint.name: checkpoint for checkpoint in checkpoints}
    unknown = [name for name in names if name not in by_name]
    if unknown or not names:
        newest = f"the newest are {', '.join(list(by_name)[:5]) or 'none'}."
        if not unknown:
            raise UsageError(f"No checkpoint was given; {newest}")
        raise UnknownCheckpointError(f"There is no checkpoint {unknown[0]}; {newest}", unknown[0])
    chosen = [by_name[name] for name in dict.fromkeys(names)]
    protected = protections(checkpoints, in_use)
    for checkpoint in chosen:
        reason = protected.get(checkpoint.name)
        if reason:
            raise RefusedError(
                f"{checkpoint.name} cannot be {action}: {reason}. Nothing was changed."
            )
    return chosen


def _manifest(
    run: RunDirectory,
    catalog: Catalog,
    chosen: Sequence[Checkpoint],
    by: str,
    now: float,
    update_state_file: bool,
) -> TrashManifest:
    entries = list_entries(read_state_list(run)) if update_state_file else {}
    checksums = Checksums()
    trashed = [
        _trashed(run, c, catalog.evidence(c.name), entries.get(c.name), checksums) for c in chosen
    ]
    return _new_manifest(run, trashed, by, now, update_state_file=update_state_file)


def _new_manifest(
    run: RunDirectory,
    trashed: list[TrashedCheckpoint],
    by: str,
    now: float,
    *,
    update_state_file: bool = False,
) -> TrashManifest:
    stamp = utc_time(now, "%Y%m%dT%H%M%S")
    return TrashManifest(
        id=f"{stamp}-{secrets.token_hex(3)}",
        at=now,
        by=by,
        checkpoints=trashed,
        update_state_file=update_state_file,
        sequence=next_sequence(run),
    )


def _trashed_file(run: RunDirectory, file: OtherFile, checksums: Checksums) -> TrashedCheckpoint:
    path = run.root / file.name
    identity = identity_of(path)
    if identity is None:
        raise RefusedError(f"{file.name} is gone; nothing was moved.")
    return TrashedCheckpoint(
        name=file.name,
        step=file.step,
        size=identity[0],
        files=[file.name],
        identities=[identity],
        checksums=[checksums.of(path, identity[0], {}, file.name)],
    )


def _trashed(
    run: RunDirectory,
    checkpoint: Checkpoint,
    evidence: CheckpointEvidence,
    entry: ListEntry | None,
    checksums: Checksums,
) -> TrashedCheckpoint:
    """Returns the entry of a checkpoint in the manifest, its index file first."""
    there = files_of(run, evidence)
    names = [path.relative_to(run.root).as_posix() for path, _ in there]
    recorded_files = {f.name: f for f in checkpoint.packed.files} if checkpoint.packed else {}
    return TrashedCheckpoint(
        name=checkpoint.name,
        step=checkpoint.step,
        size=checkpoint.size,
        files=names,
        identities=[identity for _, identity in there],
        checksums=[
            checksums.of(path, identity[0], recorded_files, name)
            for name, (path, identity) in zip(names, there, strict=True)
        ],
        listed=checkpoint.listed,
        list_entry=entry,
    )


def files_of(run: RunDirectory, evidence: CheckpointEvidence) -> list[tuple[Path, Identity]]:
    """Returns all existing files and directories of a checkpoint, the index file first.

    What only has its name is of somebody else: data files of another number than its index says,
    a graph file that is none, and what is no file in the place of a record.
    """
    name, aside = evidence.files.name, run.saving_directory
    paths: list[tuple[Path, Identity | None]] = []
    others = names_of_others(run.root, evidence)
    paths += [
        (run.root / fact.name, fact.identity)
        for fact in evidence.files.index_first
        if fact.name not in others
    ]
    if evidence.aside is not None:
        paths += [(aside / fact.name, fact.identity) for fact in evidence.aside.index_first]
    documents = [run.record(name), run.record_copy(name)]
    documents += [run.verification(name), run.results(name), run.save_manifest(name)]
    places = (run.root, evidence.files), (aside, evidence.aside or CheckpointFiles(name))
    temporary = [
        parts_directory(at, name)
        for at, files in places
        # Beside a checkpoint, the names of parts alone show nothing.
        if files.temporary_at is not None
        and (at == aside or not files.has_index or has_proven_parts(at, files))
    ]
    for path in (*documents, run.worker_state_directory(name), *temporary):
        facts = facts_of(path)
        is_right = stat.S_ISREG if path in documents else stat.S_ISDIR
        if facts is not None and is_right(facts.st_mode):
            paths.append((path, identity_in(facts)))
    return [(path, identity) for path, identity in paths if identity is not None]


def _refuse_another_device(run: RunDirectory) -> None:
    if os.stat(run.root).st_dev != os.stat(run.trash).st_dev:
        raise RefusedError(
            f"{run.trash} is on another file system than {run.root}; files cannot be moved there "
            "in one step. Nothing was moved."
        )
