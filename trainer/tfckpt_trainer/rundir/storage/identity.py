"""The identity of a file: what differs once it was modified or replaced."""

from __future__ import annotations

import os
from pathlib import Path

Identity = tuple[int, int, int]
"""Size, modification time in nanoseconds, inode."""


def identity_in(facts: os.stat_result) -> Identity:
    """Returns the identity of the file that `facts` are about."""
    return facts.st_size, facts.st_mtime_ns, facts.st_ino


def identity_of(path: Path | str) -> Identity | None:
    """Returns the identity of `path`, without following a link; None if it is missing.

    Raises:
        OSError: It cannot be looked at.
    """
    try:
        return identity_in(os.lstat(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
