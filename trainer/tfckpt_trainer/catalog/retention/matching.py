"""Compares files with the manifest of a prune, also in a copy of the run directory.

A manifest records size, time and inode of each file. A copied directory has other inodes, and
often other times. Then the content decides: checksums in the manifest and in the record of the
checkpoint, and for large data files the checksums of tensors in the index file.
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
from tfckpt_trainer.catalog.directory.checkpoint_files import place_of
from tfckpt_trainer.catalog.directory.save_directories import is_of_save
from tfckpt_trainer.errors import BundleError, DamagedFileError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, FileFacts
from tfckpt_trainer.rundir.records.trash import TrashedCheckpoint
from tfckpt_trainer.rundir.storage.documents import load
from tfckpt_trainer.rundir.storage.files import open_plain
from tfckpt_trainer.rundir.storage.identity import Identity
from tfckpt_trainer.rundir.storage.trees import walk

SMALL_FILE = 1 << 20
"""Bytes of the largest file whose checksum a prune computes."""

READ_PER_PRUNE = 64 << 20
"""Bytes that one prune reads to compute checksums."""

READ_PER_FILE = 64 << 20
"""Bytes of one file that are read to compare it."""

_CHUNK = 1 << 20


class Checksums:
    """Computes the checksums for a manifest; reads little, because other actions wait."""

    def __init__(self) -> None:
        self._left = READ_PER_PRUNE

    def of(
        self, path: Path, size: int, recorded_files: Mapping[str, FileFacts], name: str
    ) -> int | None:
        """Returns the checksum of a file or a directory; None if it would take long.

        Args:
            path: The file or directory.
            size: Size of the file in bytes.
            recorded_files: Files in the record of the checkpoint, by name.
            name: Name of the file, relative to the run directory.
        """
        if path.is_dir():
            return checksum_of_names(path)
        facts = recorded_files.get(name)
        if facts is not None and facts.size == size:
            return facts.crc32c
        if size > min(SMALL_FILE, self._left):
            return None
        self._left -= size
        try:
            return checksum_of_file(path)
        except (OSError, DamagedFileError):
            # A file that cannot be read is identified by size, time and inode.
            return None


class ManifestMatch:
    """Compares files with the manifest of one checkpoint.

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
        """Whether a file has the size and time in the manifest.

        Args:
            path: The file.
            name: Its name in the manifest.
        """
        facts, planned = _facts(path, name), self._identity(name)
        if facts is None:
            return False
        # Inodes are not compared: some FUSE file systems change them at each access. Sizes of
        # directories are not compared: they depend on the file system.
        same_size = stat.S_ISDIR(facts.st_mode) or facts.st_size == planned[0]
        return same_size and _is_same_time(facts.st_mtime_ns, planned[1])

    def is_same_file(self, path: Path, name: str) -> bool:
        """Whether a file is the planned one, if necessary by its content."""
        if self.is_unchanged(path, name):
            return True
        facts, planned = _facts(path, name), self._identity(name)
        if facts is None:
            return False
        is_directory = stat.S_ISDIR(facts.st_mode)
        if not is_directory and facts.st_size != planned[0]:
            return False
        try:
            return self._holds_same(path, name, is_directory=is_directory)
        except (OSError, DamagedFileError, BundleError):
            return False

    def _holds_same(self, path: Path, name: str, *, is_directory: bool) -> bool:
        checksum = self._checksum(name)
        if is_directory:
            return checksum_of_names(path) == checksum
        size = os.lstat(path).st_size
        if checksum is None and name in self._recorded:
            checksum = self._recorded[name].crc32c
        if checksum is not None and size <= READ_PER_FILE and checksum_of_file(path) == checksum:
            return True
        if name.startswith(".tfckpt/records/"):
            return checksum is None and self._is_record(path)
        if name.startswith((".tfckpt/verifications/", ".tfckpt/results/")):
            # It is valid for the files that it names alone.
            return True
        return self._holds_same_tensors(path)

    def _is_record(self, path: Path) -> bool:
        """Whether a record describes the index file in the trash."""
        name = f"{self._trashed.name}.index"
        told = {facts.name: facts for facts in load(path, CheckpointRecord).files}
        return name in told and checksum_of_file(self._index) == told[name].crc32c

    def _holds_same_tensors(self, path: Path) -> bool:
        """Whether most tensors of a data file match the index, as far as the read limit allows.

        Not all have to match: a checkpoint may be pruned because it is damaged.
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
        """The index file, in the trash or in the run directory."""
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

    def _identity(self, name: str) -> Identity:
        return self._trashed.identities[self._trashed.files.index(name)]

    def _checksum(self, name: str) -> int | None:
        return self._trashed.checksums[self._trashed.files.index(name)]


def checksum_of_file(path: Path) -> int:
    """Returns the CRC32C of all bytes of a file.

    Raises:
        DamagedFileError: It is not a regular file.
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
    for place, names in walk(directory):
        for name in names:
            path = Path(place, name)
            lines.append(f"{path.relative_to(directory)} {os.lstat(path).st_size}")
    return crc32c(os.fsencode("\n".join(sorted(lines))))


def _facts(path: Path, name: str) -> os.stat_result | None:
    """Returns the facts of a file; None if it is not there, or is a directory that no save made."""
    try:
        facts = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return None if stat.S_ISDIR(facts.st_mode) and not is_of_save(path, name) else facts


def _is_same_time(time: int, planned: int) -> bool:
    """Whether two times in ns are the same; archives may store whole seconds only."""
    return time == planned or (time % 10**9 == 0 and time // 10**9 == planned // 10**9)


def _spread(entries: list[TensorEntry]) -> Iterator[TensorEntry]:
    """Yields the entries in an order that samples the whole file early."""
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
