"""Checkpoints that were saved outside their run directory, and the way back.

The fallback directory of a run is a run directory too, so a save there is as safe as any other.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from tfckpt_trainer.bundle.checksum import crc32c
from tfckpt_trainer.bundle.index import index_path
from tfckpt_trainer.catalog.commit.saves import (
    begin_save,
    commit_save,
    discard_save,
    finish_interrupted_saves,
    names_only_own_files,
)
from tfckpt_trainer.catalog.directory.checkpoint_files import owner_of
from tfckpt_trainer.catalog.directory.history import Records
from tfckpt_trainer.errors import DamagedFileError, RefusedError, describe_error
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, FileFacts
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.storage.documents import load_if_exists, remove
from tfckpt_trainer.rundir.storage.files import (
    create_file,
    delete_file,
    make_directory,
    open_plain,
    sync_directory,
    sync_file,
)


@dataclass(frozen=True)
class BroughtBack:
    """What a start brought back from a fallback directory.

    Attributes:
        names: Checkpoints that are in the run directory now.
        left: Sentences about checkpoints that stay in the fallback directory.
    """

    names: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def fallback_of(run: RunDirectory, directory: Path) -> RunDirectory:
    """Returns the part of the fallback directory that belongs to `run`.

    Args:
        run: The run; its trainer has written `run.json`.
        directory: The fallback directory. Several runs may share it.
    """
    info = load_if_exists(run.run_file, RunInfo)
    number = info.id if info is not None else "unknown"
    return RunDirectory(directory / f"{run.root.name}-{number}")


def bring_back(run: RunDirectory, fallback: RunDirectory) -> BroughtBack:
    """Moves the checkpoints of a fallback directory to the run directory.

    Each is copied, compared with its checksums, flushed and committed like a save, and then
    deleted in the fallback directory.

    Args:
        run: The run directory. The caller is its trainer, and no save is in progress.
        fallback: See `fallback_of`.

    Raises:
        RefusedError: A checkpoint cannot be copied, such as on a full disk. A start without it
            would lose its steps.
    """
    if not fallback.control.is_dir():
        return BroughtBack()
    finish_interrupted_saves(fallback)
    records = Records(fallback)
    records.refresh()
    names, left = [], [f"The record of {name} there is damaged." for name in records.damaged]
    for packed in sorted(records.found.values(), key=lambda packed: packed.sequence):
        record = packed.unpack()
        if not names_only_own_files(record):
            left.append(f"The record of {record.name} there names files elsewhere.")
            continue
        if not index_path(fallback.root / record.name).is_file():
            continue
        if not index_path(run.root / record.name).exists():
            _copy(run, fallback, record)
        elif _record_of(run, record.name) != record:
            left.append(f"{record.name} stays there, because the run has another of this name.")
            continue
        _delete(fallback, record)
        names.append(record.name)
    return BroughtBack(tuple(names), tuple(left))


def _record_of(run: RunDirectory, name: str) -> CheckpointRecord | None:
    packed = Records(run, frozenset({name})).look().get(name)
    return packed.unpack() if packed is not None else None


def _copy(run: RunDirectory, fallback: RunDirectory, record: CheckpointRecord) -> None:
    try:
        begin_save(run, record.name)
        for facts in record.files:
            _copy_file(_place(run, record, facts), fallback.root / facts.name, facts)
        sync_directory(run.worker_state_directory(record.name))
        sync_directory(run.saving_directory)
        commit_save(run, record)
    except (OSError, DamagedFileError) as error:
        discard_save(run, record.name)
        raise RefusedError(
            f"{record.name} is the newest checkpoint of this run and is in {fallback.root}. It "
            f"cannot be copied to {run.root}: {describe_error(error)}. Make room there and start "
            f"again. To start without it, move {fallback.root} away."
        ) from None


def _place(run: RunDirectory, record: CheckpointRecord, facts: FileFacts) -> Path:
    """Returns where a file is written before the commit."""
    is_shared = owner_of(facts.name) == record.name
    return (run.saving_directory if is_shared else run.root) / facts.name


def _copy_file(target: Path, source: Path, facts: FileFacts) -> None:
    make_directory(target.parent)
    delete_file(target)
    with open_plain(source) as old, create_file(target) as new:
        shutil.copyfileobj(old, new)
    sync_file(target)
    if target.stat().st_size != facts.size or _checksum(target) != facts.crc32c:
        raise DamagedFileError(f"{source} differs from what was saved")


def _checksum(path: Path) -> int:
    computed = 0
    with open_plain(path) as file:
        while chunk := file.read(16 << 20):
            computed = crc32c(chunk, computed)
    return computed


def _delete(fallback: RunDirectory, record: CheckpointRecord) -> None:
    # The index first: without it, nothing is a checkpoint.
    delete_file(index_path(fallback.root / record.name))
    for facts in record.files:
        delete_file(fallback.root / facts.name)
    remove(fallback.record(record.name))
