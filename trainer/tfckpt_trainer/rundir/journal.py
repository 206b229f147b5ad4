"""The journal: append-only lines about everything that happened to a run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Generic

from tfckpt_trainer.errors import DamagedFileError, in_words
from tfckpt_trainer.rundir.documents import DocumentT, append, parse_lines
from tfckpt_trainer.rundir.files import NotFlushedError, open_plain
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import JournalEntry

TAIL_BYTES = 8 << 20
"""How much of the end of an append-only file a first look reads."""


def write_entry(run: RunDirectory, entry: JournalEntry) -> None:
    """Appends `entry` to the journal and flushes it.

    Raises:
        NotFlushedError: It is there; the disk refused to flush it.
        OSError: It is not there.
    """
    append(run.journal, entry)


def try_write_entry(run: RunDirectory, entry: JournalEntry) -> str:
    """Appends `entry` about something that is done already, whatever becomes of the line.

    Returns:
        A sentence about what the disk refused, to be told beside the outcome; empty if nothing.
    """
    try:
        write_entry(run, entry)
    except NotFlushedError as error:
        return f"Its line in the journal may not survive a power loss: {in_words(error)}."
    except OSError as error:
        return f"It is not in the journal: {in_words(error)}."
    return ""


def read_entries(run: RunDirectory) -> list[JournalEntry]:
    """Returns the newest entries, oldest first, at most `TAIL_BYTES` of them."""
    return Tail(run.journal, JournalEntry).read_new()


class Tail(Generic[DocumentT]):
    """Follows one append-only file of documents: each call returns what came since the last.

    The first call reads at most the last `TAIL_BYTES`. A file that was replaced or became
    shorter is read anew.
    """

    def __init__(self, path: Path, kind: type[DocumentT]) -> None:
        self._path = path
        self._kind = kind
        self._offset = 0
        self._inode: int | None = None

    def read_new(self) -> list[DocumentT]:
        """Returns the documents appended since the last call; none where there is no file."""
        try:
            opened = open_plain(self._path)
        except (OSError, DamagedFileError):
            return []
        with opened as file:
            facts = os.fstat(file.fileno())
            if facts.st_ino != self._inode or facts.st_size < self._offset:
                self._inode = facts.st_ino
                self._offset = max(0, facts.st_size - TAIL_BYTES)
            file.seek(self._offset)
            documents, used = parse_lines(file.read(TAIL_BYTES), self._kind, self._path.name)
        self._offset += used
        return documents
