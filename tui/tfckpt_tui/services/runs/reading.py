"""Reads what the account of a run is made from."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tfckpt_trainer.catalog.other_formats import find_neighbours
from tfckpt_trainer.catalog.retention.trash import list_trash
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.catalog.scan.checkpoints import Checkpoint
from tfckpt_trainer.catalog.scan.history import read_state_list, resume_point
from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.launch.orphans import read_supervisor
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.documents import load_if_exists
from tfckpt_trainer.rundir.health import read_workers, start_was_chosen
from tfckpt_trainer.rundir.journal import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.storage.clock import known_ahead
from tfckpt_tui.services.batch.job_reader import read_job_record
from tfckpt_tui.services.runs.account import (
    NextStart,
    RunAccount,
    RunReading,
    find_next_start,
    give_account,
    has_lost_steps,
    stops_under_way,
)
from tfckpt_tui.services.runs.heartbeats import Heartbeats

JOURNAL_KEPT = 500
"""Entries of the event log that an account considers."""


def read_whole_run(run: RunDirectory, now: float) -> RunReading:
    """Reads a run with all its checkpoints.

    Args:
        run: The run directory.
        now: Seconds since the epoch.

    Raises:
        DamagedFileError: The description of the run cannot be read.
        OSError: The directory cannot be read.
    """
    info = load_if_exists(run.run_file, RunInfo)
    found, start, catalog = _scan(run, now)
    return replace(
        _read_processes(run, info, now),
        start=start,
        latest=catalog.latest,
        checkpoints=found,
        newer_records=catalog.newer_records,
        saved_at=max((checkpoint.saved_at for checkpoint in found[:1]), default=0.0),
    )


def read_run_briefly(run: RunDirectory, now: float) -> RunReading:
    """Reads a run with its newest checkpoint; with others only if needed for its step.

    Skips damaged files.

    Args:
        run: The run directory.
        now: Seconds since the epoch.
    """
    info = None
    with suppress(OSError, TfckptError):
        info = load_if_exists(run.run_file, RunInfo)
    reading = replace(_read_processes(run, info, now), saved_at=_last_saved(run))
    with suppress(OSError, TfckptError):
        reading = replace(reading, latest=_read_latest(run, now))
    heartbeats, chief = reading.heartbeats, reading.heartbeats.chief
    is_unknown = chief is None or not chief.has_position or reading.start_is_chosen
    if is_unknown or has_lost_steps(heartbeats, heartbeats.state):
        with suppress(OSError, TfckptError):
            return replace(reading, start=_read_next_start(run, now))
    return reading


def brief_account(root: Path) -> RunAccount:
    """Returns the account of a run by its own files, without a question to Slurm."""
    return give_account(read_run_briefly(RunDirectory(root), time.time()), None)


def _read_processes(run: RunDirectory, info: RunInfo | None, now: float) -> RunReading:
    statuses = read_workers(run, info.worker_count if info is not None else None)
    heartbeats = Heartbeats.judge(statuses, read_supervisor(run), now)
    chief, queue = heartbeats.chief, CommandQueue(run)
    # In this order, none is missed that is accepted in between.
    pending, working = queue.pending(), queue.working()
    return RunReading(
        run,
        heartbeats,
        info,
        read_job_record(run),
        tuple(read_entries(run, newest=JOURNAL_KEPT)),
        start_is_chosen=chief is not None and start_was_chosen(run, chief, now),
        stops=stops_under_way([*working, *pending], now),
        clock_ahead=known_ahead(run),
    )


def _read_next_start(run: RunDirectory, now: float) -> NextStart | None:
    """Returns what a start continues from; scans all checkpoints only if one does not tell."""
    resumed = resume_point(run)
    if resumed is not None and resumed.branch is not None:
        one = _read_one(run, resumed.checkpoint, now)
        if one is not None and one.restorable:
            return NextStart(one.name, one.step, resumed.branch)
    return _scan(run, now)[1]


def _read_latest(run: RunDirectory, now: float) -> Checkpoint | None:
    """Returns the newest checkpoint according to TensorFlow's state file, without others."""
    state = read_state_list(run)
    name = state.latest_name if state is not None else None
    return _read_one(run, name, now) if name else None


def _read_one(run: RunDirectory, name: str, now: float) -> Checkpoint | None:
    found = Catalog(run, frozenset({name})).scan(now)
    return next((one for one in found if one.name == name), None)


def _scan(run: RunDirectory, now: float) -> tuple[Sequence[Checkpoint], NextStart | None, Catalog]:
    """Returns all checkpoints, what a start continues from, and the scanned catalog."""
    catalog = Catalog(run)
    found = catalog.scan(now)
    tips = catalog.branch_tips(list_trash(run))
    return found, find_next_start(found, catalog.resumed, tips), catalog


def _last_saved(run: RunDirectory) -> float:
    """Returns when TensorFlow's state file was written, or else the newest file of Keras."""
    with suppress(OSError):
        return run.state_file.stat().st_mtime
    with suppress(OSError):
        return max((one.saved_at for one in find_neighbours(run.root).others), default=0.0)
    return 0.0
