"""The event log of a run: an append-only file, one JSON line per event, and an older one."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import Any, BinaryIO

from tfckpt_trainer.errors import DamagedFileError, UsageError, describe_error
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventEntry, EventKind
from tfckpt_trainer.rundir.storage.documents import append, parse_lines
from tfckpt_trainer.rundir.storage.files import NotFlushedError, open_plain, rename
from tfckpt_trainer.rundir.storage.tail import Tail, newest_lines

WHOLE_LOG = 1_000_000
"""More entries than an event log has, for `read_entries`: one a second for eleven days."""

LOG_BYTES = 1 << 28
"""Bytes that `read_entries` takes from the end of each file of the event log at most."""

LOG_LIMIT = 1 << 27
"""Size in bytes above which the event log is rotated; one older log is kept.

A year of saves and prunes each ten minutes takes a third of it.
"""

LINE_BYTES = 1 << 20
"""A line that is longer is none of ours."""

_BLOCK = 1 << 20


def write_entry(run: RunDirectory, entry: EventEntry) -> int:
    """Appends `entry` to the event log and flushes it; returns the size of the log in bytes.

    Raises:
        NotFlushedError: The entry was written but not flushed to disk.
        OSError: The entry was not written.
    """
    return append(run.event_log, entry)


def rotate_event_log(run: RunDirectory) -> None:
    """Renames the event log, in place of an older one; the next entry begins a new file.

    Only the trainer may do so. Who has the file open, such as a command, appends to the renamed
    one.

    Raises:
        OSError: The disk refuses. The log was not renamed.
    """
    rename(run.event_log, run.older_event_log)


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
        return EventLogTail(run).read_new()
    parsed: list[list[EventEntry]] = []
    with ExitStack() as opened:
        for file in _open_logs(run, opened):
            for lines in _last_lines(file, newest):
                newest -= lines.count(b"\n")
                parsed.append(parse_lines(lines, EventEntry, run.event_log.name)[0])
    return [entry for entries in reversed(parsed) for entry in entries]


def _open_logs(run: RunDirectory, opened: ExitStack) -> list[BinaryIO]:
    """Opens the files of the event log, the newest first.

    All are opened before one is read. If the log is rotated meanwhile, both names are one file.
    """
    files: list[BinaryIO] = []
    for path in (run.event_log, run.older_event_log):
        with suppress(OSError, DamagedFileError):
            file = opened.enter_context(open_plain(path))
            if not any(os.path.sameopenfile(file.fileno(), one.fileno()) for one in files):
                files.append(file)
    return files


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


def _last_lines(file: BinaryIO, count: int) -> Iterator[bytes]:
    """Yields the last lines of a file in blocks, the newest block first; at most so many lines.

    A line longer than `LINE_BYTES` may be left out: memory holds a block and one line.
    """
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


class EventLogTail(Tail[EventEntry]):
    """Reads the new entries of the event log. A rotation neither hides nor repeats one."""

    def __init__(self, run: RunDirectory, *, from_end: bool = False) -> None:
        """Creates a reader.

        Args:
            run: The run directory.
            from_end: Whether to read only what is appended from now on.
        """
        super().__init__(run.event_log, EventEntry, from_end=from_end)
        self._older_path = run.older_event_log
        self._older: list[EventEntry] = []

    def read_new(self) -> list[EventEntry]:
        """Returns the entries appended since the last call; none if there is no file."""
        entries = super().read_new()
        older, self._older = self._older, []
        return older + entries

    def _find_place(self, descriptor: int, facts: os.stat_result) -> None:
        inode, offset = self._inode, self._offset
        super()._find_place(descriptor, facts)
        if facts.st_ino == inode:
            return
        with suppress(OSError, DamagedFileError), open_plain(self._older_path) as older:
            rotated = os.fstat(older.fileno())
            if rotated.st_ino == inode:
                self._offset = 0
            elif inode is None and not self._from_end:
                offset = max(0, rotated.st_size - max(0, self._first - facts.st_size))
            else:
                return
            older.seek(offset)
            self._older = self._parse(older.read(self._most))[0]
