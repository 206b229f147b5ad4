"""What a scheduler of batch jobs can do for a run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from tfckpt_trainer.launch.batch.jobs import JobAnswer
from tfckpt_trainer.launch.options import LaunchOptions, LaunchRecord
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.job import BatchJob


class Scheduler(Protocol):
    """Takes batch jobs, and tells of them."""

    @property
    def name(self) -> str:
        """Its name in the records of jobs."""

    def check(self, options: LaunchOptions) -> None:
        """Checks what a launch asks of it, without asking it.

        Raises:
            UsageError: It cannot be asked for this.
        """

    def submit(self, run: RunDirectory, options: LaunchOptions, by: str = "") -> BatchJob:
        """Submits the job of a run, whose directory exists, and records it.

        Args:
            run: The run directory.
            options: The options of the launch, with those for the scheduler.
            by: Who asks, for the event log.

        Raises:
            LaunchError: It refuses the job, or does not answer and may have accepted it.
            OSError: The run directory cannot be written.
        """

    def has_launched(self, run: RunDirectory) -> bool:
        """Whether the last launch of a run was a job of it."""

    def submit_again(
        self, run: RunDirectory, script: Path, by: str, before: BatchJob | None
    ) -> BatchJob:
        """Submits a batch script that a launch has left, with the options of that launch.

        Args:
            run: The run directory.
            script: The batch script.
            by: Who asks, for the event log.
            before: The job of the run before; the new one takes over what was recorded of it.

        Returns:
            The record of the job, which is not stored.

        Raises:
            LaunchError: It refuses the job, or does not answer and may have accepted it.
        """

    def adopt(self, run: RunDirectory, by: str = "") -> BatchJob | None:
        """Makes the job of an unanswered submission that of the run, if there is one.

        Args:
            run: The run directory.
            by: Who asks, for the event log.

        Returns:
            The job; None if there is none, or if it is recorded already.

        Raises:
            LaunchError: It cannot be asked.
            OSError: The run directory cannot be written.
        """

    def read(self, jobs: Iterable[BatchJob]) -> JobAnswer:
        """Asks once about recorded jobs. A scheduler that does not answer is an answer too."""

    def read_own(self) -> JobAnswer:
        """Asks once about all jobs of the user of this process, as `read` does."""

    def script(self, run: RunDirectory, options: LaunchOptions) -> str:
        """Returns the batch script that `submit` would submit."""

    def silence_seconds(self, options: LaunchRecord) -> float:
        """Returns after which silence of a node the workers of a job are started again."""

    def cancel(self, run: RunDirectory, job: BatchJob, *, only_waiting: bool = False) -> None:
        """Cancels the job of a run.

        Args:
            run: The run directory.
            job: The job.
            only_waiting: Whether to leave the job alone if it has started meanwhile.

        Raises:
            LaunchError: Another user could have recorded it, or it was not cancelled.
        """
