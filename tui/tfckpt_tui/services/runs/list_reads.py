"""Reads the runs of a list repeatedly, at little cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from tfckpt_trainer.rundir.heartbeats.health import HAS_ENDED
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.services.runs.account import RunReading
from tfckpt_tui.services.runs.brief_reading import BriefReader
from tfckpt_tui.services.runs.timed_reads import ReadResult, TimedReads

ENDED_SECONDS = 10.0
"""After this long, a run that has ended is looked at again."""

LONG_ENDED_SECONDS = 30.0
"""The same of a run in which nothing happened for a day: a list may have thousands of them."""

_DAY = 86_400.0


class ListReads:
    """Reads runs in threads. Runs that have ended are read less often.

    Of the others, only what changed is read again.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """Makes it.

        Args:
            clock: Returns seconds; never goes back.
        """
        self._clock = clock
        self._reads = TimedReads(self._read)
        self._readers: dict[Path, BriefReader] = {}
        self._answers: dict[Path, ReadResult[RunReading | None]] = {}
        self._due_at: dict[Path, float] = {}

    def collect(
        self, roots: Iterable[Path], seconds: float
    ) -> dict[Path, ReadResult[RunReading | None]]:
        """Returns what was read of each run; None of a directory that does not exist.

        Args:
            roots: The run directories.
            seconds: How long to wait for directories that do not answer.
        """
        now, wanted = self._clock(), list(dict.fromkeys(roots))
        due = [root for root in wanted if now >= self._due_at.get(root, now)]
        for root, answer in self._reads.collect(due, seconds).items():
            self._answers[root] = answer
            self._due_at[root] = now + _pause_after(answer)
        for gone in self._answers.keys() - set(wanted):
            self._forget(gone)
        return {root: self._answers[root] for root in wanted}

    def _read(self, root: Path) -> RunReading | None:
        if not root.is_dir():
            self._readers.pop(root, None)
            return None
        reader = self._readers.get(root)
        if reader is None:
            reader = self._readers[root] = BriefReader(RunDirectory(root), with_glance=True)
        return reader.read(time.time())

    def _forget(self, root: Path) -> None:
        for known in (self._answers, self._due_at, self._readers):
            known.pop(root, None)


def _pause_after(answer: ReadResult[RunReading | None]) -> float:
    """Returns for how many seconds a run need not be looked at."""
    reading = answer.result
    if reading is None or answer.silent_seconds or reading.record is not None:
        return 0.0
    if reading.heartbeats.state not in HAS_ENDED:
        return 0.0
    return LONG_ENDED_SECONDS if time.time() - reading.active_at > _DAY else ENDED_SECONDS
