"""Whether files changed since they were read."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.storage.files import RACY_SECONDS

KEPT_SECONDS = 120.0
"""After this long, files are read again even if none seems to have changed."""

KEPT_SHARE = 0.1
"""Or after this part of the time for which none had changed, if that is longer."""

LOOK_SECONDS = 3.0
"""How long a look at files on a network disk serves; their clients keep what they know as long."""

Signature = tuple[tuple[int, int], ...]
"""Of each path, when it changed and its size; of a directory, its inode instead."""

ResultT = TypeVar("ResultT")


class FileLook:
    """What files are at one moment; each is asked about once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, int]] = {}

    def keep(self, earlier: FileLook, paths: Sequence[Path]) -> None:
        """Takes over what an earlier look was told about some paths, without asking again."""
        for name in map(os.fspath, paths):
            if name in earlier._known:
                self._known.setdefault(name, earlier._known[name])

    def signature(self, paths: Sequence[Path | str]) -> Signature:
        """Returns what differs once a file or the list of a directory changed."""
        known = self._known
        names = [os.fspath(path) for path in paths]
        return tuple([known[name] if name in known else self._ask(name) for name in names])

    def _ask(self, path: str) -> tuple[int, int]:
        try:
            stats = os.lstat(path)
        except OSError:
            found = 0, 0
        else:
            is_directory = stat.S_ISDIR(stats.st_mode)
            found = stats.st_mtime_ns, stats.st_ino if is_directory else stats.st_size
        self._known[path] = found
        return found


class RecentLook:
    """Looks at the files of a run that is read each second.

    On a network disk, a look serves for some seconds, unless the run directory, the event log or
    the commands changed. All that this library does to checkpoints is an event, and others change
    the directory.
    """

    def __init__(self, run: RunDirectory, *, on_network: bool) -> None:
        """Begins with none.

        Args:
            run: The run directory.
            on_network: Whether it is on a network disk.
        """
        self._signs = (run.root, run.event_log, run.inbox, run.active)
        self._is_network = on_network
        self._known: tuple[Signature, float, FileLook] | None = None

    def forget(self) -> None:
        """Has the next look ask for all files."""
        self._known = None

    def take(self, now: float) -> FileLook:
        """Returns what the files are; the same look as before while that serves.

        Args:
            now: Seconds since the epoch.
        """
        look = FileLook()
        if not self._is_network:
            return look
        signs = look.signature(self._signs)
        if self._known is not None:
            known, taken_at, earlier = self._known
            if signs == known and 0 <= now - taken_at < LOOK_SECONDS:
                return earlier
        self._known = signs, now, look
        return look


def signature_of(paths: Sequence[Path | str]) -> Signature:
    """Returns what differs once a file or the list of a directory changed."""
    return FileLook().signature(paths)


def files_of_checkpoints(run: RunDirectory) -> tuple[Path, ...]:
    """Returns the files and directories of a run that tell what checkpoints it has."""
    return (
        run.root,
        run.records_directory,
        run.pins_directory,
        run.head_file,
        run.state_file,
        run.saving_directory,
    )


def is_settled(signature: Signature, now: float) -> bool:
    """Whether a later change of files cannot leave their signature as it is."""
    return _unchanged_for(signature, now) > RACY_SECONDS


def _unchanged_for(signature: Signature, now: float) -> float:
    """Returns for how many seconds no file had changed."""
    return now - max([changed for changed, _ in signature], default=0) / 1e9


def may_keep(signature: Signature, read_at: float, now: float) -> bool:
    """Whether what was read of files counts, if their signature is still the same.

    Args:
        signature: That of the files when they were read.
        read_at: When that was, in seconds since the epoch.
        now: Seconds since the epoch.
    """
    unchanged_for = _unchanged_for(signature, read_at)
    kept_for = max(KEPT_SECONDS, KEPT_SHARE * unchanged_for)
    # Not negative: after the clock was set back, read everything again.
    return unchanged_for > RACY_SECONDS and 0 <= now - read_at < kept_for


class Kept(Generic[ResultT]):
    """What was read of some files; it is read again once one of them changed."""

    def __init__(self) -> None:
        self._known: tuple[Signature, float, ResultT] | None = None

    def get(self, signature: Signature, now: float, read: Callable[[], ResultT]) -> ResultT:
        """Returns what the files say.

        Args:
            signature: That of the files and directories that the read depends on.
            now: Seconds since the epoch.
            read: Reads them.
        """
        if self._known is not None:
            known, read_at, result = self._known
            if known == signature and may_keep(known, read_at, now):
                return result
        result = read()
        self._known = signature, now, result
        return result
