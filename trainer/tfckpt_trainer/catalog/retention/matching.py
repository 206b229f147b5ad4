"""Whether a file is the one that a manifest of the trash means, also in a copy of the directory.

A prune notes size, time and inode of each file. In a directory that was copied the inode is
another one, and often the time; then the content decides: checksums in the manifest and in the
record of the checkpoint, and for large data files the checksums of tensors in its index.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from tfckpt_trainer.bundle.checksum import crc32c
from tfckpt_trainer.bundle.index import TensorEntry, read_index
from tfckpt_trainer.bundle.shard import Shard
from tfckpt_trainer.bundle.tensor_checksums import compute_checksum
from tfckpt_trainer.catalog.scan.checkpoint_files import place_of
from tfckpt_trainer.catalog.scan.directory_listing import Identity
from tfckpt_trainer.errors import BundleError, DamagedFileError
from tfckpt_trainer.rundir.documents import load
from tfckpt_trainer.rundir.files import open_plain
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, FileFacts
from tfckpt_trainer.rundir.records.trash import TrashedCheckpoint

SMALL_FILE = 1 << 20
"""Bytes of a file that is read for its checksum when a prune is planned."""

READ_PER_PRUNE = 64 << 20
"""Bytes that one prune reads for checksums."""

READ_PER_FILE = 64 << 20
"""Bytes that are read of one file to find out whether it is the one that was meant."""

_CHUNK = 1 << 20


class Checksums:
    """Finds the checksums for a manifest, reading little: other actions wait meanwhile."""

    def __init__(self) -> None:
        self._left = READ_PER_PRUNE

    def of(self, path: Path, size: int, known: Mapping[str, FileFacts], name: str) -> int | None:
        """Returns the checksum of a file or a directory; None where it would take long.

        Args:
            path: The file or directory.
            size: Of the file.
            known: What a record tells of files, by name.
            name: Of the file, relative to the run directory.
        """
        if path.is_dir():
            return checksum_of_names(path)
        facts = known.get(name)
        if facts is not None and facts.size == size:
            return facts.crc32c
        if size > min(SMALL_FILE, self._left):
            return None
        self._left -= size
        try:
            return checksum_of_file(path)
        except (OSError, DamagedFileError):
            # Nobody can read it. It is pruned nevertheless, and known by size, time and inode.
            return None


class Match:
    """Compares files with what the manifest of one checkpoint says of them.

    Args:
        run: The run directory.
        place: The prune's directory in the trash.
        trashed: The checkpoint.
    """

    def __init__(self, run: RunDirectory, place: Path, trashed: TrashedCheckpoint) -> None:
        self._run = run
        self._place = place
        self._trashed = trashed

    def is_unchanged(self, path: Path, name: str) -> bool:
        """Whether the file at `path` is the one that was planned for, by what the disk says of it.

        Args:
            path: Where it is.
            name: How the manifest calls it.
        """
        found, planned = _facts(path), self._identity(name)
        if found is None or planned is None:
            return found is not None
        # Not the inode: some file systems in user space give a file another one at each look, and
        # of a directory not the size: each file system counts it in its own way.
        same_size = stat.S_ISDIR(found.st_mode) or found.st_size == planned[0]
        return same_size and _is_same_time(found.st_mtime_ns, planned[1])

    def is_meant(self, path: Path, name: str) -> bool:
        """Whether the file at `path` is the one that was planned for, if need be by its content."""
        if self.is_unchanged(path, name):
            return True
        found, planned = _facts(path), self._identity(name)
        if found is None or planned is None:
            return False
        is_directory = stat.S_ISDIR(found.st_mode)
        if not is_directory and found.st_size != planned[0]:
            return False
        try:
            return self._holds_same(path, name, is_directory=is_directory)
        except (OSError, DamagedFileError, BundleError):
            return False

    def _holds_same(self, path: Path, name: str, *, is_directory: bool) -> bool:
        checksum = self._checksum(name)
        if is_directory:
            if checksum is not None:
                return checksum_of_names(path) == checksum
            return self._holds_recorded(path, name)
        size = os.lstat(path).st_size
        if checksum is None and name in self._recorded:
            checksum = self._recorded[name].crc32c
        if checksum is not None and size <= READ_PER_FILE and checksum_of_file(path) == checksum:
            return True
        if name.startswith(".tfckpt/records/"):
            return checksum is None and self._is_record(path)
        if name.startswith(".tfckpt/verifications/"):
            # Of other files it says nothing, and so it cannot be wrong about them.
            return True
        return self._holds_same_tensors(path)

    def _holds_recorded(self, path: Path, name: str) -> bool:
        """Whether a directory holds the files of the record; manifests of 0.1 say nothing of it."""
        inside = {file: f for file, f in self._recorded.items() if file.startswith(f"{name}/")}
        return bool(inside) and all(
            (path / file.removeprefix(f"{name}/")).stat().st_size == facts.size
            and checksum_of_file(path / file.removeprefix(f"{name}/")) == facts.crc32c
            for file, facts in inside.items()
        )

    def _is_record(self, path: Path) -> bool:
        """Whether a record tells of the very index that the trash holds."""
        name = f"{self._trashed.name}.index"
        told = {facts.name: facts for facts in load(path, CheckpointRecord).files}
        return name in told and checksum_of_file(self._index) == told[name].crc32c

    def _holds_same_tensors(self, path: Path) -> bool:
        """Whether most tensors of a data file are those of the index, as far as it may be read.

        Not all: a checkpoint may be pruned because some of its bytes are wrong.
        """
        matching = read = 0
        with Shard(path) as shard:
            for entry in _spread(self._entries_of(path.name)):
                if read + entry.size > READ_PER_FILE:
                    break
                read += entry.size
                with suppress(BundleError):
                    if compute_checksum(shard, entry, lambda _: None) == entry.crc32c:
                        matching += entry.size
        return read > 0 and 2 * matching >= read

    def _entries_of(self, file: str) -> list[TensorEntry]:
        place = place_of(file)
        if place is None:
            return []
        index = read_index(self._index.with_name(self._trashed.name))
        if place[1] != index.shard_count:
            return []
        return [entry for entry in index.stored() if entry.shard == place[0] and entry.size]

    @property
    def _index(self) -> Path:
        """The index file, which leaves first and comes back last."""
        name = f"{self._trashed.name}.index"
        for root in (self._place, self._run.root):
            for file in (name, f".tfckpt/saving/{name}"):
                if (root / file).is_file():
                    return root / file
        return self._place / name

    @cached_property
    def _recorded(self) -> dict[str, FileFacts]:
        record = self._run.record(self._trashed.name)
        for path in (self._place / record.relative_to(self._run.root), record):
            with suppress(OSError, DamagedFileError):
                return {facts.name: facts for facts in load(path, CheckpointRecord).files}
        return {}

    def _identity(self, name: str) -> Identity | None:
        identities = self._trashed.identities
        if len(identities) != len(self._trashed.files):
            return None
        return identities[self._trashed.files.index(name)]

    def _checksum(self, name: str) -> int | None:
        checksums = self._trashed.checksums
        if len(checksums) != len(self._trashed.files):
            return None
        return checksums[self._trashed.files.index(name)]


def checksum_of_file(path: Path) -> int:
    """Returns the CRC32C of all bytes of a file.

    Raises:
        DamagedFileError: It is no plain file.
        OSError: It cannot be read.
    """
    value = 0
    with open_plain(path) as file:
        while data := file.read(_CHUNK):
            value = crc32c(data, value)
    return value


def checksum_of_names(directory: Path) -> int:
    """Returns the CRC32C of the names and sizes of all files in a directory."""
    lines = []
    for place, _, names in os.walk(directory):
        for name in names:
            path = Path(place, name)
            lines.append(f"{path.relative_to(directory)} {os.lstat(path).st_size}")
    return crc32c(os.fsencode("\n".join(sorted(lines))))


def _facts(path: Path) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _is_same_time(found: int, planned: int) -> bool:
    """Whether two times are the same; one from an archive may lack its part of a second."""
    return found == planned or (found % 10**9 == 0 and found // 10**9 == planned // 10**9)


def _spread(entries: list[TensorEntry]) -> Iterator[TensorEntry]:
    """Yields the entries in an order in which any part of them is spread over the file."""
    ordered = sorted(entries, key=lambda entry: entry.offset)
    step = 1
    while step < len(ordered):
        step *= 2
    seen: set[int] = set()
    while step:
        for number in range(0, len(ordered), step):
            if number not in seen:
                seen.add(number)
                yield ordered[number]
        step //= 2
