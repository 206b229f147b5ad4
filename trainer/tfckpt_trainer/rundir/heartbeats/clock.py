"""The clock of a file system, and heartbeats of machines whose clocks differ from this one's.

Clocks of machines differ, by minutes on some clusters. All machines see the same clock of the file
system: the modification times of files.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import msgspec

from tfckpt_trainer.rundir.heartbeats.process_ids import is_pid_valid_here
from tfckpt_trainer.rundir.heartbeats.status_files import load_timed_status
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.run import SupervisorStatus
from tfckpt_trainer.rundir.records.worker import GatheredHeartbeats, WorkerStatus
from tfckpt_trainer.rundir.storage.disk import disk
from tfckpt_trainer.rundir.storage.files import delete_file
from tfckpt_trainer.rundir.storage.filesystems import is_network_file_system
from tfckpt_trainer.rundir.storage.server_facts import modification_time

TOLERANCE_SECONDS = 2.0
"""Clocks that differ by less are used as they are. Some disks store times in whole seconds."""

LONGEST_SECONDS = 14 * 3600.0
"""If the times of a heartbeat differ by more, it was copied or is old, and is used as it is.

A clock in a wrong time zone differs by at most as much."""

MEASURED_SECONDS = 60.0
"""How long a measured difference between the clocks is used."""

StatusT = TypeVar("StatusT", WorkerStatus, SupervisorStatus)

OF_A_COPY = 0
"""The process ID in a heartbeat that was copied with its directory."""

_measured: dict[Path, tuple[float, float, float]] = {}
"""The difference, when it was measured, and the offset of this machine's clock then."""


def load_heartbeat(run: RunDirectory, path: Path | str, kind: type[StatusT]) -> StatusT | None:
    """Reads a heartbeat, with its times by the clock of this machine; None if there is none.

    One that was copied with its directory is that of a process which is gone: it works for the
    original.

    Args:
        run: The run directory.
        path: The status file.
        kind: Its type.

    Raises:
        DamagedFileError: The file is damaged.
        OSError: The file cannot be read.
    """
    found = load_timed_status(path, kind)
    if found is None:
        return None
    status, written = found
    if is_pid_valid_here(status):
        is_copied = status.directory is not None and status.directory != run.identity()
        return msgspec.structs.replace(status, pid=OF_A_COPY) if is_copied else status
    return _shifted(status, _known_seconds_ahead(run, written, status.updated_at))


def load_gathered(run: RunDirectory) -> GatheredHeartbeats | None:
    """Reads the heartbeats that a chief gathered, as `load_heartbeat`; None if there are none.

    Raises:
        DamagedFileError: The file is damaged.
        OSError: The file cannot be read.
    """
    found = load_timed_status(run.gathered_heartbeats, GatheredHeartbeats)
    if found is None:
        return None
    gathered, written = found
    ahead = _known_seconds_ahead(run, written, gathered.updated_at)
    workers = [_shifted(status, ahead) for status in gathered.workers]
    return msgspec.structs.replace(gathered, workers=workers)


def _shifted(status: StatusT, ahead: float) -> StatusT:
    """Returns a heartbeat with its times by the clock of this machine."""
    if abs(ahead) < TOLERANCE_SECONDS:
        return status
    times = ("updated_at", "last_step_at", "phase_since")
    values = {name: getattr(status, name, None) for name in times}
    changes = {name: value - ahead for name, value in values.items() if value is not None}
    return msgspec.structs.replace(status, **changes)


def _known_seconds_ahead(run: RunDirectory, written: float, updated_at: float) -> float:
    """As `_seconds_ahead`; 0 where a directory that cannot be written does not tell the time."""
    try:
        return _seconds_ahead(run, written, updated_at)
    except OSError:
        return 0.0


def _seconds_ahead(run: RunDirectory, written: float, updated_at: float) -> float:
    """Returns by how much the clock that stamped a heartbeat is ahead of this machine's clock.

    Args:
        run: The run directory.
        written: When its file changed, by the clock of the file system.
        updated_at: When it was written, by that clock.
    """
    by_clock = abs(time.time() - updated_at)
    # First: of the runs in a list, most ended long ago.
    if by_clock > LONGEST_SECONDS:
        return 0.0
    by_file = abs(written - updated_at)
    is_plausible = max(by_clock, by_file) < TOLERANCE_SECONDS
    if (
        is_plausible
        or by_file > LONGEST_SECONDS
        or not is_network_file_system(run.status_directory)
    ):
        return 0.0
    return updated_at - (written - file_system_ahead(run))


def file_system_ahead(run: RunDirectory) -> float:
    """Returns by how many seconds the clock of the file system is ahead of this machine's clock.

    Raises:
        OSError: The directory cannot be written.
    """
    difference, at, offset = _measured.get(run.root, (0.0, -MEASURED_SECONDS, 0.0))
    # A clock that was set has another offset to the one that nobody can set.
    was_set = abs(time.time() - time.monotonic() - offset) >= TOLERANCE_SECONDS
    if was_set or time.monotonic() - at >= MEASURED_SECONDS:
        before = time.time()
        there = file_system_time(run) / 1e9
        difference = there - (before + time.time()) / 2
        _measured[run.root] = difference, time.monotonic(), time.time() - time.monotonic()
    return difference


def known_ahead(run: RunDirectory) -> float:
    """Returns the difference of `file_system_ahead` as last measured; 0 if nothing needed it."""
    return _measured.get(run.root, (0.0,))[0]


def file_system_time(run: RunDirectory) -> int:
    """Returns the time of the file system in nanoseconds since the epoch.

    Raises:
        OSError: The directory cannot be written.
    """
    probe = run.control / f".clock.{uuid4().hex}.tmp"
    try:
        descriptor = disk().open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError:
        # A full disk takes no new file, but the time of an existing file can be updated.
        return _touch_lock(run)
    try:
        disk().set_time(descriptor)
        return modification_time(descriptor)
    finally:
        os.close(descriptor)
        delete_file(probe)


def _touch_lock(run: RunDirectory) -> int:
    descriptor = disk().open(run.trainer_lock, os.O_WRONLY)
    try:
        disk().set_time(descriptor)
        return modification_time(descriptor)
    finally:
        os.close(descriptor)
