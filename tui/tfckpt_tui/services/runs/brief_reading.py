"""Reads what a list shows of a run, and reads again only what changed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from operator import is_not
from pathlib import Path

from msgspec.structs import replace

from tfckpt_trainer.catalog.directory.checkpoint_files import owner_of
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.catalog.directory.history import read_state_list, resume_point
from tfckpt_trainer.catalog.directory.other_formats import find_neighbours
from tfckpt_trainer.catalog.directory.trash import list_trash
from tfckpt_trainer.catalog.scan.catalog import Catalog, scan_checkpoints
from tfckpt_trainer.rundir.event_log import read_entries, read_newest_points
from tfckpt_trainer.rundir.heartbeats.health import HAS_ENDED
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.storage.documents import load_if_exists, try_read
from tfckpt_tui.formats.metric_names import main_of
from tfckpt_tui.services.runs.account import (
    Glance,
    NextStart,
    RunAccount,
    RunReading,
    find_next_start,
    give_account,
    has_lost_steps,
)
from tfckpt_tui.services.runs.failure_card import EXPLAINED
from tfckpt_tui.services.runs.file_changes import Kept
from tfckpt_tui.services.runs.reading import EVENTS_KEPT, read_processes

RECENT_POINTS = 48
"""Points of the series that a list shows as a sparkline."""


class BriefReader:
    """Reads one run repeatedly.

    Skips damaged files. Reads the newest checkpoint; others only if needed for the step of the run.
    """

    def __init__(self, run: RunDirectory, *, with_glance: bool = False) -> None:
        """Makes a reader.

        Args:
            run: The run directory.
            with_glance: Whether to read what lists show beside the account.
        """
        self._run = run
        self._with_glance = with_glance
        self._last: tuple[tuple[object, ...], RunReading] | None = None
        files = (
            run.root,
            run.records_directory,
            run.pins_directory,
            run.head_file,
            run.state_file,
            run.saving_directory,
            run.trash,
        )
        of_processes = (
            run.run_file,
            run.event_log,
            run.job_file,
            run.head_file,
            run.inbox,
            run.active,
            run.status_directory,
        )
        self._files_of_processes = tuple(map(os.fspath, of_processes))
        of_info, of_disk, of_log = (run.run_file,), (run.root,), (run.event_log,)
        of_glance = run.root, run.series
        self._latest: Checkpoint | None = None
        self._info = Kept(lambda: of_info, lambda now: read_info(run))
        self._saves = Kept(lambda: files, self._read_saves)
        self._start = Kept(lambda: files, self._read_start)
        self._disk = Kept(lambda: of_disk, lambda now: _disk_used(run))
        self._glance = Kept(
            lambda: of_glance,
            lambda now: Glance(_recent_losses(run), self._disk.get(now)),
        )
        self._events = Kept(
            lambda: of_log, lambda now: tuple(read_entries(run, newest=EVENTS_KEPT))
        )
        self._processes = Kept(self._find_files_of_processes, self._read_processes)

    def read(self, now: float) -> RunReading:
        """Returns what the files say.

        Of a run without living processes, time alone changes nothing. As long as no file changed,
        it is the same record, of the moment at which it was first read.

        Args:
            now: Seconds since the epoch.
        """
        processes = self._processes.get(now)
        if processes.heartbeats.now != now and processes.heartbeats.state not in HAS_ENDED:
            processes = self._read_processes(now)
        saves = self._saves.get(now)
        start = self._start.get(now) if _needs_start(processes) else None
        glance = self._glance.get(now) if self._with_glance else None
        parts = processes, saves, start, glance
        if self._last is None or any(map(is_not, parts, self._last[0])):
            latest, saved_at = saves
            whole = replace(processes, latest=latest, saved_at=saved_at, start=start, glance=glance)
            self._last = parts, whole
        return self._last[1]

    def _read_processes(self, now: float) -> RunReading:
        return read_processes(self._run, self._info.get(now), now, event_log=self._events.get(now))

    def _find_files_of_processes(self) -> Sequence[str]:
        heartbeats: list[str] = []
        # On network disks, heartbeats are overwritten in place.
        with suppress(OSError), os.scandir(self._files_of_processes[-1]) as entries:
            heartbeats = sorted([e.path for e in entries if e.name.endswith(".json")])
        return [*self._files_of_processes, *heartbeats]

    def _read_saves(self, now: float) -> tuple[Checkpoint | None, float]:
        """Returns the newest checkpoint by TensorFlow's state file, and the time of a save."""
        self._latest = latest = try_read(partial(_newest_listed, self._run, now))
        return latest, latest.saved_at if latest is not None else _last_saved(self._run)

    def _read_start(self, now: float) -> NextStart | None:
        return try_read(partial(read_next_start, self._run, now, self._latest))


