"""Appends to the metric series, and keeps it from growing without end."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from tfckpt_trainer.errors import describe_error
from tfckpt_trainer.machine.priority import lower_priority
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import SeriesPoint
from tfckpt_trainer.rundir.series_thinner import SERIES_LIMIT, SeriesThinner
from tfckpt_trainer.rundir.storage.documents import encode
from tfckpt_trainer.rundir.storage.files import append_line

RETRY_SECONDS = 3600.0
"""Time after a disk error until the series is thinned again: each attempt reads it."""

CLOSE_SECONDS = 5.0
"""How long the end of a process waits for a disk that does not answer."""

_PAUSE_SHARE = 9.0
"""Time that thinning pauses, by the time that it works: a tenth of a core stays busy."""


class SeriesWriter:
    """Appends points to the metric series of a run, and has it thinned in a thread of its own."""

    def __init__(
        self,
        run: RunDirectory,
        *,
        limit: int = SERIES_LIMIT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Creates a writer, which writes nothing before the first point.

        Args:
            run: The run directory.
            limit: The size in bytes above which the series is thinned.
            clock: Returns seconds, for when thinning is tried again.
        """
        self._run = run
        self._limit = limit
        self._clock = clock
        self._points: deque[SeriesPoint] = deque()
        self._writing = threading.Lock()
        self._closing = threading.Event()
        self._thinning: threading.Thread | None = None
        self._again_at = 0.0
        self._unwritten = self._not_thinned = ""

    @property
    def trouble(self) -> str:
        """What cannot be written; empty if there is no problem."""
        return self._unwritten or self._not_thinned

    def add(self, points: Iterable[SeriesPoint]) -> None:
        """Adds points, which the next flush writes."""
        self._points.extend(points)

    def flush(self, seconds: float = 0.0) -> None:
        """Writes what was added, unless the series is just being replaced.

        Args:
            seconds: How long to wait for that.
        """
        if not self._points or not self._writing.acquire(timeout=seconds):
            return
        try:
            self._append()
        finally:
            self._writing.release()

    def close(self) -> None:
        """Ends the thinning, and writes what was added."""
        self._closing.set()
        if self._thinning is not None:
            self._thinning.join(CLOSE_SECONDS)
        self.flush(CLOSE_SECONDS)

    def _append(self) -> None:
        lines = []
        while self._points:
            lines.append(encode(self._points.popleft()))
        try:
            size = append_line(self._run.series, b"\n".join(lines), durable=False)
            self._unwritten = ""
        except OSError as error:
            self._unwritten = f"chart data cannot be written: {describe_error(error)}"
        else:
            if size > self._limit:
                self._start_thinning()

    def _start_thinning(self) -> None:
        is_thinning = self._thinning is not None and self._thinning.is_alive()
        if not is_thinning and self._clock() >= self._again_at and not self._closing.is_set():
            self._thinning = threading.Thread(target=self._thin, name="tfckpt-series", daemon=True)
            self._thinning.start()

    def _thin(self) -> None:
        lower_priority()
        pause = _Pauses(self._closing)
        thinner = SeriesThinner(self._run, writing=self._writing, pause=pause, limit=self._limit)
        try:
            thinner.thin()
            self._not_thinned = ""
        except _EndedError:
            return
        except Exception as error:
            # The series stays as it was, whatever went wrong, and training goes on.
            self._again_at = self._clock() + RETRY_SECONDS
            self._not_thinned = f"chart data grows, and cannot be thinned: {describe_error(error)}"


class _EndedError(Exception):
    """The process ends."""


class _Pauses:
    """Waits after each block of work, so that the training loop gets the processor."""

    def __init__(self, ended: threading.Event) -> None:
        self._ended = ended
        self._worked_since = time.thread_time()

    def __call__(self) -> None:
        """Waits by the time that was worked since the last call.

        Raises:
            _EndedError: The process ends.
        """
        worked = time.thread_time() - self._worked_since
        if self._ended.wait(worked * _PAUSE_SHARE):
            raise _EndedError
        self._worked_since = time.thread_time()
