"""Asks the scheduler about the job of a run in a thread, so that snapshots never wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tfckpt_trainer.rundir.heartbeats.health import RunState
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.job import BatchJob
from tfckpt_tui.services.batch.job_reader import JobReader
from tfckpt_tui.services.batch.job_view import JobView


class JobWatch:
    """Asks the scheduler about a batch job in the background when an answer is due."""

    def __init__(self, reader: JobReader, on_answer: Callable[[], None]) -> None:
        """Creates a watch.

        Args:
            reader: Asks the scheduler.
            on_answer: Called after each answer, in the thread that asked.
        """
        self._reader = reader
        self._on_answer = on_answer
        self._asking: threading.Thread | None = None

    def look(
        self, run: RunDirectory, record: BatchJob | None, state: RunState, told_at: float = 0.0
    ) -> JobView | None:
        """Returns what is known about the job.

        Args:
            run: The run directory.
            record: The job of the run, if it has one.
            state: The state of the run, by heartbeats.
            told_at: Time of the newest entry about the job in the event log; 0 without one.
        """
        is_asking = self._asking is not None and self._asking.is_alive()
        if not is_asking and self._reader.is_due(record, state, told_at):
            # A daemon: closing the app does not wait for Slurm.
            self._asking = threading.Thread(
                target=self._ask, args=(run, record, state, told_at), name="batch job", daemon=True
            )
            self._asking.start()
        return self._reader.known(record)

    def _ask(
        self, run: RunDirectory, record: BatchJob | None, state: RunState, told_at: float
    ) -> None:
        self._reader.read(record, state, told_at, share=run)
        self._on_answer()
