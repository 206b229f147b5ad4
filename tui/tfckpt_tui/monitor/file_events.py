"""File events, which trigger a new read of the run directory."""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from watchdog.observers.api import BaseObserver

_SILENCE = logging.NullHandler()
"""Keeps the warnings of watchdog off the terminal. Events are lost only amid a burst of others, and
these cause a read of everything."""

RETRY_SECONDS = 30.0
"""Seconds after which watching is tried again if it failed."""

MISSED = 3
"""Number of new checkpoints without any event that shows that no events arrive."""

_LIMITS = {
    errno.EMFILE: "fs.inotify.max_user_instances",
    errno.ENOSPC: "fs.inotify.max_user_watches",
}


class DirectoryWatcher:
    """Calls a function when a file changes in one of several directories, without recursion.

    If watching fails (system limits, or a file system without events), `problem` says why.
    """

    def __init__(self, directories: Sequence[Path], on_event: Callable[[], None]) -> None:
        self._directories = directories
        self._on_event = on_event
        self._observer: BaseObserver | None = None
        self._watched: frozenset[tuple[str, int]] = frozenset()
        self._tried_at = 0.0
        self.problem = ""

    def refresh(self) -> None:
        """Watches the directories that exist now; called before each read.

        Compares inodes, not paths: a directory may be replaced, or deleted and made again.
        """
        present = frozenset(_identified(self._directories))
        failed_lately = time.monotonic() - self._tried_at < RETRY_SECONDS
        if present == self._watched and (not self.problem or failed_lately):
            return
        self.stop()
        self._watched, self._tried_at = present, time.monotonic()
        if present:
            self._start(sorted(path for path, _ in present))

    def stop(self) -> None:
        """Stops watching, without waiting for the daemon threads."""
        observer, self._observer = self._observer, None
        if observer is not None:
            observer.stop()

    def _start(self, paths: Sequence[str]) -> None:
        try:
            self._observer = self._observed(paths)
        except OSError as error:
            self.problem = _why_no_events(error)
            return
        self.problem = ""

    def _observed(self, paths: Sequence[str]) -> BaseObserver:
        # Imported here, so that the first frame of the app does not wait for it.
        from watchdog.events import (
            DirDeletedEvent,
            FileClosedEvent,
            FileDeletedEvent,
            FileSystemEvent,
            FileSystemEventHandler,
        )
        from watchdog.observers import Observer

        logging.getLogger("watchdog").addHandler(_SILENCE)
        on_event = self._on_event

        class Handler(FileSystemEventHandler):
            def on_any_event(self, event: FileSystemEvent) -> None:
                del event
                on_event()

        # No moves: the observer would delay every event by half a second to pair them. A file that
        # is renamed into place was closed in the same directory a moment before.
        wanted = [FileClosedEvent, FileDeletedEvent, DirDeletedEvent]
        observer = Observer()
        handler = Handler()
        try:
            for path in paths:
                observer.schedule(handler, path, recursive=False, event_filter=wanted)
            observer.start()
        except OSError:
            # Stop what was started before the failure, such as a directory that is gone.
            observer.stop()
            raise
        return observer


class EventLossDetector:
    """Detects that no events arrive, as on a network file system.

    A read may come before its event, so it counts several new checkpoints without any event.
    """

    def __init__(self) -> None:
        self._missed = 0

    def update(self, *, has_new: bool, had_event: bool) -> None:
        """Adds the result of a read.

        Args:
            has_new: Whether the read found a checkpoint that the previous one did not.
            had_event: Whether any event arrived since the previous read.
        """
        if had_event:
            self._missed = 0
        elif has_new:
            self._missed += 1

    @property
    def detected(self) -> bool:
        """Whether events do not arrive."""
        return self._missed >= MISSED


def _why_no_events(error: OSError) -> str:
    limit = _LIMITS.get(error.errno or 0)
    why = f"the limit {limit} is reached; raise it with `sysctl`" if limit else error.strerror
    return f"No file events ({why}); reading at intervals."


def _identified(directories: Sequence[Path]) -> list[tuple[str, int]]:
    identities = []
    for directory in directories:
        # The real path: a watch on a symbolic link reports nothing.
        path = os.path.realpath(directory)
        try:
            identities.append((path, os.stat(path).st_ino))
        except OSError:
            continue
    return identities
