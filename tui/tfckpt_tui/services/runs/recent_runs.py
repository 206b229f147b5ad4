"""The list of recent runs."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.rundir.storage.documents import Document, load_if_exists, store
from tfckpt_trainer.rundir.storage.files import make_directory
from tfckpt_trainer.user_directories import state_directory

MOST_RECENT = 50
"""How many recent runs are kept."""

_FILE = "runs.json"


class RecentRuns(Document, frozen=True, kw_only=True):
    """`runs.json` in the state directory: the recent runs.

    Attributes:
        directories: The run directories, newest first.
        selected: The checkpoint under the cursor, by run directory, unless it was the newest.
    """

    directories: list[str] = []
    selected: dict[str, str] = {}


def remember_run(root: Path) -> None:
    """Puts a run first in the list of recent runs; write errors are ignored."""
    path = os.path.abspath(root)
    with suppress(OSError, TfckptError):
        runs = _recent()
        others = [other for other in runs.directories if other != path]
        _keep(RecentRuns(directories=[path, *others][:MOST_RECENT], selected=runs.selected))


def remember_selection(root: Path, name: str | None) -> None:
    """Stores the checkpoint under the cursor of a run; None for the newest."""
    path = os.path.abspath(root)
    with suppress(OSError, TfckptError):
        runs = _recent()
        selected = {
            p: checkpoint for p, checkpoint in runs.selected.items() if p in runs.directories
        }
        selected.pop(path, None)
        if name is not None:
            selected[path] = name
        if selected != runs.selected:
            _keep(RecentRuns(directories=runs.directories, selected=selected))


def last_selection(root: Path) -> str | None:
    """Returns the stored checkpoint under the cursor of a run; None for the newest."""
    with suppress(OSError, TfckptError):
        return _recent().selected.get(os.path.abspath(root))
    return None


def remembered_runs() -> list[Path]:
    """Returns the recent runs, newest first, without asking whether they still exist."""
    with suppress(OSError, TfckptError):
        return [Path(directory) for directory in _recent().directories]
    return []


def _recent() -> RecentRuns:
    directory = state_directory()
    if directory is None:
        return RecentRuns()
    return load_if_exists(directory / _FILE, RecentRuns) or RecentRuns()


def _keep(runs: RecentRuns) -> None:
    directory = state_directory()
    if directory is not None:
        make_directory(directory)
        store(directory / _FILE, runs, durable=False)
