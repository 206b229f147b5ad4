"""Reads of several directories at once, each with a time limit: one may be on a disk that hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

AT_ONCE = 32
"""How many directories are read at once, unless one does not answer."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Answer(Generic[Result]):
    """The newest result of a read.

    Attributes:
        result: It; None if there is none yet.
        silent_seconds: For how long the present read has not come back; 0 if it has.
    """

    result: Result | None
    silent_seconds: float = 0.0


class TimedReads(Generic[Result]):
    """Reads directories in threads, because a read of a disk that hangs cannot be ended.

    A read that has not come back goes on, and no second one of the same directory is started.
    """

    def __init__(self, read: Callable[[Path], Result]) -> None:
        self._read = read
        self._running: dict[Path, _Read[Result]] = {}
        self._results: dict[Path, Result] = {}

    def collect(self, directories: Iterable[Path], seconds: float) -> dict[Path, Answer[Result]]:
        """Returns an answer for each directory.

        Waits for new reads only, and for each at most `seconds`. Once one takes longer, all others
        are waited for `seconds` together. What a read raises is raised here.
        """
        wanted = list(dict.fromkeys(directories))
        new = [directory for directory in wanted if directory not in self._running]
        size, place = AT_ONCE, 0
        while place < len(new):
            batch = new[place : place + size]
            place += size
            for directory in batch:
                self._running[directory] = _Read(self._read, directory)
            deadline = time.monotonic() + seconds
            for directory in batch:
                self._take(directory, max(0.0, deadline - time.monotonic()))
            if any(directory in self._running for directory in batch):
                size = len(new)
        for directory in wanted:
            if directory in self._running:
                self._take(directory, 0.0)
        return {directory: self._answer(directory) for directory in wanted}

    def _take(self, directory: Path, seconds: float) -> None:
        read = self._running[directory]
        read.thread.join(seconds)
        if read.thread.is_alive():
            return
        del self._running[directory]
        self._results.pop(directory, None)
        if read.error is not None:
            raise read.error
        if read.results:
            self._results[directory] = read.results[0]

    def _answer(self, directory: Path) -> Answer[Result]:
        read = self._running.get(directory)
        silent = time.monotonic() - read.began if read is not None else 0.0
        return Answer(self._results.get(directory), silent)


class _Read(Generic[Result]):
    def __init__(self, read: Callable[[Path], Result], directory: Path) -> None:
        self.results: list[Result] = []
        self.error: Exception | None = None
        self.began = time.monotonic()
        self.thread = threading.Thread(target=self._run, args=(read, directory), daemon=True)
        self.thread.start()

    def _run(self, read: Callable[[Path], Result], directory: Path) -> None:
        try:
            self.results.append(read(directory))
        except Exception as error:
            self.error = error
