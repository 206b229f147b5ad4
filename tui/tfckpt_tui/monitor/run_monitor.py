"""Watches one run: file events and a timer trigger reads, and each read makes a snapshot."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from msgspec.structs import replace

from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.storage.filesystems import is_network_file_system
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.file_events import DirectoryWatcher, EventLossDetector
from tfckpt_tui.monitor.job_watch import JobWatch
from tfckpt_tui.monitor.snapshot import NewestRows, RunSnapshot
from tfckpt_tui.monitor.snapshot_reader import SnapshotReader
from tfckpt_tui.services.batch.job_reader import JobReader

POLL_SECONDS = 1.0
"""Seconds between reads without file events. Heartbeats are as far apart, and cause no events:
those of many workers would cause reads without end."""

COMMAND_POLL_SECONDS = 0.5
"""The same on a local disk while a command is under way."""

QUIET_POLL_SECONDS = 2.0
QUIET_AFTER_SECONDS = 300.0
"""Seconds between reads after `QUIET_AFTER_SECONDS` without activity, if file events arrive."""

DEBOUNCE_SECONDS = 0.1
"""Seconds for which events are collected before a read. One save causes dozens."""

READ_SHARE = 0.05
"""Maximum share of one core that reading takes. Slow reads become less frequent."""

FIRST_READ_SHARE = 0.5
"""The same until all records of very many checkpoints, and all of a long series, are read."""

TIMEOUT_SECONDS = 5.0
"""Seconds that a read may take before the run directory counts as not answering."""

SHOWN_SECONDS = 1.0
"""Seconds that the app has to show the newest checkpoints before all are read."""

_STOP_SECONDS = 0.4


def _ignore(newest: NewestRows) -> None:
    """Shows no rows before the first snapshot."""


class SnapshotSource(Protocol):
    """The part of the monitor that the app uses."""

    @property
    def snapshot_timeout(self) -> float:
        """Seconds without a snapshot after which the run directory counts as not answering."""

    def start(
        self,
        on_snapshot: Callable[[RunSnapshot], None],
        on_newest: Callable[[NewestRows], None],
        count: int,
    ) -> None:
        """Starts passing snapshots to `on_snapshot`, in any thread.

        Args:
            on_snapshot: Receives each snapshot.
            on_newest: Receives the newest checkpoints, before the first snapshot of many. The
                others are read after a `refresh`, which says that these are shown.
            count: How many checkpoints have room on the screen.
        """

    def refresh(self) -> None:
        """Requests a new snapshot."""

    def stop(self) -> None:
        """Stops, within half a second."""


class Monitor:
    """A thread that reads a run directory and passes each snapshot to a callback."""

    def __init__(
        self,
        run: RunDirectory,
        poll: float | None = None,
        clock: Callable[[], float] = time.time,
        jobs: JobReader | None = None,
    ) -> None:
        """Creates a monitor; `start` starts it.

        Args:
            run: The run directory, which need not exist.
            poll: Seconds between reads. If it is given, file events are not used.
            clock: Returns seconds since the epoch.
            jobs: Asks about the batch job of the run.
        """
        self._poll = POLL_SECONDS if poll is None else poll
        self._is_network = is_network_file_system(run.root)
        self._clock = clock
        self._reader = SnapshotReader(run, jobs=JobWatch(jobs or JobReader(), self.refresh))
        self._last = RunSnapshot(at=clock(), root=run.root)
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        directories = (
            run.root,
            run.records_directory,
            run.pins_directory,
            run.active,
        )
        self._watch = DirectoryWatcher(directories, self._on_event) if poll is None else None
        self._event_loss = EventLossDetector()
        self._had_event = False
        self._is_requested = False
        self._pause = self._poll

    @property
    def snapshot_timeout(self) -> float:
        """Seconds without a snapshot after which the run directory counts as not answering."""
        return TIMEOUT_SECONDS + 2 * self._pause

    def start(
        self,
        on_snapshot: Callable[[RunSnapshot], None],
        on_newest: Callable[[NewestRows], None] = _ignore,
        count: int = 0,
    ) -> None:
        """Starts the thread, which calls `on_newest` for some checkpoints, and `on_snapshot`."""
        self._thread = threading.Thread(
            target=self._work, args=(on_snapshot, on_newest, count), name="monitor", daemon=True
        )
        self._thread.start()

    def refresh(self) -> None:
        """Requests a read at once, from any thread."""
        self._is_requested = True
        self._wake.set()

    def _on_event(self) -> None:
        self._had_event = True
        self._wake.set()

    def stop(self) -> None:
        """Stops the thread. A thread blocked by the file system is left behind, as a daemon."""
        self._stopped.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)

    def _work(
        self,
        on_snapshot: Callable[[RunSnapshot], None],
        on_newest: Callable[[NewestRows], None],
        count: int,
    ) -> None:
        newest = self._newest(count) if count else None
        if newest is not None:
            on_newest(newest)
            # Reading all takes the processor from the app, which shows these first.
            self._wake.wait(SHOWN_SECONDS)
            self._wake.clear()
        while not self._stopped.is_set():
            began = time.monotonic()
            if self._watch is not None:
                self._watch.refresh()
            snapshot = self._snapshot()
            if self._stopped.is_set():
                break
            on_snapshot(snapshot)
            spent = time.monotonic() - began
            # Reading a large directory or a slow file system takes time: read less often.
            if self._reader.has_read_all:
                self._pause = max(self._poll_after(snapshot), spent * (1 / READ_SHARE - 1))
            else:
                self._pause = max(DEBOUNCE_SECONDS, spent * (1 / FIRST_READ_SHARE - 1))
            if self._wake.wait(self._pause) and not self._stopped.is_set():
                self._wake.clear()
                # During a burst of events, reading takes at most half of a core.
                self._stopped.wait(max(DEBOUNCE_SECONDS, spent))
        if self._watch is not None:
            self._watch.stop()

    def _newest(self, count: int) -> NewestRows | None:
        try:
            return self._reader.read_newest(count, self._clock())
        except Exception:
            # A bug must not stop the updates; the read of all checkpoints shows it.
            return None

    def _poll_after(self, snapshot: RunSnapshot) -> float:
        if self._can_be_quiet(snapshot):
            return QUIET_POLL_SECONDS
        is_chosen = self._watch is None or self._is_network
        is_followed = bool(snapshot.pending or snapshot.working)
        return COMMAND_POLL_SECONDS if is_followed and not is_chosen else self._poll

    def _can_be_quiet(self, snapshot: RunSnapshot) -> bool:
        """Whether file events suffice: they work, and nothing has happened for long."""
        long_ago = snapshot.at - snapshot.active_at > QUIET_AFTER_SECONDS
        return long_ago and self._watch is not None and not snapshot.problems

    def _snapshot(self) -> RunSnapshot:
        now = self._clock()
        had_event, self._had_event = self._had_event, False
        # Somebody who did something looks for it.
        anew, self._is_requested = self._is_requested, False
        before = self._last
        try:
            self._last = self._with_problems(self._reader.read(now, anew=anew), before, had_event)
        except Exception as error:
            # A bug must be visible, and must not stop the updates.
            problem = clean(
                f"Reading the run failed ({type(error).__name__}: {error}). Please report this bug."
            )
            return replace(self._last, at=now, problems=(*self._last.problems, problem))
        return self._last

    def _with_problems(
        self, snapshot: RunSnapshot, before: RunSnapshot, had_event: bool
    ) -> RunSnapshot:
        """Adds the reason why updates may be late, if there is one."""
        if self._watch is None:
            return snapshot
        if snapshot.checkpoints is not before.checkpoints:
            names = {checkpoint.name for checkpoint in before.checkpoints}
            is_new = bool(names) and any(c.name not in names for c in snapshot.checkpoints)
            self._event_loss.update(has_new=is_new, had_event=had_event)
        elif had_event:
            self._event_loss.update(has_new=False, had_event=True)
        problem = self._watch.problem
        if not problem and self._event_loss.detected:
            where = "on this network file system" if self._is_network else "here"
            problem = f"No file events arrive {where}; reading every {self._poll:g} s."
        return replace(snapshot, problems=(*snapshot.problems, problem)) if problem else snapshot
