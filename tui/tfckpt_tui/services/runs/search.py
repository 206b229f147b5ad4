"""Searches for run directories below a directory."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tfckpt_trainer.catalog.directory.other_formats import (
    BACKUP,
    has_checkpoint,
    has_keras_file,
    is_event_file,
)
from tfckpt_trainer.catalog.directory.saved_model import is_in_saved_model
from tfckpt_trainer.machine.permissions import CONTROL
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.words.counts import count

_DEPTH = 3

_PARTS = frozenset({"train", "validation", "eval"})
"""Directories into which Keras and Estimator write the event files of one run."""


@dataclass
class SearchProgress:
    """What a search has found so far, for threads that read while it goes on.

    Attributes:
        found: The run directories, in the order of the search.
        visited: Number of directories that were read.
        deeper: Directories below the last level that is searched.
        links: Symbolic links to directories.
        unreadable: Directories that cannot be read.
    """

    found: list[Path] = field(default_factory=list)
    visited: int = 0
    deeper: int = 0
    links: int = 0
    unreadable: int = 0

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
    """Searches for runs at and below a directory, in a thread: one may be on a disk that hangs."""

    def __init__(self, directory: Path) -> None:
        self._directory = Path(os.path.abspath(directory))
        self._thread: threading.Thread | None = None
        self._before = self._now = SearchProgress()

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
        if not self.is_running:
            self._before, self._now = self._now, SearchProgress()
            arguments = (self._directory, self._now, self._before.found)
            self._thread = threading.Thread(target=runs_below, args=arguments, daemon=True)
            self._thread.start()
            self._wait(self._thread, seconds, whole=whole)
        if not self.is_running:
            return list(self._now.found)
        return list(dict.fromkeys([*self._now.found, *self._before.found]))

    def _wait(self, thread: threading.Thread, seconds: float, *, whole: bool) -> None:
        visited = -1
        while thread.is_alive() and visited < self._now.visited:
            visited = self._now.visited if whole else self._now.visited + 1
            thread.join(seconds)


def runs_below(
    directory: Path, progress: SearchProgress | None = None, before: Iterable[Path] = ()
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
    """
    progress = progress or SearchProgress()
    paths = {os.fspath(path): path for path in before}
    whole: set[Path] = set()
    waiting = [(os.fspath(directory), 0, False)]
    for place, depth, is_below_run in waiting:
        progress.visited += 1
        if os.path.isdir(os.path.join(place, CONTROL)):
            progress.found.append(paths.get(place) or Path(place))
            continue
        try:
            files, inside = _listed(place, progress)
            root = paths.get(place) or Path(place)
            has_state_file = RunDirectory(root).state_file.is_file()
        except OSError as error:
            progress.unreadable += not isinstance(error, FileNotFoundError | NotADirectoryError)
            continue
        is_backup = is_below_run and BACKUP in files
        has_keras = has_keras_file(files) and not is_backup
        has_some = has_state_file or has_checkpoint(files) or has_keras
        if has_some and not is_in_saved_model(root):
            progress.found.append(root)
            is_below_run = True
        elif not is_below_run and any(map(is_event_file, files)):
            measured = root.parent if root.name in _PARTS and depth else root
            if measured not in whole:
                whole.add(measured)
                progress.found.append(measured)
        if depth < _DEPTH:
            waiting += [
                (os.path.join(place, name), depth + 1, is_below_run) for name in sorted(inside)
            ]
        else:
            progress.deeper += len(inside)
    return progress.found


def _listed(place: str, progress: SearchProgress) -> tuple[frozenset[str], list[str]]:
    """Returns the names of the files in a directory, and those of the directories to search."""
    files, directories = [], []
    with os.scandir(place) as entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                files.append(entry.name)
                progress.links += entry.is_symlink() and os.path.isdir(entry.path)
            elif not entry.name.startswith("."):
                directories.append(entry.name)
    return frozenset(files), directories
