"""Whether files changed since they were read."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

RACY_SECONDS = 2.0
"""A directory changed this recently may change again without a new modification time."""

KEPT_SECONDS = 120.0
"""After this long, files are read again even if none seems to have changed."""

Signature = tuple[tuple[int, int], ...]
"""Of each path, when it changed and its size; of a directory, its inode instead."""

ResultT = TypeVar("ResultT")


def signature_of(paths: Sequence[Path | str]) -> Signature:
    """Returns what differs once a file or the list of a directory changed."""
    signature = []
    for path in paths:
        try:
            stats = os.lstat(path)
        except OSError:
            signature.append((0, 0))
            continue
        changed = stats.st_mtime_ns
        signature.append((changed, stats.st_ino if stat.S_ISDIR(stats.st_mode) else stats.st_size))
    return tuple(signature)


def is_settled(signature: Signature, now: float) -> bool:
    """Whether a later change of files cannot leave their signature as it is."""
    return now - max((changed for changed, _ in signature), default=0) / 1e9 > RACY_SECONDS


class Kept(Generic[ResultT]):
    """What was read of some files; it is read again once one of them changed."""

    def __init__(self, paths: Callable[[], Sequence[Path | str]], read: Callable[[float], ResultT]):
        """Makes it, without a read.

        Args:
            paths: Returns the files and directories that the read depends on.
            read: Reads them at a time, in seconds since the epoch.
        """
        self._paths = paths
        self._read = read
        self._known: tuple[Signature, float, ResultT] | None = None

    def get(self, now: float) -> ResultT:
        """Returns what the files say.

        Args:
            now: Seconds since the epoch.
        """
        signature = signature_of(self._paths())
        if self._known is not None:
            known, read_at, result = self._known
            # Not negative: after the clock was set back, read everything again.
            is_recent = 0 <= now - read_at < KEPT_SECONDS
            if known == signature and is_settled(known, read_at) and is_recent:
                return result
        result = self._read(now)
        self._known = signature, now, result
        return result
