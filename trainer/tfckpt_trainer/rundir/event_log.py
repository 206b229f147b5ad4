"""The event log of a run: an append-only file, one JSON line per event."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic

from tfckpt_trainer.errors import DamagedFileError, UsageError, describe_error
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventEntry, EventKind
from tfckpt_trainer.rundir.storage.documents import (
    DocumentT,
    append,
    parse_lines,
)
from tfckpt_trainer.rundir.storage.files import NotFlushedError, open_plain

WHOLE_LOG = 1_000_000
"""More entries than an event log has, for `read_entries`: one a second for eleven days."""

TAIL_BYTES = 8 << 20
"""Bytes that the first read takes from the end of an append-only file."""

LOG_BYTES = 1 << 28
"""Bytes that `read_entries` takes from the end of the event log at most."""

LINE_BYTES = 1 << 20
"""A line that is longer is none of ours."""

_BLOCK = 1 << 20


def write_entry(run: RunDirectory, entry: EventEntry) -> None:
    """Appends `entry` to the event log and flushes it.

    Raises:
        NotFlushedError: The entry was written but not flushed to disk.
        OSError: The entry was not written.
    """
    append(run.event_log, entry)


def note_event(run: RunDirectory, kind: EventKind, message: str, **fields: Any) -> str:
    """Appends an entry about a completed action, without raising errors.

    Args:
        run: The run directory.
        kind: The kind of event.
        message: What was done, as a sentence.
        **fields: Other fields of `EventEntry`.

    Returns:
        A sentence about what went wrong, to be shown with the outcome; empty if nothing did.
    """
    try:
        write_entry(run, EventEntry(at=time.time(), kind=kind, message=message, **fields))
    except NotFlushedError as error:
        return f"Its event log entry may not survive a power loss: {describe_error(error)}."
    except OSError as error:
        return f"It is missing in the event log: {describe_error(error)}."
    except UsageError as error:
        return f"It is missing in the event log: {error}"
    return ""


def read_entries(run: RunDirectory, newest: int | None = None) -> list[EventEntry]:
    """Returns entries of the event log, oldest first.

    Args:
        run: The run directory.
        newest: How many, as far as they are in the last `LOG_BYTES`; by default, those in the last
            `TAIL_BYTES`.
    """
    if newest is None:
        return Tail(run.event_log, EventEntry).read_new()
    parsed = [
        parse_lines(lines, EventEntry, run.event_log.name)[0]
        for lines in _last_lines(run.event_log, newest)
    ]
    return [entry for entries in reversed(parsed) for entry in entries]


def require_event_log(run: RunDirectory, entries: Sequence[EventEntry]) -> None:
    """Raises an error if nothing was read because the event log cannot be read.

    Args:
        run: The run directory.
        entries: What was read of it.

    Raises:
        DamagedFileError: It is not a regular file, or has content but no entry.
        OSError: It cannot be read.
    """
    if entries or not os.path.lexists(run.event_log):
        return
    with open_plain(run.event_log) as file:
        if os.fstat(file.fileno()).st_size:
            raise DamagedFileError(
                f"{run.event_log} has no entries that can be read; expected JSON lines. "
                "Move it away: the next event begins a new one."
            )


def _last_lines(path: Path, count: int) -> Iterator[bytes]:
    """Yields the last lines of a file in blocks, the newest block first; at most so many lines.

    A line longer than `LINE_BYTES` may be left out: memory holds a block and one line.
    """
    try:
        file = open_plain(path)
    except (OSError, DamagedFileError):
        return
    with file:
        place = file.seek(0, os.SEEK_END)
        oldest = max(0, place - LOG_BYTES)
        later = b""
        while place > oldest and count > 0:
            begin = max(oldest, place - _BLOCK)
            data = os.pread(file.fileno(), place - begin, begin) + later
            # The line in which a block begins is complete with the block before.
            cut = data.find(b"\n") + 1 or len(data) if begin else 0
            later = data[:cut] if cut <= LINE_BYTES else b""
            block = newest_lines(data[cut:], count)
            count -= block.count(b"\n")
            place = begin
            yield block


def newest_lines(data: bytes, count: int) -> bytes:
    """Returns the last complete lines, at most so many."""
    complete = data[: data.rfind(b"\n") + 1]
    if complete.count(b"\n") <= count:
        return complete
    return b"\n".join(complete.rsplit(b"\n", count + 1)[1:])


def after_hole(descriptor: int, offset: int, size: int) -> int:
    """Returns where the next bytes of a file are; others may have made a hole of any size in it."""
    try:
        return os.lseek(descriptor, offset, os.SEEK_DATA)
    except OSError as error:
        # There are no more, or the file system does not tell.
        return size if error.errno == errno.ENXIO else offset


class Tail(Generic[DocumentT]):
    """Reads the new documents of an append-only file.

    The first call reads at most the last `TAIL_BYTES`. A file that was replaced or truncated is
    read again from there.
    """

    def __init__(
        self,
        path: Path,
        kind: type[DocumentT],
        *,
        from_end: bool = False,
        first: int = TAIL_BYTES,
        most: int = TAIL_BYTES,
    ) -> None:
        """Creates a reader.

        Args:
            path: The file, which may not exist yet.
            kind: The type of its documents.
            from_end: Whether to read only what is appended from now on, or after the file was
                replaced.
            first: Bytes at the end of the file in which the first read begins.
            most: Bytes that a read takes at most.
        """
        self._path = path
        self._kind = kind
        self._from_end = from_end
        self._first = first
        self._most = most
        self._offset = 0
        self._inode: int | None = None
        self.beginnings = 0
        """How often it began to read: more than once if the file was replaced or truncated."""
        self.is_behind = False
        """Whether the last read found as much as it takes, so that there may be more."""
        if from_end:
            with suppress(OSError):
                facts = path.lstat()
                self._inode, self._offset = facts.st_ino, facts.st_size

    def read_new(self) -> list[DocumentT]:
        """Returns the documents appended since the last call; none if there is no file."""
        self.is_behind = False
        try:
            opened = open_plain(self._path)
        except (OSError, DamagedFileError):
            return []
        with opened as file:
            facts = os.fstat(file.fileno())
            self._find_place(file.fileno(), facts)
            self._offset = after_hole(file.fileno(), self._offset, facts.st_size)
            file.seek(self._offset)
            data = file.read(self._most)
        documents, used = self._parse(data)
        self.is_behind = len(data) == self._most
        # A line that is longer is none of ours. Its end is skipped as a damaged line.
        self._offset += used or (len(data) if self.is_behind else 0)
        return documents

    def _find_place(self, descriptor: int, facts: os.stat_result) -> None:
        """Begins again if another file was put in place, or this one was truncated."""
        if facts.st_ino != self._inode or facts.st_size < self._offset:
            # All that the first file has was appended later.
            skips = self._from_end and self._inode is not None
            self._inode = facts.st_ino
            self._offset = facts.st_size if skips else max(0, facts.st_size - self._first)
            self.beginnings += 1

    def _parse(self, data: bytes) -> tuple[list[DocumentT], int]:
        return parse_lines(data, self._kind, self._path.name)
