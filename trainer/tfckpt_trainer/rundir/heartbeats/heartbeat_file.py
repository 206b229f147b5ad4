"""Writes heartbeats: replaced on a local disk, overwritten on a network disk.

On a network disk, one call writes a heartbeat into a file that stays open. Each replacement would
take about eight calls, and other machines would see the old file until their caches expire.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Generic

from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.rundir.heartbeats.clock import StatusT
from tfckpt_trainer.rundir.heartbeats.process_ids import process_of
from tfckpt_trainer.rundir.heartbeats.status_files import load_status, store_status
from tfckpt_trainer.rundir.storage.disk import disk
from tfckpt_trainer.rundir.storage.documents import encode
from tfckpt_trainer.rundir.storage.files import write_atomic
from tfckpt_trainer.rundir.storage.filesystems import is_network_file_system

FIRST_CHECK_BEATS = 3
CHECK_BEATS = 20
"""After how many heartbeats the file is opened anew: the first time, and later."""

_BLOCK = 512
_CANNOT_FLUSH = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP}


class HeartbeatFile(Generic[StatusT]):
    """The status file of a worker or of the supervisor, for its writer.

    Attributes:
        on_other_trainer: Called with the heartbeat of another process that writes the same file
            and was there first. That happens on network disks that do not share locks.
    """

    def __init__(self, path: Path, kind: type[StatusT]) -> None:
        self._path = path
        self._kind: type[StatusT] = kind
        self._in_place: bool | None = None
        self._descriptor: int | None = None
        self._size = 0
        self._left = 0
        self.on_other_trainer: Callable[[StatusT], None] = lambda _: None

    def write(self, status: StatusT, if_full: StatusT) -> None:
        """Writes a heartbeat.

        Args:
            status: The heartbeat.
            if_full: What to write instead if the disk is full.

        Raises:
            OSError: The disk refuses.
        """
        if self._in_place is None:
            self._in_place = is_network_file_system(self._path.parent)
        if not self._in_place:
            store_status(self._path, status, if_full=if_full)
            return
        data = encode(status)
        self._left -= 1
        if self._left < 0:
            self._check(status)
        if not self._overwrite(data):
            self._replace(data, status, if_full)

    def close(self) -> None:
        """Closes the file."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with suppress(OSError):
                os.close(descriptor)

    def _overwrite(self, data: bytes) -> bool:
        """Writes into the open file; returns False if it has to be replaced instead."""
        if self._descriptor is None or len(data) > self._size:
            return False
        try:
            if disk().write(self._descriptor, data.ljust(self._size), 0) < self._size:
                return False
            # A client of NFS would keep it for half a minute.
            disk().flush(self._descriptor)
        except OSError as error:
            return error.errno in _CANNOT_FLUSH
        return True

    def _replace(self, data: bytes, status: StatusT, if_full: StatusT) -> None:
        self.close()
        self._size = (len(data) // _BLOCK + 2) * _BLOCK
        try:
            write_atomic(self._path, data.ljust(self._size), durable=False)
        except OSError:
            # It overwrites the old file if the disk is full, and raises all other errors.
            store_status(self._path, status, if_full=if_full)
            return
        self._open()
        if self._left < 0:
            self._left = FIRST_CHECK_BEATS

    def _open(self) -> None:
        self._descriptor = disk().open(self._path, os.O_WRONLY)

    def _check(self, own: StatusT) -> None:
        """Opens the file anew, and reads who wrote it last.

        Of two writers, the one that started first goes on.
        """
        is_first = self._descriptor is None
        self.close()
        if is_first:
            return
        self._left = CHECK_BEATS
        try:
            status = load_status(self._path, self._kind)
            if status is not None and process_of(status) == process_of(own):
                self._open()
                return
        except (DamagedFileError, OSError):
            # It is written anew.
            return
        if status is not None and not status.has_ended and _order(status) < _order(own):
            self.on_other_trainer(status)


def _order(status: StatusT) -> tuple[float, str, str, int]:
    return (status.process_started_at, *process_of(status))
