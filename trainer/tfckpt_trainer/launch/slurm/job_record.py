"""Reads `job.json`, the record of the batch job of a run."""

from __future__ import annotations

from functools import partial

from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.job import BatchJob
from tfckpt_trainer.rundir.storage.documents import OnError, ignore, load_if_exists, try_read


def load_job_record(run: RunDirectory) -> BatchJob | None:
    """Returns the record of the batch job of a run; None if there is none.

    Raises:
        DamagedFileError: It is damaged.
        OSError: It cannot be read.
    """
    return load_if_exists(run.job_file, BatchJob)


def read_job_record(run: RunDirectory, on_error: OnError = ignore) -> BatchJob | None:
    """Returns the record of the batch job of a run; None if there is none or it cannot be read.

    Args:
        run: The run directory.
        on_error: Called if it cannot be read.
    """
    return try_read(partial(load_job_record, run), on_error)
