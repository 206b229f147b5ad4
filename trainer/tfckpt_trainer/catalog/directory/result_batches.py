"""Files with the verification results of many checkpoints, one line each.

Ten thousand small files take longer to write than the checkpoints that they are about to read.
A batch is never changed: it is written at once, and deleted after another one took its lines. So
commands that run at the same time, on other machines too, lose nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from io import BytesIO
from pathlib import Path
from uuid import uuid4

import msgspec

from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.rundir.paths import is_plain_name
from tfckpt_trainer.rundir.records.checkpoint import VerificationRecord
from tfckpt_trainer.rundir.storage.documents import decode, decoder_of, encode, try_read
from tfckpt_trainer.rundir.storage.files import (
    delete_file,
    list_directory,
    read_bounded,
    write_atomic,
)
from tfckpt_trainer.version import __version__

_SUFFIX = ".jsonl"
_LARGEST = 64 << 20
"""Bytes of a batch: about 200,000 results."""


class ResultBatches:
    """The results in the batches of one directory.

    Attributes:
        found: The newest result of each checkpoint, as of the last refresh.
    """

    def __init__(self, directory: Path, only: AbstractSet[str] | None = None) -> None:
        """Prepares it.

        Args:
            directory: The directory.
            only: The only checkpoints whose results are read; by default all.
        """
        self._directory = directory
        self._only = only
        self._files: AbstractSet[tuple[str, int]] = frozenset()
        self.found: dict[str, VerificationRecord] = {}

    def refresh(self) -> set[str]:
        """Reads new batches; returns the checkpoints whose results changed.

        Raises:
            OSError: The directory cannot be read.
        """
        files, before = _files_in(self._directory), self.found
        if files == self._files:
            return set()
        is_growing = files >= self._files
        found = dict(before) if is_growing else {}
        for name, _ in files - self._files if is_growing else files:
            for record in self._read(self._directory / name):
                earlier = found.get(record.name)
                if earlier is None or earlier.verified_at <= record.verified_at:
                    found[record.name] = record
        self._files, self.found = files, found
        return {
            name for name in before.keys() | found.keys() if before.get(name) != found.get(name)
        }

    def _read(self, path: Path) -> Iterator[VerificationRecord]:
        """Yields the results in a batch; none that follow a damaged one."""
        texts = None if self._only is None else [_text_of(name) for name in self._only]
        for line in _lines(path):
            if texts is None or any(text in line for text in texts):
                try:
                    record = decode(line, VerificationRecord, path.name)
                except DamagedFileError:
                    return
                if is_plain_name(record.name) and (self._only is None or record.name in self._only):
                    yield record


def write_batch(directory: Path, records: Sequence[VerificationRecord]) -> None:
    """Stores results in one file.

    Raises:
        OSError: The directory cannot be written to.
        UsageError: A name is not UTF-8.
    """
    lines = [encode(record, release=__version__) for record in records]
    _write(directory, lines)


def merge_batches(directory: Path) -> None:
    """Writes the newest result of each checkpoint into one batch, and deletes the others.

    Raises:
        OSError: The directory cannot be read or written to.
    """
    paths = [directory / name for name, _ in _files_in(directory)]
    if len(paths) < 2:
        return
    newest: dict[str, tuple[float, bytes]] = {}
    for path in paths:
        for line in _lines(path):
            key = _key_of(line)
            if key is None:
                break
            if key.name not in newest or newest[key.name][0] <= key.verified_at:
                newest[key.name] = key.verified_at, line
    kept, size = [], 0
    for _, line in sorted(newest.values(), reverse=True):
        size += len(line) + 1
        if size > _LARGEST:
            break
        kept.append(line)
    _write(directory, kept)
    for path in paths:
        delete_file(path)


def names_in_batches(directory: Path) -> set[str]:
    """Returns the checkpoints that the batches of a directory have results of."""
    names = set()
    for name, _ in _files_in(directory):
        for line in _lines(directory / name):
            key = _key_of(line)
            if key is None:
                break
            names.add(key.name)
    return names


class _Key(msgspec.Struct):
    name: str
    verified_at: float


def _key_of(line: bytes) -> _Key | None:
    """Returns which checkpoint a line is about, and its time; None if it is damaged."""
    try:
        return decoder_of(_Key).decode(line)
    except (ValueError, RecursionError):
        return None


def _text_of(name: str) -> bytes:
    """Returns what a line about a checkpoint has in it."""
    return b'"name":' + msgspec.json.encode(name)


def _files_in(directory: Path) -> AbstractSet[tuple[str, int]]:
    """Returns the names and inodes of the batches in a directory."""
    entries = list_directory(directory)
    return {(entry.name, entry.inode()) for entry in entries if entry.name.endswith(_SUFFIX)}


def _lines(path: Path) -> Iterator[bytes]:
    # One that another command merged is gone; its results are in another batch.
    data = try_read(partial(read_bounded, path, _LARGEST))
    return (line.rstrip(b"\n") for line in BytesIO(data or b""))


def _write(directory: Path, lines: Sequence[bytes]) -> None:
    # Not flushed: after a power loss the work is done again.
    data = b"".join(line + b"\n" for line in lines)
    write_atomic(directory / f"{uuid4().hex}{_SUFFIX}", data, durable=False)
