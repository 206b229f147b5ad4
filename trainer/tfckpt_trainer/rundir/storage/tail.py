"""Reads the end of append-only files with one JSON document a line, and what is appended."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Generic

from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.rundir.storage.documents import DocumentT, parse_lines
from tfckpt_trainer.rundir.storage.files import open_plain
from tfckpt_trainer.rundir.storage.server_facts import ServerFacts, ask_server_about

TAIL_BYTES = 8 << 20
"""Bytes that the first read takes from the end of an append-only file."""


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
        self._read_facts: ServerFacts | None = None
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
        try:
            # Before the file is read: what is appended meanwhile changes them.
            told = ask_server_about(self._path)
            if not self.is_behind and told == self._read_facts:
                return []
            opened = open_plain(self._path)
        except (OSError, DamagedFileError):
            self.is_behind = False
            return []
        with opened as file:
            self._read_facts = told
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
