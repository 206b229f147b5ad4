"""Moves checkpoints to the trash and back: at every instant each one is whole or gone.

TensorFlow sees a checkpoint by its index, so the index leaves first and comes back last. The
manifest is written before anything moves; a prune or an undo that was cut off is finished from
it, by the next one or by `finish_interrupted_prunes`.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from tfckpt_trainer.catalog.checkpoints import Checkpoint
from tfckpt_trainer.catalog.files import identity_of
from tfckpt_trainer.catalog.history import read_list
from tfckpt_trainer.catalog.moving import (
    bring_back,
    can_come_back,
    check_files,
    has_begun,
    is_unchanged,
    put_away,
    refuse_links,
    remove_empty,
)
from tfckpt_trainer.catalog.protection import protections
from tfckpt_trainer.catalog.scan import Catalog
from tfckpt_trainer.catalog.state_list import list_entries, put_on_list, take_off_list
from tfckpt_trainer.catalog.states import Evidence
from tfckpt_trainer.catalog.trash import (
    MANIFEST,
    TrashLook,
    find_in_trash,
    list_trash,
    locked_trash,
)
from tfckpt_trainer.errors import DamagedFileError, RefusedError, UsageError
from tfckpt_trainer.rundir.documents import store
from tfckpt_trainer.rundir.files import make_directory, sync_directory
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records import ListEntry, TrashedCheckpoint, TrashManifest, TrashPhase


def move_to_trash(
    run: RunDirectory,
    names: Sequence[str],
    *,
    by: str,
    now: float,
    update_state_file: bool,
    in_use: frozenset[str] = frozenset(),
    patience: float | None = None,
) -> TrashManifest:
    """Moves the checkpoints `names` to the trash, all or none.

    Args:
        run: The run directory; the caller holds its lock or is its trainer.
        names: What to move.
        by: Who asked.
        now: Seconds since the epoch.
        update_state_file: Whether to take them off TensorFlow's list. Not beside a live trainer
            of somebody else's, which would write its own list over ours.
        in_use: Names of what is being read or written.
        patience: Seconds to wait for another prune, undo or emptying, if not the usual ones.

    Raises:
        UsageError: A name is not there, or none was given.
        RefusedError: One of them is protected or changed meanwhile; nothing was moved.
        OSError: The disk refused; what had moved was brought back.
    """
    refuse_links(run)
    make_directory(run.trash)
    with locked_trash(run, patience):
        _finish_interrupted(run, now)
        catalog = Catalog(run)
        checkpoints = catalog.scan(now)
        chosen = _chosen(checkpoints, names, in_use)
        entries = list_entries(read_list(run)) if update_state_file else {}
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now))
        manifest = TrashManifest(
            id=f"{stamp}-{secrets.token_hex(3)}",
            at=now,
            by=by,
            checkpoints=[
                _trashed(run, c, catalog.evidence(c.name), entries.get(c.name)) for c in chosen
            ],
            update_state_file=update_state_file,
        )
        _refuse_another_device(run)
        place = run.trash / manifest.id
        make_directory(place)
        store(place / MANIFEST, manifest)
        try:
            return _carry_out(run, manifest, checkpoints, strict=True)
        except (OSError, RefusedError):
            # If the disk refuses this too, the next prune finishes what the manifest says.
            with suppress(OSError):
                _carry_back(run, manifest)
            raise


def undo(run: RunDirectory, identifier: str | None, *, update_state_file: bool) -> TrashManifest:
    """Brings back what one prune moved away, all or nothing.

    Args:
        run: The run directory; the caller holds its lock or is its trainer.
        identifier: Which prune; None for the newest.
        update_state_file: Whether to put them back on TensorFlow's list.

    Raises:
        UsageError: There is no such prune.
        RefusedError: A file of the same name is there now, or one is gone from the trash;
            nothing was moved.
        OSError: The disk refused; the next prune or undo finishes this one.
    """
    refuse_links(run)
    if not run.trash.is_dir():
        # It raises the message for an empty trash; nothing is created in a foreign directory.
        find_in_trash(run, identifier)
    with locked_trash(run):
        _finish_interrupted(run, time.time())
        manifest = find_in_trash(run, identifier)
        place = run.trash / manifest.id
        for trashed in manifest.checkpoints:
            check_files(trashed)
            can_come_back(run, place, trashed)
        manifest = replace(manifest, phase=TrashPhase.UNDOING, update_state_file=update_state_file)
        store(place / MANIFEST, manifest)
        return _carry_back(run, manifest)


def finish_interrupted_prunes(run: RunDirectory) -> list[TrashManifest]:
    """Finishes every prune and undo that was cut off; returns them.

    A prune goes on to its end, except for a checkpoint that had not been touched and that is
    protected or another one by now: that stays.

    Raises:
        RefusedError: A prune, undo or emptying goes on, or a link stands in the way.
        OSError: The disk refused; the next call tries again.
    """
    if not TrashLook(run).in_transit():
        return []
    refuse_links(run)
    with locked_trash(run):
        return _finish_interrupted(run, time.time())


def _finish_interrupted(run: RunDirectory, now: float) -> list[TrashManifest]:
    finished = []
    for manifest in list_trash(run):
        if manifest.phase is TrashPhase.TRASHED:
            continue
        try:
            for trashed in manifest.checkpoints:
                check_files(trashed)
        except DamagedFileError:
            # It is none of ours, and nothing in it is moved anywhere.
            continue
        if manifest.phase is TrashPhase.PRUNING:
            finished.append(_finish_prune(run, manifest, now))
        else:
            finished.append(_carry_back(run, manifest))
    return finished


def _finish_prune(run: RunDirectory, manifest: TrashManifest, now: float) -> TrashManifest:
    place = run.trash / manifest.id
    checkpoints = Catalog(run).scan(now)
    protected = protections(checkpoints)
    going: list[TrashedCheckpoint] = []
    staying: list[TrashedCheckpoint] = []
    for trashed in manifest.checkpoints:
        untouched = not has_begun(place, trashed)
        stays = untouched and (trashed.name in protected or not is_unchanged(run, trashed))
        (staying if stays else going).append(trashed)
    if staying and manifest.update_state_file:
        put_on_list(run, staying)
    manifest = replace(manifest, checkpoints=going)
    if not going:
        return _close(run, manifest)
    store(place / MANIFEST, manifest)
    return _carry_out(run, manifest, checkpoints, strict=False)


def _carry_out(
    run: RunDirectory, manifest: TrashManifest, checkpoints: Sequence[Checkpoint], *, strict: bool
) -> TrashManifest:
    """Moves to the trash what a manifest names, and closes it."""
    place = run.trash / manifest.id
    if manifest.update_state_file:
        names = frozenset(trashed.name for trashed in manifest.checkpoints)
        take_off_list(run, names, [c for c in checkpoints if c.name not in names])
    for trashed in manifest.checkpoints:
        put_away(run, place, trashed, strict=strict)
    sync_directory(place)
    sync_directory(run.root)
    done = replace(manifest, phase=TrashPhase.TRASHED)
    store(place / MANIFEST, done)
    return done


def _carry_back(run: RunDirectory, manifest: TrashManifest) -> TrashManifest:
    """Brings back what a manifest names; what has another in its place by now stays."""
    place = run.trash / manifest.id
    returned: list[TrashedCheckpoint] = []
    staying: list[TrashedCheckpoint] = []
    for trashed in manifest.checkpoints:
        came = bring_back(run, place, trashed)
        (returned if came else staying).append(trashed)
    sync_directory(run.root)
    if manifest.update_state_file:
        put_on_list(run, returned)
    if staying:
        for trashed in staying:
            put_away(run, place, trashed, strict=False)
        kept = replace(manifest, checkpoints=staying, phase=TrashPhase.TRASHED)
        store(place / MANIFEST, kept)
        return replace(manifest, checkpoints=returned)
    return _close(run, manifest)


def _close(run: RunDirectory, manifest: TrashManifest) -> TrashManifest:
    """Removes a manifest that has nothing in the trash any more."""
    place = run.trash / manifest.id
    (place / MANIFEST).unlink()
    remove_empty(place)
    sync_directory(run.trash)
    return manifest


def _chosen(
    checkpoints: Sequence[Checkpoint], names: Sequence[str], in_use: frozenset[str]
) -> list[Checkpoint]:
    by_name = {checkpoint.name: checkpoint for checkpoint in checkpoints}
    unknown = [name for name in names if name not in by_name]
    if unknown or not names:
        what = f"There is no checkpoint {unknown[0]}" if unknown else "No checkpoint was named"
        raise UsageError(f"{what}; known are {', '.join(list(by_name)[:5]) or 'none'}.")
    chosen = [by_name[name] for name in dict.fromkeys(names)]
    protected = protections(checkpoints, in_use)
    for checkpoint in chosen:
        reason = protected.get(checkpoint.name)
        if reason:
            raise RefusedError(f"{checkpoint.name} is not pruned: {reason}. Nothing was moved.")
        if not _can_be_written(checkpoint.name):
            raise RefusedError(
                f"{checkpoint.name!r} is not UTF-8, and no manifest can hold it; rename its files "
                "to prune it. Nothing was moved."
            )
    return chosen


def _can_be_written(name: str) -> bool:
    try:
        return bool(name.encode())
    except UnicodeEncodeError:
        return False


def _trashed(
    run: RunDirectory, checkpoint: Checkpoint, evidence: Evidence, entry: ListEntry | None
) -> TrashedCheckpoint:
    """Lists what belongs to a checkpoint, the index first."""
    name, aside = checkpoint.name, run.saving_directory
    found: list[tuple[Path, tuple[int, int, int] | None]] = []
    found += [(run.root / fact.name, fact.identity) for fact in evidence.files.index_first]
    if evidence.aside is not None:
        found += [(aside / fact.name, fact.identity) for fact in evidence.aside.index_first]
    own = [run.record(name), run.worker_state_directory(name), run.verification(name)]
    temporary = [run.root / f"{name}_temp", aside / f"{name}_temp"]
    for path in (*own, *temporary):
        if not path.is_symlink():
            found.append((path, identity_of(path)))
    there = [(path, identity) for path, identity in found if identity is not None]
    return TrashedCheckpoint(
        name=name,
        step=checkpoint.step,
        size=checkpoint.size,
        files=[path.relative_to(run.root).as_posix() for path, _ in there],
        identities=[identity for _, identity in there],
        listed=checkpoint.listed,
        list_entry=entry,
    )


def _refuse_another_device(run: RunDirectory) -> None:
    if os.stat(run.root).st_dev != os.stat(run.trash).st_dev:
        raise RefusedError(
            f"{run.trash} is on another file system than {run.root}; a move there could be cut "
            "off halfway. Nothing was moved."
        )
