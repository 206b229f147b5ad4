"""The heartbeats of a launched worker before its run exists: one for each phase of its start."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.rundir.full_disk import explain_disk_errors
from tfckpt_trainer.rundir.heartbeats.liveness import refuse_another_trainer
from tfckpt_trainer.rundir.heartbeats.process_ids import host_name, process_namespace
from tfckpt_trainer.rundir.heartbeats.process_table import own_process
from tfckpt_trainer.rundir.heartbeats.stack_writer import answer_before_run
from tfckpt_trainer.rundir.heartbeats.status_files import directory_of
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.worker import Activity, Phase, WorkerStatus
from tfckpt_trainer.rundir.storage.documents import store
from tfckpt_trainer.training.process.import_environment import end_watch
from tfckpt_trainer.training.process.signals_and_exit import is_restart

START_SECONDS = 60.0
"""Interval announced in these heartbeats, because the next one follows with the next phase."""


def report_import() -> None:
    """Reports that TensorFlow is imported, as early as a process of the launcher can know it.

    Never overwrites a heartbeat, and never fails: the script has not asked for anything yet.
    """
    place = _launched_worker()
    # Processes that the script starts inherit the environment.
    if place is None or os.getsid(0) != os.getpid():
        return
    run, index = place
    with suppress(OSError, TfckptError):
        # The launcher removed the heartbeats of earlier starts; another one is that of a trainer.
        if run.status_directory.is_dir() and not run.worker_status(index).exists():
            _write(run, index, Phase.PREPARE)


def report_start(phase: Phase) -> None:
    """Reports a phase of the start, in processes that the launcher started.

    Creating a multi-worker strategy waits for all workers. The heartbeats show which worker is
    missing.

    Raises:
        RefusedError: Another trainer writes these heartbeats, or a newer release wrote here.
    """
    end_watch()
    place = _launched_worker()
    if place is None:
        return
    run, index = place
    with explain_disk_errors(run):
        if not is_restart():
            run.require_changeable()
        run.create()
        refuse_another_trainer(run, index)
        _write(run, index, phase)


def _launched_worker() -> tuple[RunDirectory, int] | None:
    """Returns run directory and index of this worker; None if the launcher did not start it."""
    run_dir, index = os.environ.get("TFCKPT_RUN_DIR"), os.environ.get("TFCKPT_WORKER_INDEX")
    if run_dir is None or index is None or not index.isdecimal():
        return None
    return RunDirectory(Path(os.path.realpath(run_dir))), int(index)


def _write(run: RunDirectory, index: int, phase: Phase) -> None:
    # Whoever sees the heartbeat can ask.
    answer_before_run(run, index)
    now = time.time()
    store(
        run.worker_status(index),
        WorkerStatus(
            index=index,
            host=host_name(),
            **own_process()._asdict(),
            namespace=process_namespace(),
            directory=directory_of(run),
            updated_at=now,
            interval_seconds=START_SECONDS,
            activity=Activity.STARTING,
            step=0,
            phase=phase,
            phase_since=now,
        ),
        durable=False,
    )
