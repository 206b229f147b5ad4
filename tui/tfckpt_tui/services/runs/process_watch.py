"""The processes that train in a directory without this library: found once, then followed."""

from __future__ import annotations

import math
import os
import shlex
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tfckpt_trainer.errors import RefusedError, UsageError
from tfckpt_trainer.machine.permissions import name_of
from tfckpt_trainer.rundir.heartbeats.process_table import (
    process_user,
    runs_since,
    seconds_after_boot,
)
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.storage.owners import user_name

if TYPE_CHECKING:
    from tfckpt_tui.formats.process_columns import HostProcess
    from tfckpt_tui.services.runs.host_processes import CpuTime

LOOK_SECONDS = 2.0
"""Seconds between looks at all processes of this user, which take some milliseconds."""


def attached_processes(pid: int, now: float) -> tuple[HostProcess, ...]:
    """Returns a process and its workers: those of its tree that run Python.

    Args:
        pid: Its process ID.
        now: Seconds since the epoch.

    Raises:
        UsageError: There is no such process.
        RefusedError: It belongs to another user, who alone may see its files.
    """
    from tfckpt_tui.services.runs.host_processes import read_all, read_process

    try:
        first = read_process(pid, now)
    except PermissionError:
        raise _closed(pid) from None
    if first is None:
        raise UsageError(
            f"There is no process {pid} on this host. List yours with `ps -fu {os.geteuid()}`."
        )
    return _trainers([first, *read_all(_children(pid), now, {})]) or (first,)


class ProcessWatch:
    """Looks repeatedly at the processes that train in a directory without this library.

    They are the one that the user attached to with its workers, or those of this user that were
    seen writing there: between two saves, a trainer may have no file open.
    """

    def __init__(self, run: RunDirectory) -> None:
        """Creates a watch.

        Args:
            run: The directory; `run.process` is what the user attached to.
        """
        self._run = run
        pid = run.process
        self._attached = (pid, seconds_after_boot(pid)) if pid is not None else None
        self._looked_at = -math.inf
        self._seen: tuple[HostProcess, ...] = ()
        self._cpu: dict[int, CpuTime] = {}

    def look(self, now: float) -> tuple[HostProcess, ...]:
        """Returns the processes that live; what the last look found if that was just now.

        Args:
            now: Seconds since the epoch.
        """
        if not 0 <= now - self._looked_at < LOOK_SECONDS:
            self._looked_at = now
            # A directory that cannot be read is told elsewhere.
            with suppress(OSError):
                self._seen = self._find(now)
        return self._seen

    def _find(self, now: float) -> tuple[HostProcess, ...]:
        # Imported here, as elsewhere in this module: beside a trainer that lives, nobody looks.
        from tfckpt_trainer.catalog.scan.foreign_writers import (
            own_pids,
            training_processes,
            writing_processes,
        )
        from tfckpt_tui.services.runs.host_processes import read_all

        run = self._run
        pids = {one.pid for one in self._seen if runs_since(one.pid, one.after_boot)}
        attached = run.process if self._attached_lives() else None
        if attached is not None:
            pids.update((attached, *_children(attached)))
        else:
            # Whoever starts the script again has another process. In a run of this library, its
            # own processes and their children may have other files open.
            find = training_processes if run.was_trained_here else writing_processes
            pids.update(w.pid for w in find(run) if is_own_process(w.pid))
        found = tuple(read_all(sorted(pids - set(own_pids(run))), now, self._cpu))
        is_alone = attached is not None and not _trainers(found)
        return found[:1] if is_alone else _trainers(found)

    def _attached_lives(self) -> bool:
        return self._attached is not None and runs_since(*self._attached)


class UsedDirectories:
    """The directories that processes of this user use: one look at them for all runs of a list.

    Several threads may ask it.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """Makes it.

        Args:
            clock: Returns seconds; never goes back.
        """
        self._clock = clock
        self._lock = threading.Lock()
        self._looked_at = -math.inf
        self._found: frozenset[str] = frozenset()

    def holds(self, directory: Path) -> bool:
        """Whether a process had a file open in a directory, or below it, a moment ago.

        Args:
            directory: A directory; resolving its links may hang where its disk does.
        """
        with self._lock:
            if self._clock() - self._looked_at >= LOOK_SECONDS:
                self._found = frozenset(_used_directories())
                self._looked_at = self._clock()
            found = self._found
        return os.path.realpath(directory) in found


def _used_directories() -> set[str]:
    """Returns the directories of open files and those above, from the process table alone."""
    import psutil

    from tfckpt_trainer.machine.open_files import open_files

    found: set[str] = set()
    for pid in psutil.pids():
        # It has ended, or belongs to another user.
        with suppress(OSError, psutil.Error):
            if pid != os.getpid() and is_own_process(pid):
                for place in {os.path.dirname(opened.path) for opened in open_files(pid)}:
                    while place not in found:
                        found.add(place)
                        place = os.path.dirname(place)
    return found


def _closed(pid: int) -> RefusedError:
    user = process_user(pid)
    if user is None or user == os.geteuid():
        return RefusedError(f"The system does not show which files process {pid} has open.")
    as_user = shlex.quote(name_of(user) or f"#{user}")
    return RefusedError(
        f"Process {pid} belongs to {user_name(user)}; only that user may see which files it has "
        f"open. Attach as that user: `sudo -u {as_user} tfckpt-tui attach --pid {pid}`."
    )


def is_own_process(pid: int) -> bool:
    """Whether a process acts as this user."""
    return process_user(pid) == os.geteuid()


def _trainers(processes: Sequence[HostProcess]) -> tuple[HostProcess, ...]:
    """Returns the processes that may train: a shell that started one does not."""
    return tuple(one for one in processes if one.script or one.files)


def _children(pid: int) -> list[int]:
    import psutil

    with suppress(psutil.Error):
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    return []
