"""Verifies a checkpoint against all of its checksums, in one pass over its files."""

from __future__ import annotations

import stat
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from tfckpt_trainer.bundle.analysis.contents import read_contents
from tfckpt_trainer.bundle.analysis.finite import FiniteScan, NonFiniteValues, merge_parts
from tfckpt_trainer.bundle.checksum import combine, crc32c
from tfckpt_trainer.bundle.dtypes import ITEM_SIZES
from tfckpt_trainer.bundle.index import Index, IndexReader, TensorEntry, index_path, shard_path
from tfckpt_trainer.bundle.links import leads_to_no_file, stat_inside
from tfckpt_trainer.bundle.object_graph import KEY
from tfckpt_trainer.bundle.shard import CHUNK, Shard
from tfckpt_trainer.bundle.structure import (
    UNREADABLE,
    UNSUPPORTED,
    Finding,
    graph_findings,
    structure_findings,
)
from tfckpt_trainer.bundle.table import IndexTable
from tfckpt_trainer.bundle.tensor_checksums import compute_checksum
from tfckpt_trainer.errors import BundleError, UnsupportedBundleError, reason_of
from tfckpt_trainer.machine.priority import lower_priority

Progress = Callable[[int, int], None]

_BLOCK = 8 << 20
"""Bytes of tensors that a thread checks at a time."""

_LONGEST = 64 << 20
"""Bytes of a tensor above which its progress is told while it is read."""

_WORTH_THREADS = 32 << 20
"""Bytes of a data file from which on threads are worth their start."""

_AHEAD = 2
"""Blocks for each thread that are begun before their turn."""

_NICENESS = 5
"""Training on this machine goes before."""


class Verification(msgspec.Struct, frozen=True):
    """The result of a verification.

    Attributes:
        tensors: Number of checked tensors, without the object graph.
        bytes: Number of bytes read.
        file_checksums: CRC32C of each whole file by name; of the index alone unless requested.
        not_finite: Tensors with NaN or infinite values; empty unless requested.
        complete: False if the verification was cancelled.
    """

    findings: tuple[Finding, ...]
    tensors: int = 0
    bytes: int = 0
    file_checksums: Mapping[str, int] = {}
    not_finite: tuple[NonFiniteValues, ...] = ()
    complete: bool = True

    @property
    def ok(self) -> bool:
        """Whether everything was read and nothing prevents a correct restore."""
        return self.complete and all(finding.severity != "error" for finding in self.findings)


def verify(
    prefix: Path,
    *,
    on_progress: Progress | None = None,
    cancelled: Callable[[], bool] | None = None,
    digests: bool = False,
    finite: bool = False,
    part: bool = False,
    beside: Iterable[str] | None = None,
    threads: int = 1,
) -> Verification:
    """Reads every byte of the checkpoint at `prefix` and checks every tensor.

    Args:
        prefix: The checkpoint.
        on_progress: Called with bytes read and total bytes, about once in a chunk.
        cancelled: Called as often; return True to stop.
        digests: Whether to compute checksums of whole files too, which doubles the CPU time of
            small tensors.
        finite: Whether to look for NaN and infinite elements.
        part: Whether this is one worker's part of a checkpoint, to be merged with others.
            Missing parts are not reported then.
        beside: The names of all files that begin like its data files; by default, lists its
            directory.
        threads: How many threads compare tensors with their checksums, if it is only for these.
    """
    path = index_path(prefix)
    try:
        table = IndexTable(path)
        index = IndexReader(table).read()
        unused, content = table.unused_damage(), table.content
    except FileNotFoundError:
        return Verification((_error("index-missing", path, f"{path.name} is missing"),))
    except OSError as error:
        return Verification(
            (_error(UNREADABLE, path, f"{path.name} cannot be read: {reason_of(error)}"),)
        )
    except BundleError as error:
        if leads_to_no_file(path):
            message = f"{path.name} is a symbolic link that leads to no file"
            return Verification((_error("index-missing", path, message),))
        if isinstance(error, UnsupportedBundleError):
            return Verification((_error(UNSUPPORTED, path, str(error)),))
        kind = "index-empty" if _is_empty(path) else "index"
        return Verification((_error(kind, path, str(error)),))

    def on_read(done: int) -> None:
        if cancelled is not None and cancelled():
            raise _Cancelled
        if on_progress is not None:
            on_progress(done, checks.total)

    checks = _Checks(
        prefix, index, on_read, digests=digests, finite=finite, part=part, threads=threads
    )
    if unused:
        checks.add("warning", "index-unused", path, None, f"{path.name}: {unused}")
    return checks.run(content, beside)


def _error(kind: str, path: Path, message: str) -> Finding:
    return Finding("error", kind, path.name, None, message)


def _with_path(finding: Finding, paths: Mapping[str, str]) -> Finding:
    """Returns a finding whose message names its tensor by its path."""
    name = finding.tensor
    if name is None or name not in paths or paths[name] == name:
        return finding
    return replace(finding, message=finding.message.replace(name, paths[name]))


