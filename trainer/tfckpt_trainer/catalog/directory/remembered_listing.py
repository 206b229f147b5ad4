"""Remembers in the user's cache which checkpoints of a directory are the newest.

It holds names alone, and counts only while the directory is the same and no entry of it was added,
removed or renamed. So a save, a prune, a copy, another directory of the same name and a restore
from backup end it. What it names is read from the directory, as if the names were listed there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec

from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.machine.user_directories import cached_path
from tfckpt_trainer.rundir.paths import is_plain_name
from tfckpt_trainer.rundir.storage.documents import SealedDocument, load, store
from tfckpt_trainer.rundir.storage.files import RACY_SECONDS, make_directory

NAMES_REMEMBERED = 256
"""More rows than a terminal has."""

DirectoryIdentity = tuple[int, int, int, int]
"""Device, inode, and the times of the last change of entries and of attributes in nanoseconds."""


class RememberedListing(SealedDocument, frozen=True, kw_only=True):
    """`newest.json` in the cache of a directory.

    Attributes:
        directory: The identity of the directory when it was scanned.
        names: Its newest checkpoints, newest first.
    """

    directory: DirectoryIdentity
    names: Annotated[list[str], msgspec.Meta(max_length=NAMES_REMEMBERED)]


def directory_identity(root: Path) -> DirectoryIdentity:
    """Returns what differs for another directory, and after a change of the entries of this one.

    A copy has another inode. A restore from backup can set the first time, and not the second.

    Raises:
        OSError: There is no such directory, or it cannot be asked.
    """
    seen = os.stat(root)
    return seen.st_dev, seen.st_ino, seen.st_mtime_ns, seen.st_ctime_ns


def recall_newest(root: Path) -> Sequence[str]:
    """Returns the newest checkpoints of a directory, newest first; none if it may have changed."""
    path = _path_of(root)
    if path is None:
        return ()
    with suppress(OSError, TfckptError):
        known = load(path, RememberedListing)
        if known.directory == directory_identity(root) and all(map(is_plain_name, known.names)):
            return known.names
    return ()


def is_settled_directory(identity: DirectoryIdentity, now: float) -> bool:
    """Whether a later change of a directory cannot leave its identity as it is.

    Args:
        identity: The identity of the directory.
        now: Seconds since the epoch, when it was asked for.
    """
    return now - max(identity[2:]) / 1e9 > RACY_SECONDS


def remember_newest(root: Path, identity: DirectoryIdentity, names: Sequence[str]) -> None:
    """Stores the newest checkpoints of a directory; write errors are ignored.

    Args:
        root: The directory.
        identity: Its identity before the scan, when it was settled.
        names: Its checkpoints, newest first.
    """
    path = _path_of(root)
    if path is None:
        return
    listing = RememberedListing(directory=identity, names=list(names[:NAMES_REMEMBERED]))
    with suppress(OSError, TfckptError):
        make_directory(path.parent)
        # Not flushed: after a power loss the directory is listed again.
        store(path, listing, durable=False)


def _path_of(root: Path) -> Path | None:
    place = cached_path("listings", root)
    return place / "newest.json" if place is not None else None
