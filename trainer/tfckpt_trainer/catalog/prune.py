"""Moves checkpoints to the trash and back: at every instant each one is whole or gone.

TensorFlow sees a checkpoint by its index, so the index leaves first and comes back last. The
manifest is written before anything moves; a prune or an undo that was cut off is finished from
it by `finish_interrupted_prunes`.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from tfckpt_trainer.bundle.state_file import StateFile, read_state_file, write_state_file
from tfckpt_trainer.catalog.checkpoints import Checkpoint, CheckpointState
from tfckpt_trainer.catalog.files import look
from tfckpt_trainer.catalog.scan import Catalog
from tfckpt_trainer.catalog.trash import MANIFEST, find_in_trash, list_trash
from tfckpt_trainer.errors import RefusedError, UsageError
from tfckpt_trainer.rundir.documents import store
from tfckpt_trainer.rundir.files import make_directory, sync_directory
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records import TrashedCheckpoint, TrashManifest, TrashPhase


def protection(checkpoint: Checkpoint, checkpoints: Iterable[Checkpoint]) -> str:
    """Returns why `checkpoint` must not be pruned, or an empty string."""
    newest = next((c for c in checkpoints if c.restorable), None)
    if checkpoint.pinned:
        return "pinned"
    if checkpoint.state is CheckpointState.WRITING:
        return "being written"
    if checkpoint.is_head:
        return "training goes on from it"
    if newest is not None and newest.name == checkpoint.name:
        return "the newest that can be restored"
    return ""


def move_to_trash(
    run: RunDirectory, names: Sequence[str], *, by: str, now: float, update_state_file: bool
) -> TrashManifest:
    """Moves the checkpoints `names` to the trash, all or none.

    Args:
        run: The run directory; the caller holds its lock or is its trainer.
        names: What to move.
        by: Who asked.
        now: Seconds since the epoch.
        update_state_file: Whether to take them off TensorFlow's list. Not beside a live trainer
            of somebody else's, which would write its own list over ours.

    Raises:
        UsageError: A name is not there, or none was given.
        RefusedError: One of them is protected; nothing was moved.
    """
    checkpoints = Catalog(run).scan(now)
    chosen = _chosen(checkpoints, names)
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now))
    manifest = TrashManifest(
        id=f"{stamp}-{secrets.token_hex(3)}",
        at=now,
        by=by,
        checkpoints=[_trashed(run, checkpoint) for checkpoint in chosen],
    )
    place = run.trash / manifest.id
    make_directory(place)
    store(place / MANIFEST, manifest)
    if update_state_file:
        _unlist(run, {checkpoint.name for checkpoint in chosen})
    return _finish_prune(run, manifest)


def undo(run: RunDirectory, identifier: str | None, *, update_state_file: bool) -> TrashManifest:
    """Brings back what one prune moved away.

    Args:
        run: The run directory; the caller holds its lock or is its trainer.
        identifier: Which prune; None for the newest.
        update_state_file: Whether to put them back on TensorFlow's list.

    Raises:
        UsageError: There is no such prune.
        RefusedError: A file of the same name is there now; nothing was moved.
    """
    manifest = find_in_trash(run, identifier)
    for trashed in manifest.checkpoints:
        for name in trashed.files:
            if (run.root / name).exists() and (run.trash / manifest.id / name).exists():
                raise RefusedError(
                    f"{name} is there again; move it away to bring {trashed.name} back."
                )
    manifest = msgspec.structs.replace(manifest, phase=TrashPhase.UNDOING)
    store(run.trash / manifest.id / MANIFEST, manifest)
    return _finish_undo(run, manifest, update_state_file)


def finish_interrupted_prunes(run: RunDirectory) -> list[TrashManifest]:
    """Finishes every prune and undo that was cut off; returns them."""
    finished = []
    for manifest in list_trash(run):
        if manifest.phase is TrashPhase.PRUNING:
            _unlist(run, {trashed.name for trashed in manifest.checkpoints})
            finished.append(_finish_prune(run, manifest))
        elif manifest.phase is TrashPhase.UNDOING:
            finished.append(_finish_undo(run, manifest, update_state_file=True))
    return finished


def _chosen(checkpoints: Sequence[Checkpoint], names: Sequence[str]) -> list[Checkpoint]:
    by_name = {checkpoint.name: checkpoint for checkpoint in checkpoints}
    unknown = [name for name in names if name not in by_name]
    if unknown or not names:
        what = f"There is no checkpoint {unknown[0]}" if unknown else "No checkpoint was named"
        raise UsageError(f"{what}; known are {', '.join(list(by_name)[:5]) or 'none'}.")
    chosen = [by_name[name] for name in dict.fromkeys(names)]
    for checkpoint in chosen:
        reason = protection(checkpoint, checkpoints)
        if reason:
            raise RefusedError(f"{checkpoint.name} is not pruned: {reason}. Nothing was moved.")
    return chosen


def _trashed(run: RunDirectory, checkpoint: Checkpoint) -> TrashedCheckpoint:
    files = look(run.root)[checkpoint.name]
    paths = [fact.path for fact in files.all]
    own = [run.record(checkpoint.name), run.worker_state_directory(checkpoint.name)]
    paths += [path for path in own if path.exists() and not path.is_symlink()]
    return TrashedCheckpoint(
        name=checkpoint.name,
        step=checkpoint.step,
        size=checkpoint.size,
        files=[path.relative_to(run.root).as_posix() for path in paths],
        listed=checkpoint.listed,
    )


def _finish_prune(run: RunDirectory, manifest: TrashManifest) -> TrashManifest:
    place = run.trash / manifest.id
    for trashed in manifest.checkpoints:
        for name in trashed.files:
            _move(run.root / name, place / name)
    sync_directory(run.root)
    done = msgspec.structs.replace(manifest, phase=TrashPhase.TRASHED)
    store(place / MANIFEST, done)
    return done


def _finish_undo(
    run: RunDirectory, manifest: TrashManifest, update_state_file: bool
) -> TrashManifest:
    place = run.trash / manifest.id
    for trashed in manifest.checkpoints:
        for name in reversed(trashed.files):
            _move(place / name, run.root / name)
    sync_directory(run.root)
    if update_state_file:
        _list_again(run, manifest)
    (place / MANIFEST).unlink()
    _remove_empty(place)
    return manifest


def _move(source: Path, target: Path) -> None:
    """Renames a file or directory; one that was moved before a crash is passed over."""
    if not source.exists() or source.is_symlink():
        return
    make_directory(target.parent)
    os.rename(source, target)


def _unlist(run: RunDirectory, names: set[str]) -> None:
    state = read_state_file(run.state_file)
    if state is None or not names & set(state.names):
        return
    stamps = state.timestamps or (0.0,) * len(state.all_paths)
    kept = [
        (path, stamp)
        for path, stamp in zip(state.all_paths, stamps, strict=False)
        if os.path.basename(path) not in names
    ]
    _write_list(run, state, kept)


def _list_again(run: RunDirectory, manifest: TrashManifest) -> None:
    state = read_state_file(run.state_file)
    if state is None:
        return
    stamps = state.timestamps or (0.0,) * len(state.all_paths)
    kept = list(zip(state.all_paths, stamps, strict=False))
    returned = [t for t in manifest.checkpoints if t.listed and t.name not in state.names]
    times = {c.name: c.saved_at for c in Catalog(run).scan(manifest.at)}
    # The newest stays last, as TensorFlow expects it.
    restored = [(trashed.name, times.get(trashed.name, 0.0)) for trashed in returned]
    _write_list(run, state, sorted([*restored, *kept[:-1]], key=lambda pair: pair[1]) + kept[-1:])


def _write_list(run: RunDirectory, state: StateFile, kept: Sequence[tuple[str, float]]) -> None:
    write_state_file(
        run.state_file,
        StateFile(
            latest=state.latest,
            all_paths=tuple(path for path, _ in kept),
            timestamps=tuple(stamp for _, stamp in kept),
            last_preserved=state.last_preserved,
        ),
    )


def _remove_empty(directory: Path) -> None:
    for path, _, _ in os.walk(directory, topdown=False):
        os.rmdir(path)