def _is_empty(path: Path) -> bool:
    try:
        seen = stat_inside(path)
    except OSError:
        return False
    return stat.S_ISREG(seen.st_mode) and seen.st_size == 0


def _size(path: Path) -> int:
    try:
        seen = stat_inside(path)
        return seen.st_size if stat.S_ISREG(seen.st_mode) else 0
    except OSError:
        # Reading the file reports the reason.
        return 0


def _matches(shard: Shard, entry: TensorEntry) -> bool:
    """Whether a tensor that takes one read matches its checksum; any other does not.

    With thousands of small tensors, calls and not checksums take the time.
    """
    if entry.size > CHUNK or entry.dtype not in ITEM_SIZES:
        return False
    try:
        return crc32c(shard.read(entry.offset, entry.size)) == entry.crc32c
    except BundleError:
        return False


def _blocks(entries: Iterable[TensorEntry]) -> Iterator[list[TensorEntry]]:
    """Divides tensors into blocks of `_BLOCK` bytes, or of one larger tensor."""
    block: list[TensorEntry] = []
    size = 0
    for entry in entries:
        if block and size + entry.size > _BLOCK:
            yield block
            block, size = [], 0
        block.append(entry)
        size += entry.size
    if block:
        yield block


def _check_block(path: Path, block: Sequence[TensorEntry]) -> list[bool]:
    """Returns whether each tensor of a block matches its checksum.

    Raises:
        OSError: The data file cannot be read.
        BundleError: It is no longer a regular file.
    """
    if block[0].size > _LONGEST:
        return [False]
    with Shard(path) as shard:
        return [_is_sound(shard, entry) for entry in block]


def _is_sound(shard: Shard, entry: TensorEntry) -> bool:
    try:
        return compute_checksum(shard, entry, _ignore) == entry.crc32c
    except BundleError:
        return False


def _ignore(_data: bytes) -> None:
    return


def _check_ahead(
    path: Path, entries: Iterable[TensorEntry], threads: int
) -> Generator[tuple[TensorEntry, bool]]:
    """Yields tensors, and whether each is known to match its checksum; threads find that out."""
    begun: deque[tuple[list[TensorEntry], Future[list[bool]]]] = deque()
    pool = ThreadPoolExecutor(threads, initializer=lower_priority, initargs=(_NICENESS,))
    try:
        for block in _blocks(entries):
            begun.append((block, pool.submit(_check_block, path, block)))
            if len(begun) > _AHEAD * threads:
                first, sound = begun.popleft()
                yield from zip(first, sound.result(), strict=True)
        for first, sound in begun:
            yield from zip(first, sound.result(), strict=True)
    finally:
        pool.shutdown(cancel_futures=True)


class _Cancelled(Exception):  # noqa: N818
    """The caller cancelled the verification."""


