"""Reads and writes status files, which are updated often and must be writable on a full disk."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.rundir.full_disk import is_full
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.storage.documents import (
    Document,
    DocumentT,
    encode,
    load_timed,
    store,
)
from tfckpt_trainer.rundir.storage.files import overwrite
from tfckpt_trainer.rundir.storage.filesystems import is_network_file_system
from tfckpt_trainer.rundir.storage.owners import user_name


def store_status(
    path: Path, status: Document, *, if_full: Document | None = None, durable: bool = False
) -> None:
    """Replaces a status file. On a full disk, overwrites the old file in place.

    Args:
        path: The status file.
        status: Its new content.
        if_full: The content to write if the disk is full; by default `status`.
        durable: Whether to flush a replaced file to disk.

    Raises:
        OSError: The write failed, or the disk is full and there is no file to overwrite.
    """
    try:
        store(path, status, durable=durable)
    except OSError as error:
        if not is_full(error):
            raise
        try:
            overwrite(path, encode(status if if_full is None else if_full))
        except (FileNotFoundError, DamagedFileError):
            raise error from None


def directory_of(run: RunDirectory) -> tuple[int, int] | None:
    """Returns what a heartbeat says of the directory that it is written in.

    None on a network disk: each mount may show another inode, and asking takes a call each time.
    """
    with suppress(OSError):
        if not _is_on_network(run.root):
            return run.identity()
    return None


@lru_cache(maxsize=64)
def _is_on_network(root: Path) -> bool:
    return is_network_file_system(root)


def load_status(path: Path | str, kind: type[DocumentT]) -> DocumentT | None:
    """Reads a status file; returns None if there is none.

    Raises:
        DamagedFileError: The file is damaged.
        OSError: The file cannot be read.
    """
    found = load_timed_status(path, kind)
    return None if found is None else found[0]


def load_timed_status(path: Path | str, kind: type[DocumentT]) -> tuple[DocumentT, float] | None:
    """Reads a status file, and when it changed by the clock of its file system.

    Retries once if the file is damaged, because it may be in the middle of an overwrite.

    Raises:
        DamagedFileError: The file is still damaged.
        OSError: The file cannot be read.
    """
    try:
        return load_timed(path, kind)
    except DamagedFileError:
        return load_timed(path, kind)


def other_writer(run: RunDirectory, worker: int, path: Path) -> str:
    """Returns who wrote a file that only a worker writes; empty if its user, root or this one did.

    Who writes the heartbeat of the worker is taken for its user.

    Args:
        run: The run directory.
        worker: The index of the worker.
        path: The file.
    """
    with suppress(OSError):
        owner = os.lstat(path).st_uid
        if owner not in {0, os.geteuid(), os.lstat(run.worker_status(worker)).st_uid}:
            return user_name(owner)
    return ""
