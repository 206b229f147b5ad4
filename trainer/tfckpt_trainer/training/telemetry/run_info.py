"""Changes the description of a run."""

from __future__ import annotations

import time
import uuid
from typing import Any

import msgspec

from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.storage.documents import load_if_exists, store


def update_run_info(run: RunDirectory, **fields: Any) -> None:
    """Writes `run.json` with new values of some fields.

    Args:
        run: The run directory.
        **fields: Fields of `RunInfo` to set.

    Raises:
        OSError: The disk refuses.
    """
    info = load_if_exists(run.run_file, RunInfo) or RunInfo(
        id=uuid.uuid4().hex[:12], created_at=time.time()
    )
    store(run.run_file, msgspec.structs.replace(info, **fields))
