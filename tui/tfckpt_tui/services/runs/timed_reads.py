"""Reads of several directories at once, each with a time limit: one may be on a disk that hangs."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from tfckpt_trainer.errors import TfckptError

AT_ONCE = 32
"""How many threads read at once, unless a directory does not answer."""

_FEW_THREADS = 2
"""Threads that are started together while reads wait for a disk."""

_SLOW_SECONDS = 0.1
"""How long reads have to wait for a disk until more threads help."""

_WAITING = 0.5
"""Reads wait if this process computes for less than this part of the time.

Files in the memory of this machine are read by one thread: more get in each other's way.
"""

Result = TypeVar("Result")


@dataclass(frozen=True)
class ReadResult(Generic[Result]):
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

    def collect(
        self, directories: Iterable[Path], seconds: float
    ) -> dict[Path, ReadResult[Result]]:
        """Returns an answer for each directory.

        Waits for new reads only, as long as one ends in each `seconds`. Once none does, all others
        are waited for `seconds` together. What a read raises is raised here.
        """
        wanted = list(dict.fromkeys(directories))
        new = [directory for directory in wanted if directory not in self._running]
        self._running.update((directory, _Read(self._read, directory)) for directory in new)
        reads = [self._running[directory] for directory in new]
        _run_all(reads, seconds)
        for directory in wanted:
            self._take(directory)
        return {directory: self._answer(directory) for directory in wanted}

    def _take(self, directory: Path) -> None:
        read = self._running[directory]
        if not read.has_ended.is_set():
            return
        del self._running[directory]
        self._results.pop(directory, None)
        if read.error is not None:
            raise read.error
        if read.results:
            self._results[directory] = read.results[0]

    def _answer(self, directory: Path) -> ReadResult[Result]:
        read = self._running.get(directory)
        silent = time.monotonic() - read.began if read is not None else 0.0
        return ReadResult(self._results.get(directory), silent)


class _Read(Generic[Result]):
    def __init__(self, read: Callable[[Path], Result], directory: Path) -> None:
        self.results: list[Result] = []
        self.error: Exception | None = None
        self.began = time.monotonic()
        self.has_ended = threading.Event()
        self._read = read
        self._directory = directory

    def run(self) -> None:
        """Reads the directory."""
        self.began = time.monotonic()
        try:
            self.results.append(self._read(self._directory))
        except Exception as error:
            self.error = error
        self.has_ended.set()


def _run_all(reads: list[_Read[Result]], seconds: float) -> None:
    """Runs reads in few threads; in more while they are slow, each in its own once one hangs."""
    waiting = deque(reads)

    def work() -> None:
        while True:
            try:
                read = waiting.popleft()
            except IndexError:
                return
            read.run()

    def start(count: int) -> int:
        count = min(count, AT_ONCE - threads, len(waiting))
        for _ in range(count):
            _start(work)
        return count

    threads, ended, quiet_since = 0, 0, time.monotonic()
    threads += start(1)
    while waiting or not all(read.has_ended.is_set() for read in reads):
        began, used = time.monotonic(), time.process_time()
        _wait(reads, min(_SLOW_SECONDS, quiet_since + seconds - began))
        now = time.monotonic()
        count = sum(read.has_ended.is_set() for read in reads)
        if count > ended:
            ended, quiet_since = count, now
        if now - quiet_since >= seconds:
            _run_each(reads, waiting, seconds)
            return
        if time.process_time() - used < _WAITING * (now - began):
            threads += start(_FEW_THREADS)


def _run_each(reads: list[_Read[Result]], waiting: deque[_Read[Result]], seconds: float) -> None:
    while waiting:
        _start(waiting.popleft().run)
    _wait(reads, seconds)


def _start(work: Callable[[], None]) -> None:
    try:
        threading.Thread(target=work, daemon=True).start()
    except RuntimeError as error:
        raise TfckptError(
            "No further thread can be started to read directories. Raise the limits of memory "
            "(`ulimit -v`) and processes (`ulimit -u`)."
        ) from error


def _wait(reads: Iterable[_Read[Result]], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    for read in reads:
        if not read.has_ended.wait(max(0.0, deadline - time.monotonic())):
            return
