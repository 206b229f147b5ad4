"""Changes the description of a run."""

from __future__ import annotations

import time
import uuid
from typing import Any

import msgspec

from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.rundir.event_log import note_event
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.storage.documents import load_if_exists, runs_training, store
from tfckpt_trainer.rundir.storage.files import move_aside


def update_run_info(run: RunDirectory, **fields: Any) -> None:
    """Writes `run.json` with new values of some fields.

    A process that runs the training moves a damaged one aside, and begins anew.

    Args:
        run: The run directory.
        **fields: Fields of `RunInfo` to set.

    Raises:
        DamagedFileError: The file is damaged, and this process does not run the training.
        OSError: The disk refuses.
    """
    info = _load(run) or RunInfo(id=uuid.uuid4().hex[:12], created_at=time.time())
    store(run.run_file, msgspec.structs.replace(info, **fields))


def _load(run: RunDirectory) -> RunInfo | None:
    try:
        return load_if_exists(run.run_file, RunInfo)
    except DamagedFileError as error:
        if not runs_training():
            raise
        name = move_aside(run.run_file)
        note_event(run, EventKind.NOTE, f"{error} It is {name} now, and was written anew.")
        return None
