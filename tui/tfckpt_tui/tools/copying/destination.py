"""What a destination of a copy can do, on this machine or on another host."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Protocol

from tfckpt_trainer.errors import RefusedError, TfckptError
from tfckpt_trainer.words.advice import Advice
from tfckpt_tui.tools.copying.source import SourceFile

NOT_A_FILE = -1
"""The size of anything that is not a regular file."""

Placed = tuple[SourceFile, str]
"""A file and its path at the destination."""

OnSent = Callable[[int], None]
"""Called with the number of bytes of the files that are there so far."""


class CutCopyError(TfckptError):
    """A copy ended before all was copied; the same command goes on where it ended.

    The message has no full stop: the front end adds how to go on.
    """


@dataclass(frozen=True)
class DestinationSurvey:
    """What a destination holds before a copy.

    Attributes:
        free_bytes: Free space.
        sizes: Size of each existing path that was asked for; `NOT_A_FILE` for anything else.
        others: Further files of the checkpoints, such as data files of another save.
    """

    free_bytes: int
    sizes: Mapping[str, int] = field(default_factory=dict)
    others: Sequence[str] = ()


def emptied_by(paths: Sequence[str], staging: str) -> list[str]:
    """Returns the directories of files that were moved or deleted, deepest first.

    They are removed if they are empty: what others put there stays.
    """
    places = {str(parent) for path in paths for parent in PurePosixPath(path).parents}
    top = str(PurePosixPath(staging).parent)
    return sorted((place for place in places if place.startswith(top)), key=len, reverse=True)


class Destination(Protocol):
    """A directory that checkpoints are copied to; all paths are relative to it."""

    @property
    def label(self) -> str:
        """How messages name it."""

    @property
    def transport(self) -> str:
        """How data gets there: `file` or `rsync`."""

    def open(self, *, dry_run: bool) -> None:
        """Locks it unless nothing may change. Creates nothing, so that a refusal leaves nothing.

        Raises:
            RefusedError: A run trains there, or another copy is in progress.
            TfckptError: It cannot be reached.
        """

    def create(self) -> None:
        """Creates and locks it, if that is left to do. Everything that is refused was refused.

        Raises:
            RefusedError: Another copy is in progress.
            TfckptError: It cannot be written to.
        """

    def close(self) -> None:
        """Unlocks it."""

    def run_id(self) -> str:
        """Returns the ID of the run that was trained there; empty if there is none."""

    def survey(self, names: Sequence[str], paths: Sequence[str]) -> DestinationSurvey:
        """Returns what it holds.

        Args:
            names: Checkpoints.
            paths: The paths to look at.
        """

    def differing(self, files: Sequence[Placed]) -> list[SourceFile]:
        """Reads files back from its disk, and returns those that are not equal there."""

    def send(self, files: Sequence[Placed], on_sent: OnSent) -> None:
        """Writes files to these paths. Where a part of one is, it goes on from there.

        Raises:
            CutCopyError: The disk is full or the connection was lost; what arrived stays.
        """

    def discard(self, paths: Sequence[str], staging: str) -> None:
        """Deletes files below `staging`, and the directories that are empty then."""

    def remove(self, paths: Sequence[str]) -> None:
        """Deletes files."""

    def commit(self, moves: Sequence[tuple[str, str, float]], staging: str) -> None:
        """Flushes and renames files; the last one after all others are flushed under their names.

        Args:
            moves: Old path, new path and modification time of each. No file is replaced.
            staging: The directory of the old paths. It is removed if it is empty then.
        """

    def read(self, path: str) -> bytes | None:
        """Returns the content of a small file; None if there is none."""

    def write(self, path: str, data: bytes) -> None:
        """Replaces a small file atomically, and flushes it."""


def refuse_sticky(label: str, directory: str) -> RefusedError:
    """Returns the error for a directory whose state file this user may not replace.

    Args:
        label: The destination, as messages name it.
        directory: Its path.
    """
    return RefusedError(
        f"{label}/checkpoint cannot be replaced by this user: {directory} has the sticky bit. "
        "Nothing was copied.",
        Advice.of(
            "Run this as its owner, or share the directory with `chmod -t {root}`.",
            root=shlex.quote(directory),
        ),
    )


def refuse_live(label: str, sign: str) -> RefusedError:
    """Returns the error for a destination where a run trains."""
    return RefusedError(
        f"A run trains in {label}: {sign}. Stop it first, or copy to another directory."
    )


def in_use(label: str) -> RefusedError:
    """Returns the error for a destination that another process has locked."""
    return RefusedError(
        f"A trainer, a prune or another copy writes to {label}. Wait until it has ended, or copy "
        "to another directory."
    )
