"""The trash: whole checkpoints that a prune moved away, until they are brought back or emptied."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tfckpt_trainer.errors import DamagedFileError, UsageError
from tfckpt_trainer.rundir.documents import load
from tfckpt_trainer.rundir.paths import RunDirectory, is_plain_name
from tfckpt_trainer.rundir.records import TrashManifest, TrashPhase

MANIFEST = "manifest.json"


def list_trash(run: RunDirectory) -> list[TrashManifest]:
    """Returns what is in the trash, newest first; damaged entries are left out."""
    manifests = []
    for directory in _directories(run):
        try:
            manifest = load(directory / MANIFEST, TrashManifest)
        except (DamagedFileError, OSError):
            continue
        if manifest.id == directory.name and _names_are_safe(manifest):
            manifests.append(manifest)
    return sorted(manifests, key=lambda manifest: (manifest.at, manifest.id), reverse=True)


def find_in_trash(run: RunDirectory, identifier: str | None) -> TrashManifest:
    """Returns one prune by its id, or the newest.

    Raises:
        UsageError: There is none.
    """
    manifests = list_trash(run)
    for manifest in manifests:
        if identifier in (None, manifest.id):
            return manifest
    if not manifests:
        raise UsageError(f"The trash of {run.root} is empty; there is nothing to bring back.")
    known = ", ".join(manifest.id for manifest in manifests[:5])
    raise UsageError(f"There is no {identifier} in the trash; the newest are {known}.")


def empty_trash(run: RunDirectory, before: float | None = None) -> int:
    """Deletes for good what is in the trash.

    Args:
        run: The run directory.
        before: Only what was pruned before this time, in seconds since the epoch.

    Returns:
        How many bytes were freed.
    """
    freed = 0
    for manifest in list_trash(run):
        # One that is still on its way in or out may have files outside the trash.
        whole = manifest.phase is TrashPhase.TRASHED
        if whole and (before is None or manifest.at < before):
            freed += sum(trashed.size for trashed in manifest.checkpoints)
            # Without its manifest the rest is garbage that the next emptying takes.
            (run.trash / manifest.id / MANIFEST).unlink()
            shutil.rmtree(run.trash / manifest.id)
    for directory in _directories(run):
        if not (directory / MANIFEST).exists():
            shutil.rmtree(directory)
    return freed


def _directories(run: RunDirectory) -> Iterator[Path]:
    try:
        entries = list(os.scandir(run.trash))
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield Path(entry.path)


def _names_are_safe(manifest: TrashManifest) -> bool:
    """Whether no name in a manifest leads out of the run directory."""
    return all(
        is_plain_name(part)
        for trashed in manifest.checkpoints
        for name in trashed.files
        for part in name.split("/")
    )
