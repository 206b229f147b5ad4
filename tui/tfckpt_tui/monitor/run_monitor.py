"""One run watched: file events and the clock lead to a fresh look, and that to a snapshot."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from tfckpt_trainer.rundir.filesystems import is_network_file_system
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.file_events import DirectoryWatcher, EventLossDetector
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.monitor.snapshot_reader import SnapshotReader

POLL_SECONDS = 0.5
"""How often the directory is looked at without any event."""

QUIET_POLL_SECONDS = 2.0
QUIET_AFTER_SECONDS = 300.0
"""How often, where nothing happened for so long and file events come."""

DEBOUNCE_SECONDS = 0.1
"""How long events are gathered before a look: a save is dozens of them."""

LOOK_SHARE = 0.05
"""Looking takes at most this part of one core's time; slow looks become rarer."""
_STOP_SECONDS = 0.4


PATIENCE_SECONDS = 5.0
"""How long no look comes to its end before that is odd."""


class SnapshotSource(Protocol):
    """What the app needs of a monitor."""

    @property
    def patience(self) -> float:
        """Seconds without a snapshot after which something is wrong with the run directory."""

    def start(self, on_snapshot: Callable[[RunSnapshot], None]) -> None:
        """Begins to hand snapshots to `on_snapshot`, from whatever thread."""

    def refresh(self) -> None:
        """Asks for a fresh snapshot soon."""

    def stop(self) -> None:
        """Ends it, within half a second."""


class Monitor:
    """A thread that looks at a run directory and hands each snapshot to a callback.

    It never waits for the callback's owner, and ends within half a second of `stop`.
    """

    def __init__(
        self,
        run: RunDirectory,
        poll: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Makes a monitor that does nothing yet.

        Args:
            run: The run directory; it need not exist.
            poll: Seconds between looks; given, file events are not used at all.
            clock: Seconds since the epoch.
        """
        self._poll = poll if poll is not None else POLL_SECONDS
        self._clock = clock
        self._look = SnapshotReader(run)
        self._last = RunSnapshot(at=clock(), path=clean(str(run.root)))
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        directories = (
            run.root,
            run.status_directory,
            run.records_directory,
            run.pins_directory,
            run.active,
        )
        self._watch = DirectoryWatcher(directories, self._take_hint) if poll is None else None
        self._doubt = EventLossDetector()
        self._hinted = False
        self._root = run.root
        self._pause = self._poll

    @property
    def patience(self) -> float:
        """Seconds without a snapshot after which something is wrong with the run directory."""
        return PATIENCE_SECONDS + 2 * self._pause

    def start(self, on_snapshot: Callable[[RunSnapshot], None]) -> None:
        """Starts looking; `on_snapshot` is called in the monitor's thread."""
        self._thread = threading.Thread(
            target=self._work, args=(on_snapshot,), name="monitor", daemon=True
        )
        self._thread.start()

    def refresh(self) -> None:
        """Asks for a look at once, from any thread."""
        self._wake.set()

    def _take_hint(self) -> None:
        self._hinted = True
        self._wake.set()

    def stop(self) -> None:
        """Ends the thread; one that is stuck in a dead file system is left behind, a daemon."""
        self._stopped.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)

    def _work(self, on_snapshot: Callable[[RunSnapshot], None]) -> None:
        while not self._stopped.is_set():
            began = time.monotonic()
            if self._watch is not None:
                self._watch.refresh()
            snapshot = self._snapshot()
            if self._stopped.is_set():
                break
            on_snapshot(snapshot)
            spent = time.monotonic() - began
            # A directory so large or a file system so slow that looking costs: look less often.
            poll = QUIET_POLL_SECONDS if self._can_be_quiet(snapshot) else self._poll
            self._pause = max(poll, spent / LOOK_SHARE)
            if self._wake.wait(self._pause) and not self._stopped.is_set():
                self._wake.clear()
                # A burst takes at most half of a core, whatever a look costs.
                self._stopped.wait(max(DEBOUNCE_SECONDS, spent))
        if self._watch is not None:
            self._watch.stop()

    def _can_be_quiet(self, snapshot: RunSnapshot) -> bool:
        """Whether file events can be left to tell of news: long nothing happened, and they work."""
        long_ago = snapshot.at - snapshot.active_at > QUIET_AFTER_SECONDS
        return long_ago and self._watch is not None and not snapshot.problems

    def _snapshot(self) -> RunSnapshot:
        now = self._clock()
        hinted, self._hinted = self._hinted, False
        before = self._last
        try:
            self._last = self._with_doubts(self._look.read(now), before, hinted)
        except Exception as error:
            # A defect of ours must be seen, and must not leave a frozen picture behind.
            problem = clean(f"Looking failed ({type(error).__name__}: {error}); please report it.")
            return replace(self._last, at=now, problems=(*self._last.problems, problem))
        return self._last

    def _with_doubts(self, found: RunSnapshot, before: RunSnapshot, hinted: bool) -> RunSnapshot:
        """Adds to a snapshot why news may come late."""
        if self._watch is None:
            return found
        if found.checkpoints is not before.checkpoints:
            known = {checkpoint.name for checkpoint in before.checkpoints}
            is_new = bool(known) and any(c.name not in known for c in found.checkpoints)
            self._doubt.take(is_new=is_new, hinted=hinted)
        elif hinted:
            self._doubt.take(is_new=False, hinted=True)
        problem = self._watch.problem
        if not problem and self._doubt.is_sure:
            remote = is_network_file_system(self._root)
            where = "on this network file system" if remote else "here"
            problem = f"No file events come {where}; looking every {self._poll:g} s."
        return replace(found, problems=(*found.problems, problem)) if problem else found
