"""Makes a checkpoint of what all workers wrote, and clears away what was cut off before that."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfckpt_trainer.bundle.index import index_path
from tfckpt_trainer.bundle.state_file import StateFile, read_state_file, write_state_file
from tfckpt_trainer.errors import DamagedFileError, TfckptError
from tfckpt_trainer.rundir.documents import Document, store
from tfckpt_trainer.rundir.files import sync_directory
from tfckpt_trainer.rundir.paths import RunDirectory, checkpoint_name
from tfckpt_trainer.rundir.records import CheckpointRecord, FileFacts, SaveCost, WorkerFacts

LOCAL_FAILURES = (OSError, TfckptError, tf.errors.OpError)
"""What writing, flushing and verifying on one worker can end in."""

_PART = re.compile(r"\.part-\d{5}$")


@dataclass(frozen=True)
class SaveRequest:
    """What is to be saved: the same on all workers."""

    step: int
    branch: int
    parent: str | None
    sequence: int
    trigger: str
    command: str | None
    metrics: Mapping[str, float | None]
    best: Mapping[str, float]
    state: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The checkpoint's name."""
        return checkpoint_name(self.step, self.branch)


@dataclass(frozen=True)
class SaveOutcome:
    """What became of a save: the same on all workers.

    Attributes:
        name: The checkpoint, saved now or before; None if there is none.
        already: Whether it was there before.
        refused: Whether nothing was tried because it could not have worked.
        full: Whether that is because the disk has no room.
        problem: Why there is none, naming the worker.
        size: Bytes written by all workers.
        seconds: From the agreed step to the commit.
        stall_seconds: For how much of that training stood still.
    """

    name: str | None
    step: int = 0
    branch: int = 0
    already: bool = False
    refused: bool = False
    full: bool = False
    problem: str = ""
    size: int = 0
    seconds: float = 0.0
    stall_seconds: float = 0.0


class Vote(Document, frozen=True, kw_only=True):
    """What one worker says of its part of a save; times in seconds.

    Attributes:
        problem: Why it could not do its part; the rest is empty then.
        files: What it wrote, by names relative to the run directory. Shards of the shared state
            have the names under which they were written.
    """

    problem: str = ""
    facts: WorkerFacts | None = None
    files: list[FileFacts] = []
    write_seconds: float = 0.0
    flush_seconds: float = 0.0
    verify_seconds: float = 0.0


def commit(run: RunDirectory, record: CheckpointRecord) -> None:
    """Brings what lies aside into view; the moment of the commit is the rename of the index.

    Args:
        run: Where the files of the save are written, flushed and verified.
        record: What is to be said of it.

    Raises:
        OSError: The disk refuses; the checkpoint is not there then.
    """
    name = record.name
    for path in sorted(run.saving_directory.glob(f"{name}.data-*")):
        os.rename(path, run.root / path.name)
    store(run.record(name), record)
    os.rename(index_path(run.saving_directory / name), index_path(run.root / name))
    sync_directory(run.root)


def cost_of(votes: list[Vote], *, background: bool) -> SaveCost:
    """Returns what a save cost, from what the workers say of it."""
    write = max(vote.write_seconds for vote in votes)
    flush = max(vote.flush_seconds for vote in votes)
    size = sum(facts.size for vote in votes for facts in vote.files)
    return SaveCost(
        background=background,
        stall_seconds=max(vote.facts.stall_seconds or 0 for vote in votes if vote.facts),
        write_seconds=write,
        flush_seconds=flush,
        verify_seconds=max(vote.verify_seconds for vote in votes),
        bytes_per_second=size / (write + flush) if write + flush > 0 else None,
    )


def point_state_file_at(run: RunDirectory, name: str) -> None:
    """Makes `name` the newest checkpoint for TensorFlow's own tools; keeps all others listed."""
    try:
        state = read_state_file(run.state_file)
    except DamagedFileError:
        # TensorFlow cannot start from a damaged one either; a save mends it.
        state = None
    listed = state.all_paths if state else ()
    stamps = state.timestamps if state and len(state.timestamps) == len(listed) else ()
    times = dict(zip(listed, stamps or (0.0,) * len(listed), strict=True))
    times.pop(name, None)
    times[name] = time.time()
    write_state_file(
        run.state_file,
        StateFile(
            latest=name,
            all_paths=tuple(times),
            timestamps=tuple(times.values()),
            last_preserved=state.last_preserved if state else None,
        ),
    )


def discard_unfinished(run: RunDirectory, name: str) -> None:
    """Removes what a save of `name` left that did not come to its commit."""
    if index_path(run.root / name).exists():
        return
    for path in [*run.saving_directory.glob(f"{name}.*"), *run.root.glob(f"{name}.data-*")]:
        path.unlink(missing_ok=True)
    run.record(name).unlink(missing_ok=True)
    for leftover in (run.saving_directory / f"{name}_temp", run.worker_state_directory(name)):
        if leftover.is_dir() and not leftover.is_symlink():
            shutil.rmtree(leftover)


def finish_interrupted_saves(run: RunDirectory) -> list[str]:
    """Completes or removes what an earlier trainer was saving when it was killed.

    An index that still lies aside while the record is written and all shards are in view
    belongs to a save that was verified by all workers: only the last rename is missing.

    Returns:
        The names of the checkpoints that were completed.
    """
    completed = []
    for index in sorted(run.saving_directory.glob("*.index")):
        name = _PART.sub("", index.name.removesuffix(".index"))
        waiting = list(run.saving_directory.glob(f"{name}.data-*"))
        if run.record(name).exists() and not waiting:
            os.rename(index, index_path(run.root / name))
            sync_directory(run.root)
            completed.append(name)
        else:
            discard_unfinished(run, name)
    for entry in list(os.scandir(run.saving_directory)):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)
    return completed


def describe_failure(error: Exception) -> str:
    """Returns what went wrong on this worker in one line, without TensorFlow's stack."""
    if isinstance(error, tf.errors.OpError):
        return str(error.message).splitlines()[0]
    return str(error)
