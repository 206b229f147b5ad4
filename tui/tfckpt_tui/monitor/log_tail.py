"""The end of a log, and what is added to it: bounded, safe to show, with its times."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.rundir.files import open_plain
from tfckpt_trainer.rundir.log_times import LogTimes, read_log_times
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.formats.text import clean

FIRST_BYTES = 1 << 20
"""How much of the end of a log is read first."""

SUPERVISOR = "supervisor"
"""Name of the log that is no worker's."""

_CARRIAGE = "\r"


@dataclass(frozen=True)
class LogLine:
    """One line.

    Attributes:
        text: Safe to show.
        at: By when it was printed, in seconds since the epoch; None where nobody noted it.
    """

    text: str
    at: float | None = None


class LogTail:
    """Follows one log; each call returns the whole lines that came since the last."""

    def __init__(self, path: Path, first_bytes: int = FIRST_BYTES) -> None:
        self._path = path
        self._has_read = False
        self._reads_notes = True
        self._first_bytes = first_bytes
        self._offset = 0
        self._inode: int | None = None
        self._rest = b""

    def read_new(self) -> list[LogLine] | None:
        """Returns new lines, oldest first; None where the log is not there or cannot be read.

        A log that was replaced or cut is read from its beginning.
        """
        try:
            opened = open_plain(self._path)
        except (OSError, DamagedFileError):
            return None
        with opened as file:
            facts = os.fstat(file.fileno())
            if facts.st_ino != self._inode or facts.st_size < self._offset:
                self._inode = facts.st_ino
                self._reads_notes = True
                self._offset = max(0, facts.st_size - self._first_bytes)
                self._rest = b""
                file.seek(self._offset)
                if self._offset:
                    self._offset += len(file.readline())
            file.seek(self._offset)
            data = self._rest + file.read(self._first_bytes)
            self._offset = file.tell()
        whole, separator, self._rest = data.rpartition(b"\n")
        if not separator:
            self._rest = data
            return []
        return self._timed(whole, self._offset - len(self._rest), facts.st_mtime)

    def _timed(self, whole: bytes, end: int, changed_at: float) -> list[LogLine]:
        """Returns lines with the moments that were noted; newer ones came when the log changed."""
        # What came since the last look needs no notes, which may be thousands.
        known = read_log_times(self._path) if self._reads_notes else LogTimes()
        self._reads_notes = False
        if known.inode != self._inode:
            known = LogTimes()
        # Of a log that nobody noted, only what came since the first look has a time.
        newest = changed_at if self._has_read or known.sizes else None
        self._has_read = True
        place = end - len(whole) - 1
        lines = []
        for raw in whole.split(b"\n"):
            place += len(raw) + 1
            at = known.printed_at(place)
            lines.append(LogLine(_shown(raw), newest if at is None else at))
        return lines

    @property
    def unfinished(self) -> LogLine | None:
        """The last line as far as it was read; None where the log ends with a whole one."""
        return LogLine(_shown(self._rest)) if self._rest else None


def log_path(run: RunDirectory, log: str) -> Path:
    """Returns where the log called `log` is: `worker 0`, `supervisor`."""
    if log == SUPERVISOR:
        return run.supervisor_log
    return run.worker_log(int(log.rsplit(" ", 1)[-1]))


def _shown(line: bytes) -> str:
    text = line.decode("utf-8", "replace").rstrip(_CARRIAGE)
    # A progress bar rewrites its line: its last state is what a terminal would show.
    return clean(text.rsplit(_CARRIAGE, 1)[-1].expandtabs(4))
