"""Reads what a list shows of a run, and reads again only what changed."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import partial
from operator import is_not
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from tfckpt_trainer.catalog.directory.checkpoint_files import owner_of
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.catalog.directory.history import (
    latest_of,
    read_state_list,
    resume_point,
)
from tfckpt_trainer.catalog.directory.other_formats import find_neighbours, paired_names
from tfckpt_trainer.catalog.directory.trash import list_trash
from tfckpt_trainer.catalog.scan.catalog import Catalog, scan_checkpoints
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.heartbeats.gathered import are_gathered
from tfckpt_trainer.rundir.heartbeats.health import HAS_ENDED
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventEntry, SeriesPoint
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.series import read_newest_points
from tfckpt_trainer.rundir.storage.documents import load_if_exists, try_read
from tfckpt_trainer.rundir.storage.files import list_directory
from tfckpt_tui.formats.metric_names import main_of
from tfckpt_tui.services.metrics.metric_tail import (
    RECENT_POINTS,
    RecentMetrics,
)
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
from tfckpt_tui.services.runs.file_changes import (
    FileLook,
    Kept,
    Signature,
    files_of_checkpoints,
    may_keep,
)
from tfckpt_tui.services.runs.reading import EVENTS_KEPT, ProcessReader


class _Saves(NamedTuple):
    """What was read of the checkpoints of a run.

    Attributes:
        latest: The newest one by TensorFlow's state file.
        listed: Its name there; empty if there is none.
        saved_at: Time of the newest save, in seconds since the epoch; 0 if there is none.
        disk_used: Bytes of all; None if they cannot be read, or were not asked for.
    """

    latest: Checkpoint | None
    listed: str
    saved_at: float
    disk_used: int | None


class BriefReader:
    """Reads one run repeatedly.

    Skips damaged files. Reads the newest checkpoint; others only if needed for the step of the run.
    """

    def __init__(
        self, run: RunDirectory, *, with_glance: bool = False, on_network: bool = False
    ) -> None:
        """Makes a reader.

        Args:
            run: The run directory.
            with_glance: Whether to read what lists show beside the account.
            on_network: Whether it is on a network disk, where calls cost much.
        """
        self._run = run
        self._with_glance = with_glance
        self._last: tuple[tuple[object, ...], RunReading] | None = None
        self._info = Kept[RunInfo | None]()
        self._events = Kept[tuple[EventEntry, ...]]()
        self._heartbeats = Kept[Sequence[str]]()
        self._reader = ProcessReader(run, on_network=on_network)
        self._processes = Kept[RunReading]()
        self._saves = Kept[_Saves]()
        self._start = Kept[NextStart | None]()
        self._losses = Kept[tuple[float | None, ...]]()
        self._event_files = RecentMetrics(run)
        self._is_network = on_network
        self._whole: tuple[Signature, float, FileLook] | None = None
        self._signs: Signature = ()

    def read(self, now: float) -> RunReading:
        """Returns what the files say.

        Of a run without living processes, time alone changes nothing. As long as no file changed,
        it is the same record, of the moment at which it was first read.

        On a network disk, most files count as unchanged while the run directory and the event log
        are. All that this library does is an event, and others change the directory.

        Args:
            now: Seconds since the epoch.
        """
        run, look, last = self._run, FileLook(), self._last
        if self._is_network and self._take_unchanged(look, now) and last is not None:
            reading = last[1]
            if may_rest(reading) and look.signature(signs_of_start(run)) == self._signs:
                return reading
        processes = self._read_processes(look, now)
        saved = look.signature([*files_of_checkpoints(run), run.trash])
        saves = self._saves.get(saved, now, partial(self._read_saves, now))
        start, losses = None, None
        # A run of this library reports its metrics and its steps itself.
        points = self._event_files.read() if processes.info is None else ()
        if _needs_start(processes):
            read_start = partial(read_next_start, run, now, saves.listed, saves.latest)
            start = self._start.get(saved, now, partial(try_read, read_start))
        if self._with_glance:
            series = look.signature([run.series])
            losses = self._losses.get(series, now, partial(_recent_losses, run))
            losses = losses or _losses_of(points)
        parts = processes, saves, start, losses, points
        if self._last is None or any(map(is_not, parts, self._last[0])):
            whole = replace(
                processes,
                latest=saves.latest,
                saved_at=saves.saved_at,
                start=start,
                glance=Glance(losses, saves.disk_used) if losses is not None else None,
                measured=self._event_files.newest if points else None,
            )
            self._last = parts, whole
        if self._is_network:
            self._signs = look.signature(signs_of_start(run))
        return self._last[1]

    @property
    def signs(self) -> Signature:
        """What `signs_of_start` were when it was last read; empty on a local disk."""
        return self._signs

    def _take_unchanged(self, look: FileLook, now: float) -> bool:
        """Asks for the directory and the event log; if these are the same, takes over the rest."""
        run = self._run
        told = look.signature([run.root, run.event_log])
        if self._whole is not None:
            known, at, earlier = self._whole
            if known == told and may_keep(known, at, now):
                look.keep(earlier, _files_with_events(run))
                return True
        self._whole = told, now, look
        return False

    def _read_processes(self, look: FileLook, now: float) -> RunReading:
        run = self._run
        info = self._info.get(look.signature([run.run_file]), now, partial(read_info, run))
        logged = look.signature([run.event_log])
        events = self._events.get(logged, now, partial(_newest_events, run))
        read = partial(self._reader.read, info, now, look, events)
        heartbeats: Sequence[str | Path] = [run.worker_status(0), run.supervisor_status]
        if info is None or not are_gathered(run, info.worker_count):
            status = look.signature([run.status_directory])
            heartbeats = self._heartbeats.get(status, now, partial(_heartbeat_files, run))
        files = look.signature([*_files_of_processes(run), *heartbeats])
        processes = self._processes.get(files, now, read)
        if processes.heartbeats.now != now and processes.heartbeats.state not in HAS_ENDED:
            processes = read()
        return processes

    def _read_saves(self, now: float) -> _Saves:
        run = self._run
        listed = latest_of(read_state_list(run))
        entries = try_read(partial(list_directory, run.root))
        files = {entry.name for entry in entries or () if owner_of(entry.name) == listed}
        latest = try_read(partial(_read_one, run, listed, now, files)) if listed else None
        saved_at = latest.saved_at if latest is not None else _last_saved(run)
        is_sized = self._with_glance and entries is not None
        return _Saves(
            latest, listed, saved_at, _disk_used(run, entries or ()) if is_sized else None
        )


def _files_of_processes(run: RunDirectory) -> Sequence[Path]:
    """Returns what `ProcessReader` depends on, beside the heartbeats."""
    return (
        run.run_file,
        run.event_log,
        run.job_file,
        run.head_file,
        run.inbox,
        run.active,
        run.status_directory,
    )


def _files_with_events(run: RunDirectory) -> Sequence[Path]:
    """Returns the files that change with an event, or with the entries of the directory."""
    return (run.run_file, run.job_file, *files_of_checkpoints(run), run.trash)


def may_rest(reading: RunReading) -> bool:
    """Whether a run that was read has ended, and its next start is an event."""
    return reading.info is not None and reading.heartbeats.state in HAS_ENDED


def signs_of_start(run: RunDirectory) -> Sequence[Path]:
    """Returns the files of a run that has ended of which one changes if it goes on.

    A chief that starts, or that was only cut off, writes its heartbeat before there is an event.
    """
    return (run.root, run.event_log, run.worker_status(0))


def _heartbeat_files(run: RunDirectory) -> Sequence[str]:
    """Returns the heartbeats: on network disks, they are overwritten in place."""
    with suppress(OSError), os.scandir(run.status_directory) as entries:
        return [entry.path for entry in entries if entry.name.endswith(".json")]
    return []


def read_run_briefly(run: RunDirectory, now: float) -> RunReading:
    """Reads a run as a list does.

    Args:
        run: The run directory.
        now: Seconds since the epoch.
    """
    return BriefReader(run).read(now)


def brief_account(root: Path) -> RunAccount:
    """Returns the account of a run by its own files, without a question to the scheduler."""
    return give_account(read_run_briefly(RunDirectory(root), time.time()), None)


def read_info(run: RunDirectory) -> RunInfo | None:
    """Returns the description of a run; None if it has none, or if that cannot be read."""
    return try_read(partial(load_if_exists, run.run_file, RunInfo))


def read_next_start(
    run: RunDirectory, now: float, listed: str | None = None, latest: Checkpoint | None = None
) -> NextStart | None:
    """Returns what a start continues from; scans all checkpoints only if one does not tell.

    Args:
        run: The run directory.
        now: Seconds since the epoch.
        listed: The newest checkpoint in TensorFlow's state file, if that was read just now.
        latest: That checkpoint, if it was read just now. Most starts continue from it.
    """
    resumed = resume_point(run, listed)
    if resumed is not None and resumed.branch is not None:
        is_latest = latest is not None and latest.name == resumed.checkpoint
        checkpoint = latest if is_latest else _read_one(run, resumed.checkpoint, now)
        if checkpoint is not None and checkpoint.restorable:
            return NextStart(checkpoint.name, checkpoint.step, resumed.branch, resumed.values)
    catalog = Catalog(run)
    checkpoints = catalog.scan(now)
    return find_next_start(checkpoints, catalog.resumed, catalog.branch_tips(list_trash(run)))


def _read_one(
    run: RunDirectory, name: str, now: float, entries: AbstractSet[str] | None = None
) -> Checkpoint | None:
    """Returns a checkpoint; `entries` are the names of its files, if these are known."""
    only = frozenset({name})
    found = scan_checkpoints(run, only, now, entries).get(name)
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


def _newest_events(run: RunDirectory) -> tuple[EventEntry, ...]:
    return tuple(read_entries(run, newest=EVENTS_KEPT))


def _disk_used(run: RunDirectory, entries: Collection[os.DirEntry[str]]) -> int | None:
    """Returns the bytes of all checkpoints; a file with several names counts once."""
    sizes: dict[int, int] = {}

    def add(files: Iterable[os.DirEntry[str]]) -> None:
        for file in files:
            stats = file.stat(follow_symlinks=False)
            sizes[stats.st_ino] = stats.st_size

    try:
        whole = paired_names([entry.name for entry in entries])
        add(entry for entry in entries if owner_of(entry.name) in whole)
        for state in list_directory(run.worker_states_directory):
            if state.is_dir(follow_symlinks=False):
                add(list_directory(Path(state.path)))
    except OSError:
        return None
    return sum(sizes.values())


def _recent_losses(run: RunDirectory) -> tuple[float | None, ...]:
    """Returns the newest values of the main metric, oldest first; None is NaN."""
    return _losses_of(read_newest_points(run, RECENT_POINTS))


def _losses_of(points: Sequence[SeriesPoint]) -> tuple[float | None, ...]:
    """Returns the values of the main metric in points."""
    name = main_of({name for point in points for name in point.metrics})
    return tuple(point.metrics[name] for point in points if name in point.metrics)
