"""Waits for changes of one directory with few calls: by file events or by its modification time."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from tfckpt_trainer.rundir.storage.files import RACY_SECONDS
from tfckpt_trainer.rundir.storage.filesystems import is_network_file_system
from tfckpt_trainer.rundir.storage.server_facts import modification_time

NETWORK_SECONDS = 1.0
"""Interval at which a directory on a network disk is looked at."""

IDLE_SECONDS = 6.0
"""The same once it has not changed for `SETTLED_SECONDS`."""

SETTLED_SECONDS = 30.0

LOCAL_SECONDS = 0.025
"""Interval at which a directory on a local disk is looked at if there are no file events."""


class DirectoryChanges(Protocol):
    """Waits for changes of one directory."""

    def wait(self, seconds: float) -> bool:
        """Waits until the directory may have changed, for so many seconds at most.

        Returns:
            Whether it may have changed.

        Raises:
            OSError: The directory cannot be read.
        """

    def stop(self) -> None:
        """Ends all waits, now and later. May be called in any thread."""


def watch_directory(directory: Path) -> DirectoryChanges:
    """Watches `directory`, which exists, in the way that suits its file system."""
    if is_network_file_system(directory):
        return PolledDirectory(directory, NETWORK_SECONDS)
    try:
        return DirectoryEvents(directory)
    except OSError:
        # The system's limit of file events is reached, or it has none.
        return PolledDirectory(directory, LOCAL_SECONDS)


class PolledDirectory:
    """Asks for the modification time of a directory at an interval: one call each time.

    An interval of `NETWORK_SECONDS` grows to `IDLE_SECONDS` while nothing changes.
    """

    def __init__(self, directory: Path, interval: float) -> None:
        self._directory = directory
        self._interval = interval
        self._descriptor: int | None = None
        self._stopping = threading.Event()
        self._seen: int | None = None
        self._changed_at = time.monotonic()
        self._asked_at = float("-inf")

    def wait(self, seconds: float) -> bool:
        """Waits for a change; see `DirectoryChanges`."""
        deadline = time.monotonic() + seconds
        while not self._stopping.wait(self._pause):
            if self._ask():
                return True
            if time.monotonic() >= deadline:
                # The directory may have been replaced.
                self._close()
                break
        return False

    def has_changed(self, pause: float = 0.0) -> bool:
        """Asks now if that is due; returns whether the directory may have changed.

        Args:
            pause: Seconds since the last question that it takes at least.

        Raises:
            OSError: The directory cannot be read.
        """
        return time.monotonic() - self._asked_at >= max(pause, self._pause) and self._ask()

    @property
    def _pause(self) -> float:
        is_settled = time.monotonic() - self._changed_at >= SETTLED_SECONDS
        return IDLE_SECONDS if is_settled and self._interval == NETWORK_SECONDS else self._interval

    def _ask(self) -> bool:
        self._asked_at = time.monotonic()
        changed = self._modified_at()
        if changed != self._seen:
            self._seen, self._changed_at = changed, self._asked_at
        return self._asked_at - self._changed_at < RACY_SECONDS

    def stop(self) -> None:
        """Ends all waits."""
        self._stopping.set()

    def _modified_at(self) -> int:
        # A path would be looked up part by part.
        if self._descriptor is None:
            self._descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            return modification_time(self._descriptor)
        except OSError:
            self._close()
            raise

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with suppress(OSError):
                os.close(descriptor)

    def __del__(self) -> None:
        self._close()


class DirectoryEvents:
    """Waits for file events of a directory (`inotify`), which takes no calls while it is idle."""

    def __init__(self, directory: Path) -> None:
        """Watches `directory`.

        Raises:
            OSError: The system has no file events, or its limit is reached.
        """
        self._directory = directory
        self._descriptors: list[int] = []
        self._libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(self._libc, "inotify_init1"):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        self._events = _checked(self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
        self._descriptors.append(self._events)
        self._woken, self._wake = os.pipe()
        self._descriptors += [self._woken, self._wake]
        self._ready = select.poll()
        self._ready.register(self._events, select.POLLIN)
        self._ready.register(self._woken, select.POLLIN)
        self._watch()

    def wait(self, seconds: float) -> bool:
        """Waits for a change; see `DirectoryChanges`."""
        if self._ready.poll(1000 * seconds):
            with suppress(BlockingIOError):
                os.read(self._events, 1 << 16)
            return True
        # The directory may have been replaced. The same one is not watched twice.
        self._watch()
        return False

    def stop(self) -> None:
        """Ends all waits."""
        with suppress(OSError):
            os.write(self._wake, b"\0")

    def __del__(self) -> None:
        # Once only: afterwards, other files have these numbers.
        for descriptor in self._descriptors:
            with suppress(OSError):
                os.close(descriptor)

    def _watch(self) -> None:
        path = os.fsencode(self._directory)
        _checked(self._libc.inotify_add_watch(self._events, path, _CREATED | _ONLY_DIRECTORY))


# Of <sys/inotify.h>: closed after writing, moved here.
_CREATED = 0x8 | 0x80
_ONLY_DIRECTORY = 0x1000000


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
