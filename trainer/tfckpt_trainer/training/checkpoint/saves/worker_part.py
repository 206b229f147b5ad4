"""One worker's part of a save: copies the values, writes, flushes and verifies them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfckpt_trainer.bundle.checksum import crc32c
from tfckpt_trainer.bundle.index import index_path, read_index
from tfckpt_trainer.bundle.verify import Verification, verify
from tfckpt_trainer.catalog.directory.save_directories import move_files, private_directory
from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, FileFacts, WorkerFacts
from tfckpt_trainer.rundir.records.exactness import Exactness
from tfckpt_trainer.rundir.storage.files import (
    make_directory,
    open_plain,
    share_file,
    sync_directory,
    sync_file,
)
from tfckpt_trainer.training.checkpoint.saves.save_protocol import (
    LOCAL_FAILURES,
    SaveVote,
)
from tfckpt_trainer.training.checkpoint.saves.sharded_writer import CheckpointLayout, ShardedWriter
from tfckpt_trainer.training.checkpoint.state import SavedWorkerState, SharedState, TrainingState
from tfckpt_trainer.training.state.adapted import Adapted, adapted_values
from tfckpt_trainer.training.state.measurement import Differing, find_differing
from tfckpt_trainer.training.state.values_by_path import (
    UNTRACKED,
    read_values,
    untracked_variables,
    write_values,
)
from tfckpt_trainer.training.state.variables import is_read_by_all
from tfckpt_trainer.training.state.walk import FoundState
from tfckpt_trainer.training.workers.worker_group import WorkerGroup

FLUSHED_TOGETHER = 8
"""How many files are flushed at the same time."""


class WholeWriter:
    """Writes the shared state, in the foreground and on one worker.

    `tf.train.Checkpoint.write` examines each object anew. Its first file tells the layout, by which
    later saves are written until an object is added or removed. The layout is only used if the
    values that it leads to were those in the file. So TensorFlow always writes lookup tables, for
    example.
    """

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self._structure: tuple[Any, ...] | None = None
        self._writer: ShardedWriter | None = None

    def write(self, prefix: Path, found: FoundState, checksums: Mapping[int, int]) -> None:
        """Writes the values of this step, without a flush.

        Args:
            prefix: Path without suffix.
            found: All state of the script.
            checksums: Those that are known, as `ShardedWriter.write` takes them.
        """
        if self._structure == found.structure and self._writer is not None:
            self._writer.write(self._writer.snapshot(), prefix, checksums)
            return
        self._shared.write(prefix)
        if self._structure != found.structure:
            self._structure, self._writer = found.structure, self._learn(prefix)

    def _learn(self, prefix: Path) -> ShardedWriter | None:
        """Returns a writer by the layout of a file of TensorFlow; None if it has other values."""
        index = read_index(prefix)
        layout = CheckpointLayout(self._shared.checkpoint, prefix)
        if index.shard_count > 1 or not layout.describes(index):
            return None
        return ShardedWriter(layout, writers=1, writer=0, largest=None)


@dataclass
class SaveTimer:
    """Seconds that one worker spent on each phase of a save."""

    seconds: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("write", "flush", "verify"), 0.0)
    )

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Adds the time of a block to a phase."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] += time.monotonic() - began


@dataclass(frozen=True)
class MeasuredState:
    """What a save stores, found and measured at its step.

    Attributes:
        found: All state of the script.
        is_read_by_all: Whether reading it is a collective, because a variable of the shared state
            is synchronised on read.
        differing: The values that each worker stores.
        untracked: Variables that a `tf.train.Checkpoint` would leave out, by path.
        adapted: Layers and tables whose values the script made before training.
        contents: Names of the contents.
    """

    found: FoundState
    is_read_by_all: bool
    differing: Differing
    untracked: Mapping[str, Any]
    adapted: list[Adapted]
    contents: list[str]


Write = Callable[[SaveTimer], list[Path]]
"""Writes values that were copied before; returns all prefixes to flush and verify.

