"""Changes the description of a run, and tells a run from others by it."""

from __future__ import annotations

import os
import time
import uuid
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import Any

import msgspec

from tfckpt_trainer.errors import DamagedFileError, NotTrustedError, TfckptError, describe_error
from tfckpt_trainer.rundir.event_log import note_event
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.run import EVENTS, RunInfo
from tfckpt_trainer.rundir.storage.documents import (
    decode,
    load,
    load_if_exists,
    runs_training,
    store,
)
from tfckpt_trainer.rundir.storage.files import RECORD_LIMIT, move_aside
from tfckpt_trainer.rundir.storage.parent_directory import stay_in


def staying_in(run: RunDirectory) -> AbstractContextManager[None]:
    """Has this process use the directory of a run, and no other one at its path; see `stay_in`."""
    name = run.run_file.relative_to(run.control)
    return stay_in(run.root, lambda directory: _id_in(directory, run.control.name, str(name)))


def _id_in(directory: int, control: str, name: str) -> str:
    """Returns the ID of the run in an open directory; empty if none can be read."""
    with suppress(OSError, TfckptError), ExitStack() as opened:
        below = os.open(control, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
        opened.callback(os.close, below)
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=below)
        opened.callback(os.close, file)
        text = os.read(file, RECORD_LIMIT)
        return decode(text, RunInfo, name).id
    return ""


def update_run_info(run: RunDirectory, run_id: str = "", **fields: Any) -> RunInfo:
    """Writes `run.json` with new values of some fields, and returns it.

    A process that runs the training moves one aside that it cannot read, and begins anew.

    Args:
        run: The run directory.
        run_id: The ID of the run, if it is known. Nothing is written if another run is there.
        **fields: Fields of `RunInfo` to set.

    Raises:
        DamagedFileError: The file is damaged, and this process does not run the training.
        OSError: The disk refuses.
    """
    info = _load(run) or RunInfo(id=run_id or uuid.uuid4().hex[:12], created_at=time.time())
    if run_id in {"", info.id}:
        info = msgspec.structs.replace(info, **fields)
        store(run.run_file, info)
    return info


def _load(run: RunDirectory) -> RunInfo | None:
    try:
        with suppress(FileNotFoundError, NotTrustedError):
            return load(run.run_file, RunInfo, written_by=os.geteuid())
        info = load_if_exists(run.run_file, RunInfo)
        # Written again it is this user's word, which says what TensorBoard serves.
        return msgspec.structs.replace(info, tensorboard=EVENTS) if info is not None else None
    except (DamagedFileError, PermissionError) as error:
        if not runs_training():
            raise
        name = move_aside(run.run_file)
        why = describe_error(error).rstrip(".")
        note_event(run, EventKind.NOTE, f"{why}. It is {name} now, and was written anew.")
        return None
