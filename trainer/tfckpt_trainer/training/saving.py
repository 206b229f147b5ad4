"""Saves a checkpoint on all workers: written aside, verified, recorded, then moved into view."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import tensorflow as tf

from tfckpt_trainer.bundle.index import index_path
from tfckpt_trainer.bundle.state_file import StateFile, read_state_file, write_state_file
from tfckpt_trainer.bundle.verify import verify
from tfckpt_trainer.catalog.trash import trashed_bytes
from tfckpt_trainer.errors import DamagedFileError, TfckptError
from tfckpt_trainer.rundir.documents import store
from tfckpt_trainer.rundir.files import make_directory, sync_directory, sync_file
from tfckpt_trainer.rundir.paths import RunDirectory, checkpoint_name
from tfckpt_trainer.rundir.records import CheckpointRecord, FileFacts, WorkerFacts
from tfckpt_trainer.training.group import WorkerGroup
from tfckpt_trainer.training.state import SharedState, WorkerState

MARGIN_BYTES = 16 << 20
"""Disk space that a save leaves free, beside what it writes."""

LOCAL_FAILURES = (OSError, TfckptError, tf.errors.OpError)
"""What writing, flushing and verifying on one worker can end in."""


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
        problem: Why there is none, naming the worker.
        size: Bytes written by all workers.
        seconds: From the agreed step to the commit.
    """

    name: str | None
    already: bool = False
    refused: bool = False
    problem: str = ""
    size: int = 0
    seconds: float = 0.0