The last one is that of the state of this worker.
"""


@dataclass(frozen=True)
class CopiedPart:
    """One worker's part of a save, with its values copied but not yet safe on disk."""

    index: int
    exactness: Exactness
    values: MeasuredState
    write: Write
    secure: Callable[[list[Path], SaveTimer], list[FileFacts]]
    timer: SaveTimer

    def finish(self, facts: WorkerFacts) -> SaveVote:
        """Writes, flushes and verifies; returns the result."""
        try:
            files = self.secure(self.write(self.timer), self.timer)
        except Exception as error:
            # Whatever it is: a worker without a vote would leave the others waiting.
            return SaveVote.against(self.index, error)
        return SaveVote(
            facts=facts,
            exactness=self.exactness,
            files=files,
            contents=self.values.contents,
            per_worker=self.values.differing.paths,
            write_seconds=self.timer.seconds["write"],
            flush_seconds=self.timer.seconds["flush"],
            verify_seconds=self.timer.seconds["verify"],
        )


class WorkerPart:
    """Writes this worker's part of each save; all workers call `copy` together."""

    def __init__(
        self,
        run: RunDirectory,
        group: WorkerGroup,
        state: TrainingState,
        sharded: ShardedWriter | None,
    ) -> None:
        """Creates the writer.

        Args:
            run: The run directory.
            group: The workers.
            state: What is saved.
            sharded: Writes the shared state; None has TensorFlow write it, on the chief.
        """
        self._run = run
        self._group = group
        self._state = state
        self._sharded = sharded
        self._whole = WholeWriter(state.shared)

    def copy(self, record: CheckpointRecord, found: FoundState) -> CopiedPart:
        """Copies all values of this step. The result may be written at any time later.

        Without a sharded writer the values are written here, but not yet flushed.

        Args:
            record: What is known of the checkpoint.
            found: All state of the script.
        """
        timer = SaveTimer()
        self._state.shared.set_step(record.step)
        # The collectives come first: a worker whose disk fails must not leave the others waiting.
        with timer.phase("write"):
            values = self._measure(found)
        try:
            write = self._copy(record, values, timer)
        except LOCAL_FAILURES as error:
            write = _failing(error)
        exactness = self._state.exactness
        return CopiedPart(self._group.index, exactness, values, write, self._secure, timer)

    def _measure(self, states: FoundState) -> MeasuredState:
        self._state.shared.late_variables.check(states)
        return MeasuredState(
            found=states,
            is_read_by_all=any(
                one.tracked and one.rule.is_variable and is_read_by_all(one.thing) for one in states
            ),
            differing=find_differing(self._group, states),
            untracked=read_values(
                variable
                for variable in untracked_variables(states)
                # The chief writes them. To read an on-read variable is a collective.
                if self._group.is_chief or variable.rule.is_on_read
            ),
            adapted=self._state.adapted(states),
            contents=self._state.contents(states),
        )

    def _copy(self, record: CheckpointRecord, values: MeasuredState, timer: SaveTimer) -> Write:
        shared = self._state.shared
        directory = self._run.worker_state_directory(record.name)
        prefix = self._run.saving_directory / record.name
        if self._sharded is None and values.is_read_by_all and not self._group.is_chief:
            with private_directory(prefix.parent) as private:
                # The chief reads variables that are synchronised on read: a collective.
                shared.write(private / record.name)
        write_shards: Write = _write_nothing
        written: list[Path] = []
        if self._sharded is not None:
            write_shards = self._copy_shards(self._sharded, prefix, values)
        elif self._group.is_chief:
            with timer.phase("write"), private_directory(prefix.parent) as private:
                if values.is_read_by_all or self._group.processes > self._group.size:
                    # Others take part in the reading, or hold the values.
                    shared.write(private / record.name)
                else:
                    checksums = values.differing.checksums
                    self._whole.write(private / record.name, values.found, checksums)
                move_files(private, prefix.parent)
            written.append(prefix)
        make_directory(directory)
        with timer.phase("write"), private_directory(prefix.parent) as private:
            if self._group.is_chief:
                beside = {**values.untracked, **adapted_values(values.adapted)}
                if beside:
                    write_values(private / UNTRACKED, beside)
                    written.append(directory / UNTRACKED)
            name = f"worker-{self._group.index}"
            self._state.worker.write(
                private / name, values.found, values.differing.paths, values.adapted
            )
            move_files(private, directory)
            written.append(directory / name)
        return lambda timer: [*write_shards(timer), *written]

    def _copy_shards(self, sharded: ShardedWriter, prefix: Path, values: MeasuredState) -> Write:
        if not sharded.writes_any and not values.is_read_by_all:
            return _write_nothing
        snapshot = sharded.snapshot()

        def write(timer: SaveTimer) -> list[Path]:
            with timer.phase("write"):
                return sharded.write(snapshot, prefix, values.differing.checksums)

        return write

    def _secure(self, prefixes: list[Path], timer: SaveTimer) -> list[FileFacts]:
        """Flushes the files of all prefixes and reads them back; returns their facts."""
        random_state = SavedWorkerState.random_state_path(prefixes[-1])
        files = [*(path for prefix in prefixes for path in files_of(prefix)), random_state]
        directories = {path.parent for path in files} | {self._run.worker_states_directory}
        for path in files:
            share_file(path)

        def flush() -> None:
            with timer.phase("flush"):
                sync_all(files, directories)

        checksums: dict[Path, int] = {}
        # A flush waits for the disk, and a verification for the processor.
        with ThreadPoolExecutor(1) as beside:
            flushed = beside.submit(flush)
            with timer.phase("verify"):
                for prefix in prefixes:
                    checksums |= self._verified(prefix)
                with open_plain(random_state) as file:
                    checksums[random_state] = crc32c(file.read())
            flushed.result()
        return [self._facts_of(path, checksum) for path, checksum in checksums.items()]

    def _verified(self, prefix: Path) -> dict[Path, int]:
        """Reads the files of a prefix back; returns their checksums."""
        is_shared = prefix.parent == self._run.saving_directory
        is_part = is_shared and self._sharded is not None and self._sharded.shard_count > 1
        verification = verify(prefix, digests=True, part=is_part)
        require_sound(prefix, verification)
        checksums = verification.file_checksums
        return {p: checksums[p.name] for p in files_of(prefix) if p.name in checksums}

    def _facts_of(self, path: Path, checksum: int) -> FileFacts:
        # A file of the shared state moves to the run directory at the commit.
        is_shared = path.parent == self._run.saving_directory
        name = path.name if is_shared else str(path.relative_to(self._run.root))
        return FileFacts(name=name, size=path.stat().st_size, crc32c=checksum)


def files_of(prefix: Path) -> list[Path]:
    """Returns the data files and the index at `prefix`."""
    return [*sorted(prefix.parent.glob(f"{prefix.name}.data-*")), index_path(prefix)]


def sync_all(files: Collection[Path], directories: Collection[Path]) -> None:
    """Flushes files, then directories. Those that a disk confirms together take as long as one."""
    with ThreadPoolExecutor(FLUSHED_TOGETHER) as together:
        for _ in together.map(sync_file, files):
            pass
        for _ in together.map(sync_directory, directories):
            pass


def require_sound(prefix: Path, verification: Verification) -> None:
    """Makes sure that a verification found nothing wrong.

    Raises:
        TfckptError: The files differ from what was written.
    """
    wrong = [finding for finding in verification.findings if finding.severity == "error"]
    if wrong or not verification.complete:
        message = wrong[0].message if wrong else "not all of it could be read"
        raise TfckptError(f"{prefix.name} was not written correctly: {message}")


def _write_nothing(_: SaveTimer) -> list[Path]:
    return []


def _failing(error: Exception) -> Write:
    """Returns a write that fails with `error`, so that the worker votes against the save."""

    def fail(_: SaveTimer) -> list[Path]:
        raise error

    return fail
