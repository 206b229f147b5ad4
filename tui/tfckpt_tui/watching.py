"""File events as a hint to look again; what is shown comes from the look."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from watchdog.observers.api import BaseObserver

_OVERFLOW_LOGGER = "watchdog.observers.inotify_c"


class Watch:
    """Calls back when something happens in one of a few directories; recursion is not needed.

    Where events cannot be had (limits reached, a file system without them) it stays silent and
    says so in `problem`: the poll finds everything anyway.
    """

    def __init__(self, directories: Sequence[Path], hint: Callable[[], None]) -> None:
        self._directories = directories
        self._hint = hint
        self._observer: BaseObserver | None = None
        self._watched: frozenset[tuple[str, int]] = frozenset()
        self.problem = ""

    def refresh(self) -> None:
        """Watches the directories that are there now; called with each look, and cheap.

        An observer keeps watching an inode whose path was given to another directory, and
        learns nothing of a directory that came back: so identity is compared, not the path.
        """
        present = frozenset(_identified(self._directories))
        if present == self._watched:
            return
        self.stop()
        self._watched = present
        if present:
            self._start(sorted(path for path, _ in present))

    def stop(self) -> None:
        """Ends watching; it does not wait for the threads, which are daemons."""
        observer, self._observer = self._observer, None
        if observer is not None:
            observer.stop()
        logging.getLogger(_OVERFLOW_LOGGER).removeHandler(self._overflow)

    def _start(self, paths: Sequence[str]) -> None:
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
        except OSError as error:
            self.problem = f"no file events ({error.strerror}); looking again at intervals"
            return
        self.problem = ""
        self._observer = observer
        logging.getLogger(_OVERFLOW_LOGGER).addHandler(self._overflow)

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