class Saver:
    """Writes checkpoints of one run; every method is called by all workers together."""

    def __init__(
        self,
        run: RunDirectory,
        group: WorkerGroup,
        shared: SharedState,
        own: WorkerState,
        world: Mapping[str, Any],
        make_room: Callable[[int], int],
    ) -> None:
        self._run = run
        self._group = group
        self._shared = shared
        self._own = own
        self._world = dict(world)
        self._make_room = make_room

    def save(self, request: SaveRequest, facts: WorkerFacts) -> SaveOutcome:
        """Saves the state of `request.step`.

        The shared state is written by the chief, each worker's own by itself. Each verifies
        what it wrote; if all did, the chief commits. The moment of the commit is one rename,
        of the index file into the run directory.

        Args:
            request: What to save.
            facts: What this worker says of itself, for the record.

        Raises:
            tf.errors.OpError: A peer is gone.
        """
        began = time.monotonic()
        hindrance = self._hindrance(request) if self._group.is_chief else {}
        answer = self._group.gather(hindrance)[0]
        if answer:
            return SaveOutcome(**answer)
        mine = self._write_parts(request, facts, began)
        votes = self._group.gather(mine)
        return SaveOutcome(**self._group.gather(self._decide(request, votes, began))[0])

    def _hindrance(self, request: SaveRequest) -> dict[str, Any]:
        run = self._run
        if index_path(run.root / request.name).exists() and run.record(request.name).exists():
            if verify(run.root / request.name).ok:
                return {"name": request.name, "already": True}
            problem = f"{request.name} is there and damaged; prune it, then save again."
            return {"name": None, "refused": True, "problem": problem}
        in_the_way = sorted(path.name for path in run.root.glob(f"{request.name}.*"))
        if in_the_way:
            problem = (
                f"{in_the_way[0]} is in the way of saving {request.name}, and nothing is ever "
                "overwritten; prune it or move it away."
            )
            return {"name": None, "refused": True, "problem": problem}
        needed = self._shared.size + MARGIN_BYTES
        free = shutil.disk_usage(run.root).free
        if free < needed and self._make_room(needed - free):
            free = shutil.disk_usage(run.root).free
        if free < needed:
            problem = (
                f"{request.name} needs {needed:,} bytes and {free:,} are free in {run.root}, "
                f"beside {trashed_bytes(run):,} in its trash; empty that, prune checkpoints, or "
                "free disk space. Training goes on."
            )
            return {"name": None, "refused": True, "problem": problem}
        return {}

    def _write_parts(
        self, request: SaveRequest, facts: WorkerFacts, began: float
    ) -> dict[str, Any]:
        try:
            files = self._write_own(request.name)
            if self._group.is_chief:
                files += self._write_shared(request)
            elif self._shared.needs_all_workers:
                self._write_shared_away(request)
        except LOCAL_FAILURES as error:
            return {"problem": f"worker {self._group.index}: {describe_failure(error)}"}
        facts = msgspec.structs.replace(facts, stall_seconds=time.monotonic() - began)
        return {"facts": msgspec.to_builtins(facts), "files": msgspec.to_builtins(files)}

    def _write_own(self, name: str) -> list[FileFacts]:
        directory = self._run.worker_state_directory(name)
        make_directory(directory)
        prefix = directory / f"worker-{self._group.index}"
        self._own.write(prefix)
        return flushed_and_verified(prefix, self._run.root)

    def _write_shared(self, request: SaveRequest) -> list[FileFacts]:
        prefix = self._run.saving_directory / request.name
        self._shared.write(prefix, request.step)
        return [
            msgspec.structs.replace(facts, name=Path(facts.name).name)
            for facts in flushed_and_verified(prefix, self._run.root)
        ]

    def _write_shared_away(self, request: SaveRequest) -> None:
        """Takes part in the collectives of a chief that reads variables synchronised on read."""
        directory = self._run.saving_directory / f"worker-{self._group.index}"
        make_directory(directory)
        self._shared.write(directory / request.name, request.step)
        shutil.rmtree(directory)

    def _decide(
        self, request: SaveRequest, votes: list[dict[str, Any]], began: float
    ) -> dict[str, Any]:
        if not self._group.is_chief:
            return {}
        problems = [vote["problem"] for vote in votes if "problem" in vote]
        if not problems:
            try:
                return asdict(self._commit(request, votes, began))
            except LOCAL_FAILURES as error:
                problems = [f"worker 0: {describe_failure(error)}"]
        discard_unfinished(self._run, request.name)
        return asdict(SaveOutcome(name=None, problem="; ".join(problems)))

    def _commit(
        self, request: SaveRequest, votes: list[dict[str, Any]], began: float
    ) -> SaveOutcome:
        run, name = self._run, request.name
        files = [msgspec.convert(facts, FileFacts) for vote in votes for facts in vote["files"]]
        record = CheckpointRecord(
            name=name,
            step=request.step,
            branch=request.branch,
            sequence=request.sequence,
            saved_at=time.time(),
            trigger=request.trigger,
            parent=request.parent,
            command=request.command,
            metrics=dict(request.metrics),
            workers=[msgspec.convert(vote["facts"], WorkerFacts) for vote in votes],
            duration_seconds=time.monotonic() - began,
            files=files,
            world=self._world,
            contents=[*self._shared.contents, *self._own.contents],
        )
        for path in sorted(run.saving_directory.glob(f"{name}.data-*")):
            os.rename(path, run.root / path.name)
        store(run.record(name), record)
        os.rename(index_path(run.saving_directory / name), index_path(run.root / name))
        sync_directory(run.root)
        return SaveOutcome(
            name=name,
            size=sum(facts.size for facts in files),
            seconds=time.monotonic() - began,
        )


def flushed_and_verified(prefix: Path, root: Path) -> list[FileFacts]:
    """Flushes the files of `prefix` to disk and reads them back against their checksums.

    Returns:
        Their facts, by names relative to `root`.

    Raises:
        TfckptError: What was read back is not what was written.
    """
    files = sorted(prefix.parent.glob(f"{prefix.name}.*"))
    for path in files:
        sync_file(path)
    sync_directory(prefix.parent)
    verification = verify(prefix, digests=True)
    if not verification.ok:
        worst = next(finding for finding in verification.findings if finding.severity == "error")
        raise TfckptError(f"what was written to {prefix.name} reads back wrong: {worst.message}")
    checksums = verification.file_checksums
    return [
        FileFacts(
            name=str(path.relative_to(root)),
            size=path.stat().st_size,
            crc32c=checksums[path.name],
        )
        for path in files
        if path.name in checksums
    ]


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
        name = index.name.removesuffix(".index")
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
