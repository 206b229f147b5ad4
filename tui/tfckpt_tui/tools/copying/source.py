"""The files of a checkpoint to copy: opened at once, so that a prune does not end the copy."""

from __future__ import annotations

import hashlib
import io
import os
import resource
import shlex
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tfckpt_trainer.bundle.index import index_path, read_shard_count, shard_path
from tfckpt_trainer.bundle.links import open_in_directory
from tfckpt_trainer.bundle.recognition import is_meta_graph
from tfckpt_trainer.bundle.verify import Progress
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.catalog.directory.save_directories import is_of_worker
from tfckpt_trainer.catalog.verification.verify_checkpoint import verify_checkpoint
from tfckpt_trainer.errors import DamagedFileError, RefusedError, UsageError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.rundir.storage.documents import copy_of, decode
from tfckpt_trainer.rundir.storage.files import (
    list_directory,
    open_directory,
    open_plain,
    path_of_open,
    read_bounded,
)
from tfckpt_trainer.rundir.storage.identity import Identity, identity_in

_CHUNK = 4 << 20


class SourceFile:
    """One file to copy.

    Attributes:
        name: Its path relative to the run directory, here and at the destination.
        size: Its size in bytes.
        modified_at: Its modification time, in seconds since the epoch.
        identity: Size, modification time in nanoseconds and inode; None if it is only in memory.
    """

    def __init__(self, name: str, file: BinaryIO, modified_at: float | None = None) -> None:
        self.name = name
        self.identity: Identity | None = None
        self._file = file
        self._digest = ""
        if modified_at is None:
            self.identity = self._identity_now()
            self.size, self.modified_at = self.identity[0], os.fstat(file.fileno()).st_mtime
        else:
            self.size, self.modified_at = file.seek(0, io.SEEK_END), modified_at

    @property
    def is_changed(self) -> bool:
        """Whether somebody wrote to it since it was opened."""
        return self.identity is not None and self.identity != self._identity_now()

    @property
    def open_path(self) -> Path | None:
        """A path by which another process reads the file, even if it was deleted; else None."""
        if self.identity is None:
            return None
        return path_of_open(self._file.fileno())

    def _identity_now(self) -> Identity:
        return identity_in(os.fstat(self._file.fileno()))

    def chunks(self, offset: int = 0) -> Iterator[bytes]:
        """Yields the content from `offset` on.

        Raises:
            DamagedFileError: The file became shorter, or cannot be read.
        """
        computed = hashlib.sha256()
        self._file.seek(offset)
        left = self.size - offset
        while left:
            try:
                data = self._file.read(min(_CHUNK, left))
            except OSError as error:
                raise DamagedFileError(f"{self.name} cannot be read: {error.strerror}.") from error
            if not data:
                raise DamagedFileError(
                    f"{self.name} became shorter while it was copied. Copy it again later."
                )
            left -= len(data)
            if not offset and not self._digest:
                computed.update(data)
            yield data
        if not offset and not self._digest:
            self._digest = computed.hexdigest()

    def digest(self) -> str:
        """Returns the SHA-256 of the content, in hexadecimal; reads the file if needed."""
        if not self._digest:
            for _ in self.chunks():
                pass
        return self._digest


@dataclass(frozen=True)
class SourceCheckpoint:
    """A checkpoint to copy.

    Attributes:
        files: All its files in the order in which they get their names; the index is the last.
        saved_at: When it was saved, in seconds since the epoch.
    """

    name: str
    step: int | None
    files: tuple[SourceFile, ...]
    saved_at: float

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


