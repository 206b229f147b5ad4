"""Searches for run directories below a directory."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tfckpt_trainer.catalog.directory.other_formats import (
    BACKUP,
    has_checkpoint,
    has_keras_file,
    is_event_file,
)
from tfckpt_trainer.catalog.directory.saved_model import is_in_saved_model
from tfckpt_trainer.machine.permissions import CONTROL
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.storage.files import RACY_SECONDS
from tfckpt_trainer.rundir.storage.filesystems import is_network_file_system
from tfckpt_trainer.words.counts import count

_DEPTH = 3

_PARTS = frozenset({"train", "validation", "eval"})
"""Directories into which Keras and Estimator write the event files of one run."""

WHOLE_SECONDS = 600.0
"""After this long, a search on a network disk looks into all directories again."""

OPERATIONS = 10.0
"""Directories a second that searches on a network disk ask for, over time."""


@dataclass
class SearchProgress:
    """What a search has found so far, for threads that read while it goes on.

    Attributes:
        found: The run directories, in the order of the search.
        visited: Number of directories that were read.
        deeper: Directories below the last level that is searched.
        links: Symbolic links to directories.
        unreadable: Directories that cannot be read.
        asked: Number of directories that the disk was asked for.
    """

    found: list[Path] = field(default_factory=list)
    visited: int = 0
    deeper: int = 0
    links: int = 0
    unreadable: int = 0
    asked: int = 0

    @property
    def left_out(self) -> str:
        """What was not searched, in words; empty if all was."""
        named = (
            (self.unreadable, "unreadable directory", "unreadable directories"),
            (self.links, "symbolic link", ""),
            (self.deeper, "directory", "directories"),
        )
        parts = [count(number, *words) for number, *words in named if number]
        deeper = f" deeper than {_DEPTH} levels" if self.deeper else ""
        return f"{', '.join(parts)}{deeper}"


class RunSearch:
    """Searches for runs at and below a directory, in a thread: one may be on a disk that hangs.

    On a network disk, a later search looks only into directories that changed. Runs of this library
    that were found are not asked for: who reads them sees whether they are gone.
    """

    def __init__(
        self,
        directory: Path,
        before: Iterable[Path] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Makes a search.

        Args:
            directory: Where to search.
            before: Runs of an earlier search.
            clock: Returns seconds; never goes back.
        """
        self._directory = Path(os.path.abspath(directory))
        self._thread: threading.Thread | None = None
        self._before, self._now = SearchProgress(), SearchProgress(list(before))
        self._clock = clock
        self._is_network = is_network_file_system(self._directory)
        self._known: SearchMemory = {}
        self._whole_at = self._due_at = float("-inf")

    @property
    def is_running(self) -> bool:
        """Whether a search has not come to its end."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def left_out(self) -> str:
        """What the last search that came to its end did not search, in words; empty for nothing."""
        return (self._before if self.is_running else self._now).left_out

    def find(self, seconds: float, *, whole: bool = False) -> list[Path]:
        """Returns the runs that are found within `seconds`, and those of an earlier search.

        A search that has not come to its end goes on, and is not waited for again.

        Args:
            seconds: How long to wait.
            whole: Whether to wait for the end, as long as a directory is read in each `seconds`.
        """
        if not self.is_running and self._clock() >= self._due_at:
            self._before, self._now = self._now, SearchProgress()
            self._thread = threading.Thread(target=self._search, args=(self._now,), daemon=True)
            self._thread.start()
            self._wait(self._thread, seconds, whole=whole)
        if not self.is_running:
            return list(self._now.found)
        return list(dict.fromkeys([*self._now.found, *self._before.found]))

    def _search(self, progress: SearchProgress) -> None:
        began = self._clock()
        if began >= self._whole_at + WHOLE_SECONDS:
            self._whole_at, self._known = began, {}
        known = self._known if self._is_network else None
        is_later = bool(known)
        runs_below(self._directory, progress, self._before.found, known)
        if is_later:
            self._due_at = began + progress.asked / OPERATIONS

    def _wait(self, thread: threading.Thread, seconds: float, *, whole: bool) -> None:
        visited = -1
        while thread.is_alive() and visited < self._now.visited:
            visited = self._now.visited if whole else self._now.visited + 1
            thread.join(seconds)


class _Seen(NamedTuple):
    """What a directory is, as far as its entries tell.

    Attributes:
        files: The names of its files.
        inside: The names of the directories in it that are searched.
        links: Number of symbolic links to directories.
        is_ours: Whether it is a run of this library; then nothing else is known.
        has_state_file: Whether it has TensorFlow's state file.
        identity: What differs once its entries change; None if they may be changing.
    """

    files: frozenset[str] = frozenset()
    inside: tuple[str, ...] = ()
    links: int = 0
    is_ours: bool = False
    has_state_file: bool = False
    identity: tuple[int, int, int] | None = None


SearchMemory = dict[str, _Seen]
"""What a search saw, by path."""


def runs_below(
    directory: Path,
    progress: SearchProgress | None = None,
    before: Iterable[Path] = (),
    known: SearchMemory | None = None,
) -> list[Path]:
    """Returns the run directories at and below `directory`, by name.

    These have files of this library, TensorFlow's state file, a checkpoint, or a `.keras` or
    `.weights.h5` file; but below another run, not what `BackupAndRestore` saves. Directories inside
    a run of this library, those whose names begin with a dot and the variables of a SavedModel are
    skipped. Other directories with event files are runs too, unless they are below a run, whose
    metrics they have.

    Args:
        directory: Where to search.
        progress: Takes each run as soon as it is found.
        before: The runs of an earlier search. Their paths are used again: of thousands, to make
            them takes longer than to search.
        known: What an earlier search saw, if calls cost much; takes what this one sees.
    """
    progress = progress or SearchProgress()
    paths = {os.fspath(path): path for path in before}
    whole: set[Path] = set()
    waiting = [(os.fspath(directory), 0, False)]
    for place, depth, is_below_run in waiting:
        progress.visited += 1
        root = paths.get(place) or Path(place)
        try:
            seen = _look(root, place, progress, known)
        except OSError as error:
            progress.unreadable += not isinstance(error, FileNotFoundError | NotADirectoryError)
            continue
        if seen.is_ours:
            progress.found.append(root)
            continue
        progress.links += seen.links
        is_backup = is_below_run and BACKUP in seen.files
        has_keras = has_keras_file(seen.files) and not is_backup
        has_some = seen.has_state_file or has_checkpoint(seen.files) or has_keras
        if has_some and not is_in_saved_model(root):
            progress.found.append(root)
            is_below_run = True
        elif not is_below_run and any(map(is_event_file, seen.files)):
            measured = root.parent if root.name in _PARTS and depth else root
            if measured not in whole:
                whole.add(measured)
                progress.found.append(measured)
        if depth < _DEPTH:
            waiting += [
                (os.path.join(place, name), depth + 1, is_below_run) for name in seen.inside
            ]
        else:
            progress.deeper += len(seen.inside)
    return progress.found


def _look(root: Path, place: str, progress: SearchProgress, known: SearchMemory | None) -> _Seen:
    """Returns what a directory is; asks the disk only if it may have changed."""
    before = known.get(place) if known is not None else None
    if before is not None and before.is_ours:
        return before
    progress.asked += 1
    identity = None
    if known is not None:
        identity = _identity(place)
        if before is not None and identity is not None and before.identity == identity:
            return before
    if os.path.isdir(os.path.join(place, CONTROL)):
        seen = _Seen(is_ours=True)
    else:
        files, inside, links = _listed(place)
        has_state_file = RunDirectory(root).state_file.is_file()
        seen = _Seen(files, inside, links, False, has_state_file, identity)
    if known is not None:
        known[place] = seen
    return seen


def _identity(place: str) -> tuple[int, int, int] | None:
    """Returns what differs once the entries of a directory change; None if they may be changing."""
    stats = os.stat(place)
    is_settled = time.time() - stats.st_mtime > RACY_SECONDS
    return (stats.st_ino, stats.st_mtime_ns, stats.st_ctime_ns) if is_settled else None


def _listed(place: str) -> tuple[frozenset[str], tuple[str, ...], int]:
    """Returns names in a directory: of files, and of directories to search; and counts links."""
    files, directories, links = [], [], 0
    with os.scandir(place) as entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                files.append(entry.name)
                links += entry.is_symlink() and os.path.isdir(entry.path)
            elif not entry.name.startswith("."):
                directories.append(entry.name)
    return frozenset(files), tuple(sorted(directories)), links
