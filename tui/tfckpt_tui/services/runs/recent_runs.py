"""The list of recent runs, and what the user looked at last in each."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.machine.user_directories import state_directory
from tfckpt_trainer.rundir.storage.documents import Document, load_if_exists, store
from tfckpt_trainer.rundir.storage.files import make_directory
from tfckpt_tui.formats.sort_order import ListOrder

MOST_RECENT = 50
"""How many recent runs are kept."""

_FILE = "runs.json"

KeptT = TypeVar("KeptT")


class LastLook(msgspec.Struct, frozen=True):
    """What the user looked at last in a run.

    Attributes:
        listing: How the checkpoints were listed.
        charts: How the charts were looked at, as `charting.choices` keeps it; empty by default.
    """

    listing: ListOrder = ListOrder()
    charts: Mapping[str, Any] = {}


class RecentRuns(Document, frozen=True, kw_only=True):
    """`runs.json` in the state directory: the recent runs.

    Attributes:
        directories: The run directories, newest first.
        listings: How checkpoints were listed, by run directory.
        charts: How charts were looked at, by run directory.
    """

    directories: list[str] = []
    listings: dict[str, ListOrder] = {}
    charts: dict[str, dict[str, Any]] = {}


def remember_run(root: Path) -> None:
    """Puts a run first in the list of recent runs; write errors are ignored."""
    path = os.path.abspath(root)
    with suppress(OSError, TfckptError):
        runs = _recent()
        directories = [path, *(other for other in runs.directories if other != path)]
        _keep(msgspec.structs.replace(runs, directories=directories[:MOST_RECENT]))


def remember_look(root: Path, look: LastLook) -> None:
    """Stores what the user looked at last in a run; write errors are ignored."""
    path = os.path.abspath(root)
    with suppress(OSError, TfckptError):
        runs = _recent()
        listings = _others(runs.listings, path, runs.directories)
        if look.listing != ListOrder():
            listings[path] = look.listing
        charts = _others(runs.charts, path, runs.directories)
        if look.charts:
            charts[path] = dict(look.charts)
        looked = msgspec.structs.replace(runs, listings=listings, charts=charts)
        if looked != runs:
            _keep(looked)


def last_look(root: Path) -> LastLook:
    """Returns what the user looked at last in a run."""
    path = os.path.abspath(root)
    with suppress(OSError, TfckptError):
        runs = _recent()
        return LastLook(runs.listings.get(path, ListOrder()), runs.charts.get(path, {}))
    return LastLook()


def _others(stored: dict[str, KeptT], path: str, directories: list[str]) -> dict[str, KeptT]:
    """Returns what is stored of the other recent runs."""
    return {other: kept for other, kept in stored.items() if other in directories and other != path}


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
