"""File events as a hint to look again; what is shown comes from the look."""

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

_OVERFLOW_LOGGER = "watchdog.observers.inotify_c"

RETRY_SECONDS = 30.0
"""After this time events are asked for again where they could not be had."""

MISSED = 3
"""So many new checkpoints without any event before them say that no events come."""

_LIMITS = {
    errno.EMFILE: "fs.inotify.max_user_instances",
    errno.ENOSPC: "fs.inotify.max_user_watches",
}


class DirectoryWatcher:
    """Calls back when something happens in one of a few directories; recursion is not needed.

    Where events cannot be had (limits reached, a file system without them) it stays silent and
    says so in `problem`: the poll finds everything anyway.
    """

    def __init__(self, directories: Sequence[Path], hint: Callable[[], None]) -> None:
        self._directories = directories
        self._hint = hint
        self._observer: BaseObserver | None = None
        self._watched: frozenset[tuple[str, int]] = frozenset()
        self._tried_at = 0.0
        self.problem = ""

    def refresh(self) -> None:
        """Watches the directories that are there now; called with each look, and cheap.

        An observer keeps watching an inode whose path was given to another directory, and
        learns nothing of a directory that came back: so identity is compared, not the path.
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
        """Ends watching; it does not wait for the threads, which are daemons."""
        observer, self._observer = self._observer, None
        if observer is not None:
            observer.stop()
        logging.getLogger(_OVERFLOW_LOGGER).removeHandler(self._overflow)

    def _start(self, paths: Sequence[str]) -> None:
        try:
            self._observer = self._observed(paths)
        except OSError as error:
            self.problem = _why_no_events(error)
            return
        self.problem = ""
        logging.getLogger(_OVERFLOW_LOGGER).addHandler(self._overflow)

    def _observed(self, paths: Sequence[str]) -> BaseObserver:
        # Imported here: the first frame need not wait for it.
        from watchdog.events import (
            DirDeletedEvent,
            FileClosedEvent,
            FileDeletedEvent,
            FileSystemEvent,
            FileSystemEventHandler,
        )
        from watchdog.observers import Observer

        hint = self._hint

        class Handler(FileSystemEventHandler):
            def on_any_event(self, event: FileSystemEvent) -> None:
                del event
                hint()

        # No moves: the observer would hold every event back for half a second to pair them.
        # Whatever is renamed into place was written and closed next to it a moment before.
        wanted = [FileClosedEvent, FileDeletedEvent, DirDeletedEvent]
        observer = Observer()
        handler = Handler()
        try:
            for path in paths:
                observer.schedule(handler, path, recursive=False, event_filter=wanted)
            observer.start()
        except OSError:
            # What was started before the failure must not stay behind.
            observer.unschedule_all()
            raise
        return observer

    @property
    def _overflow(self) -> logging.Handler:
        if not hasattr(self, "_overflow_handler"):
            self._overflow_handler = _OverflowHandler(self._hint)
        return self._overflow_handler


class _OverflowHandler(logging.Handler):
    """The library tells of lost events in its log only."""

    def __init__(self, hint: Callable[[], None]) -> None:
        super().__init__()
        self._hint = hint

    def emit(self, record: logging.LogRecord) -> None:
        """Takes a lost event for a hint like any other."""
        del record
        self._hint()


class EventLossDetector:
    """Finds out that no events come, where nothing else says so: on a network file system.

    The library reports no renames, and a look may come before its event: so only checkpoints
    that appear one after the other, with no event at all meanwhile, count.
    """

    def __init__(self) -> None:
        self._missed = 0

    def take(self, *, is_new: bool, hinted: bool) -> None:
        """Takes what a look found.

        Args:
            is_new: Whether there is a checkpoint that the look before did not find.
            hinted: Whether any event came since the look before.
        """
        if hinted:
            self._missed = 0
        elif is_new:
            self._missed += 1

    @property
    def is_sure(self) -> bool:
        """Whether events do not come."""
        return self._missed >= MISSED


def _why_no_events(error: OSError) -> str:
    limit = _LIMITS.get(error.errno or 0)
    why = f"the limit {limit} is reached; raise it with sysctl" if limit else error.strerror
    return f"No file events ({why}); looking at intervals."


def _identified(directories: Sequence[Path]) -> list[tuple[str, int]]:
    found = []
    for directory in directories:
        # The real path: a watch on a symbolic link would never report anything.
        path = os.path.realpath(directory)
        try:
            found.append((path, os.stat(path).st_ino))
        except OSError:
            continue
    return found
