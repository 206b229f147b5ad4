"""Checks a checkpoint against all checksums it carries, in one pass over its files."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tfckpt_trainer.bundle.checksum import crc32c
from tfckpt_trainer.bundle.index import Index, TensorEntry, index_path, read_index, shard_path
from tfckpt_trainer.bundle.tensors import read_range, stored_checksum
from tfckpt_trainer.errors import BundleError

CHUNK = 4 << 20

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Finding:
    """Something that is not as it should be.

    Attributes:
        severity: An error keeps a restore from being right; a warning does not.
        kind: A short name for scripts, such as `checksum` or `shard-missing`.
        tensor: Which tensor it concerns, if one.
    """

    severity: Literal["error", "warning"]
    kind: str
    file: str
    tensor: str | None
    message: str


@dataclass(frozen=True)
class Verification:
    """What a verification found.

    Attributes:
        tensors: How many tensors were checked.
        bytes: How many bytes were read.
        file_checksums: CRC32C of each whole file, by name.
        complete: False if it was cancelled.
    """

    findings: tuple[Finding, ...]
    tensors: int
    bytes: int
    file_checksums: dict[str, int]
    complete: bool = True

    @property
    def ok(self) -> bool:
        """Whether everything was read and nothing is wrong that matters to a restore."""
        return self.complete and all(finding.severity != "error" for finding in self.findings)


def verify(
    prefix: Path,
    *,
    on_progress: Progress | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Verification:
    """Reads every byte of the checkpoint at `prefix` and checks every tensor.

    Args:
        prefix: The checkpoint.
        on_progress: Told bytes done and bytes in all, after each chunk.
        cancelled: Asked before each chunk.
    """
    path = index_path(prefix)
    try:
        index = read_index(prefix)
    except FileNotFoundError:
        return _unreadable("index-missing", path.name, f"{path.name} is missing")
    except BundleError as error:
        return _unreadable("index", path.name, str(error))
    checks = _Checks(prefix, index, on_progress, cancelled)
    return checks.run()


def _unreadable(kind: str, file: str, message: str) -> Verification:
    return Verification((Finding("error", kind, file, None, message),), 0, 0, {})


class _Checks:
    def __init__(
        self,
        prefix: Path,
        index: Index,
        on_progress: Progress | None,
        cancelled: Callable[[], bool] | None,
    ) -> None:
        self._prefix = prefix
        self._index = index
        self._on_progress = on_progress
        self._cancelled = cancelled
        self._findings: list[Finding] = []
        self._checksums: dict[str, int] = {}
        self._tensors = 0
        self._done = 0
        self._total = 0
        self._stopped = False

    def run(self) -> Verification:
        index_file = index_path(self._prefix)
        content = index_file.read_bytes()
        self._checksums[index_file.name] = crc32c(content)
        sizes = self._index.shard_sizes()
        paths = [shard_path(self._prefix, i, len(sizes)) for i in range(len(sizes))]
        self._total = sum(path.stat().st_size for path in paths if path.is_file())
        by_shard: dict[int, list[TensorEntry]] = {}
        for entry in self._index.stored():
            by_shard.setdefault(entry.shard, []).append(entry)
        for shard, path in enumerate(paths):
            entries = sorted(by_shard.get(shard, []), key=lambda entry: entry.offset)
            self._shard(path, sizes[shard], entries)
        self._others()
        return Verification(
            tuple(self._findings),
            self._tensors,
            self._done + len(content),
            self._checksums,
            not self._stopped,
        )

    def _shard(self, path: Path, expected: int, entries: list[TensorEntry]) -> None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError as error:
            self._add("error", "shard-missing", path, None, f"{path.name}: {error.strerror}")
            return
        try:
            size = os.fstat(descriptor).st_size
            if size < expected:
                message = f"{path.name} has {size} bytes of {expected}"
                self._add("error", "shard-short", path, None, message)
            elif size > expected:
                message = f"{path.name} has {size - expected} bytes that no tensor uses"
                self._add("warning", "shard-long", path, None, message)
            self._read_through(descriptor, path, size, entries)
        finally:
            os.close(descriptor)

    def _read_through(
        self, descriptor: int, path: Path, size: int, entries: list[TensorEntry]
    ) -> None:
        """Checks the tensors of one data file in the order in which they lie in it."""
        position = whole = 0
        for entry in entries:
            if entry.offset + entry.size > size:
                message = f"{entry.name} reaches beyond the end of {path.name}"
                self._add("error", "tensor-cut", path, entry.name, message)
                continue
            if entry.offset < position:
                message = f"{entry.name} shares bytes of {path.name} with another tensor"
                self._add("error", "overlap", path, entry.name, message)
                continue
            whole, _ = self._sum(descriptor, position, entry.offset, whole)
            whole, found = self._sum(descriptor, entry.offset, entry.offset + entry.size, whole)
            if self._stopped:
                return
            position = entry.offset + entry.size
            self._tensors += 1
            self._compare(path, entry, found)
        whole, _ = self._sum(descriptor, position, size, whole)
        if not self._stopped:
            self._checksums[path.name] = whole

    def _compare(self, path: Path, entry: TensorEntry, found: int) -> None:
        if entry.dtype in ("string", "variant"):
            try:
                data = read_range(path, entry.offset, entry.size)
                found = stored_checksum(data, entry, path.name)
            except BundleError as error:
                self._add("error", "checksum", path, entry.name, str(error))
                return
        if found != entry.crc32c:
            message = f"{entry.name} in {path.name} does not match its checksum"
            self._add("error", "checksum", path, entry.name, message)

    def _sum(self, descriptor: int, start: int, end: int, whole: int) -> tuple[int, int]:
        """Returns the checksums of the file so far and of the part from `start` to `end`."""
        part = 0
        while start < end:
            if self._cancelled is not None and self._cancelled():
                self._stopped = True
                break
            data = os.pread(descriptor, min(CHUNK, end - start), start)
            if not data:
                break
            start += len(data)
            part = crc32c(data, part)
            whole = crc32c(data, whole)
            self._done += len(data)
            if self._on_progress is not None:
                self._on_progress(self._done, self._total)
        return whole, part

    def _others(self) -> None:
        """Looks for data files that the index does not count."""
        count = self._index.shard_count
        expected = {shard_path(self._prefix, i, count).name for i in range(count)}
        for path in sorted(self._prefix.parent.glob(f"{self._prefix.name}.data-*-of-*")):
            if path.name not in expected:
                message = f"{path.name} does not belong to it; the index counts {count} data files"
                self._add("warning", "shard-extra", path, None, message)

    def _add(
        self,
        severity: Literal["error", "warning"],
        kind: str,
        path: Path,
        tensor: str | None,
        message: str,
    ) -> None:
        self._findings.append(Finding(severity, kind, path.name, tensor, message))