def raise_open_file_limit() -> None:
    """Raises the limit of open files to its maximum. A copy opens all shard and worker files."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS has a lower limit than it names.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def open_checkpoint(
    run: RunDirectory, checkpoint: Checkpoint, opened: ExitStack
) -> SourceCheckpoint:
    """Opens all files of a checkpoint.

    Args:
        run: The run directory.
        checkpoint: The checkpoint.
        opened: Closes the files.

    Raises:
        RefusedError: It was pruned or is being written.
        TfckptError: The index is damaged.
        OSError: A file cannot be read.
    """
    name, prefix = checkpoint.name, run.root / checkpoint.name
    try:
        count = read_shard_count(prefix)
        shared = [shard_path(prefix, number, count) for number in range(count)]
        graph = Path(f"{prefix}.meta")
        if graph.is_symlink() or is_meta_graph(graph):
            shared.append(graph)
        index = SourceFile(
            index_path(prefix).name, opened.enter_context(open_in_directory(index_path(prefix)))
        )
        files = [SourceFile(p.name, opened.enter_context(open_in_directory(p))) for p in shared]
        worker_files = _worker_files(run, name, opened)
    except FileNotFoundError as error:
        raise _pruned(run, name) from error
    return SourceCheckpoint(
        name=name,
        step=checkpoint.step,
        # The data last but one: what is refused before leaves nothing that looks like a checkpoint.
        files=(*worker_files, *_records(run, name), *files, index),
        saved_at=checkpoint.saved_at,
    )


def verify_source(run: RunDirectory, source: SourceCheckpoint, on_progress: Progress) -> None:
    """Reads the opened files of a checkpoint, and compares them with their checksums.

    Raises:
        RefusedError: It is damaged, or was pruned or saved again since it was opened.
    """
    try:
        result = verify_checkpoint(run, source.name, on_progress=on_progress)
    except UsageError as error:
        raise _pruned(run, source.name) from error
    assert result is not None
    if result.record.fault is not None:
        raise RefusedError(
            f"{source.name} is damaged and was not copied: {result.record.fault.message}. See all "
            f"damage with `tfckpt-tui verify {run.shell_word} "
            f"{shlex.quote(source.name)}`, and copy another checkpoint."
        )
    for file in source.files:
        if file.identity is not None and result.record.files.get(file.name) != file.identity:
            raise _changed(source.name)


def require_unchanged(source: SourceCheckpoint) -> None:
    """Makes sure that what was read since the verification is what was verified.

    Raises:
        RefusedError: A file was written to since it was opened.
    """
    if any(file.is_changed for file in source.files):
        raise _changed(source.name)


def _changed(name: str) -> RefusedError:
    return RefusedError(f"{name} changed while it was read. Copy it again later.")


def _worker_files(run: RunDirectory, name: str, opened: ExitStack) -> list[SourceFile]:
    directory = run.worker_state_directory(name)
    with suppress(FileNotFoundError, NotADirectoryError):
        # Refuses a link, which is not the same as a checkpoint without such files.
        os.close(open_directory(directory))
    paths = [Path(entry.path) for entry in list_directory(directory) if is_of_worker(entry)]
    return [
        SourceFile(path.relative_to(run.root).as_posix(), opened.enter_context(open_plain(path)))
        for path in sorted(paths)
    ]


def _records(run: RunDirectory, name: str) -> list[SourceFile]:
    """Returns the record and its copy, both from the one that is not damaged."""
    for path in (run.record(name), copy_of(run.record(name))):
        try:
            data = read_bounded(path)
            decode(data, CheckpointRecord, path.name)
        except (FileNotFoundError, NotADirectoryError, DamagedFileError):
            continue
        modified_at = os.stat(path).st_mtime
        names = (run.record_copy(name), run.record(name))
        return [
            SourceFile(path.relative_to(run.root).as_posix(), io.BytesIO(data), modified_at)
            for path in names
        ]
    return []


def _pruned(run: RunDirectory, name: str) -> RefusedError:
    place, quoted = run.shell_word, shlex.quote(name)
    return RefusedError(
        f"{name} was pruned before it could be copied. Bring it back with `tfckpt-tui undo "
        f"{place}`, keep it with `tfckpt-tui pin {place} {quoted}`, and copy it again."
    )