def read_run_briefly(run: RunDirectory, now: float) -> RunReading:
    """Reads a run as a list does.

    Args:
        run: The run directory.
        now: Seconds since the epoch.
    """
    return BriefReader(run).read(now)


def brief_account(root: Path) -> RunAccount:
    """Returns the account of a run by its own files, without a question to Slurm."""
    return give_account(read_run_briefly(RunDirectory(root), time.time()), None)


def read_info(run: RunDirectory) -> RunInfo | None:
    """Returns the description of a run; None if it has none, or if that cannot be read."""
    return try_read(partial(load_if_exists, run.run_file, RunInfo))


def read_next_start(
    run: RunDirectory, now: float, latest: Checkpoint | None = None
) -> NextStart | None:
    """Returns what a start continues from; scans all checkpoints only if one does not tell.

    Args:
        run: The run directory.
        now: Seconds since the epoch.
        latest: The newest checkpoint, if it was read just now. Most starts continue from it.
    """
    resumed = resume_point(run)
    if resumed is not None and resumed.branch is not None:
        is_latest = latest is not None and latest.name == resumed.checkpoint
        checkpoint = latest if is_latest else _read_one(run, resumed.checkpoint, now)
        if checkpoint is not None and checkpoint.restorable:
            return NextStart(checkpoint.name, checkpoint.step, resumed.branch, resumed.values)
    catalog = Catalog(run)
    checkpoints = catalog.scan(now)
    return find_next_start(checkpoints, catalog.resumed, catalog.branch_tips(list_trash(run)))


def _newest_listed(run: RunDirectory, now: float) -> Checkpoint | None:
    """Returns the newest checkpoint according to TensorFlow's state file, without others."""
    state = read_state_list(run)
    name = state.latest_name if state is not None else None
    return _read_one(run, name, now) if name else None


def _read_one(run: RunDirectory, name: str, now: float) -> Checkpoint | None:
    only = frozenset({name})
    found = scan_checkpoints(run, only, now).get(name)
    if found is not None:
        return found
    checkpoints = Catalog(run, only).scan(now)
    return next((checkpoint for checkpoint in checkpoints if checkpoint.name == name), None)


def _last_saved(run: RunDirectory) -> float:
    """Returns when TensorFlow's state file was written, or else the newest file of Keras."""
    with suppress(OSError):
        return run.state_file.stat().st_mtime
    with suppress(OSError):
        return max((other.saved_at for other in find_neighbours(run.root).others), default=0.0)
    return 0.0


def _needs_start(processes: RunReading) -> bool:
    """Whether the step of a run is that of its next start, or a failure may have lost steps."""
    heartbeats, chief = processes.heartbeats, processes.heartbeats.chief
    is_unknown = chief is None or not chief.has_position or processes.start_is_chosen
    state = heartbeats.state
    return is_unknown or state in EXPLAINED or has_lost_steps(heartbeats, state)


def _disk_used(run: RunDirectory) -> int | None:
    """Returns the bytes of all checkpoints; a file with several names counts once."""
    sizes: dict[int, int] = {}

    def add(files: Iterable[os.DirEntry[str]]) -> None:
        for file in files:
            stats = file.stat(follow_symlinks=False)
            sizes[stats.st_ino] = stats.st_size

    try:
        with os.scandir(run.root) as entries:
            add(entry for entry in entries if owner_of(entry.name))
        with suppress(FileNotFoundError), os.scandir(run.worker_states_directory) as states:
            for state in states:
                if state.is_dir(follow_symlinks=False):
                    with os.scandir(state) as files:
                        add(files)
    except OSError:
        return None
    return sum(sizes.values())


def _recent_losses(run: RunDirectory) -> tuple[float | None, ...]:
    """Returns the newest values of the main metric, oldest first; None is NaN."""
    points = read_newest_points(run, RECENT_POINTS)
    name = main_of({name for point in points for name in point.metrics})
    return tuple(point.metrics[name] for point in points if name in point.metrics)