class _Checks:
    """The state of one pass."""

    def __init__(
        self,
        prefix: Path,
        index: Index,
        on_read: Callable[[int], None],
        *,
        digests: bool,
        finite: bool,
        part: bool,
        threads: int,
    ) -> None:
        self._prefix = prefix
        self._index = index
        self._on_read = on_read
        self._digests = digests
        self._finite = finite
        self._part = part
        self._reads_once = not digests and not finite
        self._threads = threads
        self._parts = {entry: part for (_, part), entry in index.parts.items()}
        self._findings: list[Finding] = []
        self._checksums: dict[str, int] = {}
        self._not_finite: list[NonFiniteValues] = []
        self._tensors = set[str]()
        self._done = self._told = 0
        count = index.shard_count
        self._paths = [shard_path(prefix, number, count) for number in range(count)]

    @cached_property
    def total(self) -> int:
        """The bytes of all tensors that the data files have."""
        return sum(map(min, map(_size, self._paths), self._index.shard_sizes()))

    def run(self, content: bytes, beside: Iterable[str] | None) -> Verification:
        """Checks all data files against the index, whose file has this `content`."""
        self._checksums[index_path(self._prefix).name] = crc32c(content)
        self._findings += [
            finding
            for finding in structure_findings(self._prefix, self._index, beside)
            if not (self._part and finding.kind == "slice")
        ]
        complete = True
        try:
            for number, entries in enumerate(self._by_shard()):
                self._check_shard(self._paths[number], entries)
            if not self._part and all(finding.tensor != KEY for finding in self._findings):
                with suppress(OSError):
                    # An unreadable data file was reported above.
                    self._findings += graph_findings(self._prefix, self._index)
        except _Cancelled:
            complete = False
        shown = self._paths_of_tensors()
        return Verification(
            tuple(_with_path(finding, shown) for finding in self._findings),
            len((self._tensors & self._index.entries.keys()) - {KEY}),
            self._done + len(content),
            self._checksums,
            tuple(
                replace(part, path=shown.get(part.tensor, part.tensor))
                for part in merge_parts(self._not_finite, self._index)
            ),
            complete,
        )

    def add(
        self,
        severity: Literal["error", "warning"],
        kind: str,
        path: Path,
        tensor: str | None,
        message: str,
    ) -> None:
        self._findings.append(Finding(severity, kind, path.name, tensor, message))

    def _paths_of_tensors(self) -> dict[str, str]:
        """Returns the paths of tensors by name; nothing if no message needs one."""
        if not (self._not_finite or any(finding.tensor for finding in self._findings)):
            return {}
        variables = read_contents(self._prefix, self._index).variables
        return {variable.entry.name: variable.path for variable in variables}

    def _by_shard(self) -> list[list[TensorEntry]]:
        shards: list[list[TensorEntry]] = [[] for _ in self._paths]
        for entry in self._index.stored():
            shards[entry.shard].append(entry)
        for entries in shards:
            entries.sort(key=attrgetter("offset", "size"))
        return shards

    def _check_shard(self, path: Path, entries: Iterable[TensorEntry]) -> None:
        try:
            with Shard(path) as shard:
                self._check_open_shard(path, shard, entries)
        except FileNotFoundError:
            self.add("error", "shard-missing", path, None, f"{path.name} is missing")
        except OSError as error:
            self.add(
                "error", UNREADABLE, path, None, f"{path.name} cannot be read: {reason_of(error)}"
            )
        except BundleError as error:
            self.add("error", "shard-not-plain", path, None, str(error))

    def _check_open_shard(self, path: Path, shard: Shard, entries: Iterable[TensorEntry]) -> None:
        position = whole = 0
        with closing(self._checked(path, shard, entries)) as checked:
            for entry, is_sound in checked:
                if entry.offset > position:
                    whole = self._read_through(shard, position, entry.offset, whole)
                self._tensors.add(entry.name)
                if is_sound:
                    self._advance(entry.size)
                else:
                    whole = self._check_tensor(path, shard, entry, whole)
                end = entry.offset + entry.size
                if end > position:
                    position = end
        whole = self._read_through(shard, position, shard.size, whole)
        self._on_read(self._done)
        if self._digests:
            self._checksums[path.name] = whole

    def _placed(
        self, path: Path, shard: Shard, entries: Iterable[TensorEntry]
    ) -> Iterator[TensorEntry]:
        """Yields the tensors that lie in the file, none on another; the rest are findings."""
        position = 0
        for entry in entries:
            end = entry.offset + entry.size
            if end > shard.size:
                message = f"{entry.name} reaches beyond the end of {path.name}"
                self.add("error", "tensor-cut", path, entry.name, message)
            elif entry.offset < position and entry.size:
                message = f"{entry.name} shares bytes of {path.name} with another tensor"
                self.add("error", "overlap", path, entry.name, message)
            else:
                yield entry
                if end > position:
                    position = end

    def _checked(
        self, path: Path, shard: Shard, entries: Iterable[TensorEntry]
    ) -> Generator[tuple[TensorEntry, bool]]:
        """Yields the tensors to check, and whether each is known to match its checksum."""
        placed = self._placed(path, shard, entries)
        if not self._reads_once:
            return ((entry, False) for entry in placed)
        if self._threads < 2 or shard.size < _WORTH_THREADS:
            return ((entry, _matches(shard, entry)) for entry in placed)
        return _check_ahead(path, placed, self._threads)

    def _check_tensor(self, path: Path, shard: Shard, entry: TensorEntry, whole: int) -> int:
        """Checks one tensor; returns `whole`, the running checksum of the file."""
        done = 0
        scan = FiniteScan(entry, self._parts.get(entry)) if self._finite else None
        # To combine two checksums takes less time than a second one of a large tensor.
        combines = self._digests and entry.size >= CHUNK and entry.dtype in ITEM_SIZES

        def on_chunk(data: bytes) -> None:
            nonlocal whole, done
            done += len(data)
            self._advance(len(data))
            if self._digests and not combines:
                whole = crc32c(data, whole)
            if scan is not None:
                scan.add(data)

        try:
            checksum = compute_checksum(shard, entry, on_chunk)
            if combines:
                whole = combine(whole, checksum, entry.size)
            if checksum != entry.crc32c:
                message = f"{entry.name} in {path.name} does not match its checksum"
                self.add("error", "checksum", path, entry.name, message)
        except BundleError as error:
            self.add("error", "checksum", path, entry.name, str(error))
            start = entry.offset if combines else entry.offset + done
            whole = self._read_through(shard, start, entry.offset + entry.size, whole)
        not_finite = scan.result() if scan is not None else None
        if not_finite is not None:
            self._not_finite.append(not_finite)
        return whole

    def _read_through(self, shard: Shard, start: int, end: int, whole: int) -> int:
        """Reads bytes that do not belong to any tensor, if the checksum of the file is wanted."""
        if not self._digests:
            return whole
        for data in shard.chunks(start, end - start):
            self._advance(len(data))
            whole = crc32c(data, whole)
        return whole

    def _advance(self, count: int) -> None:
        self._done += count
        if self._done - self._told >= CHUNK:
            self._told = self._done
            self._on_read(self._done)
