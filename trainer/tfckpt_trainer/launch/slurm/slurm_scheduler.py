"""Slurm as a scheduler of batch jobs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from tfckpt_trainer.launch.batch.jobs import JobAnswer
from tfckpt_trainer.launch.options import LaunchOptions, LaunchRecord
from tfckpt_trainer.launch.slurm.commands import Runner, run_command
from tfckpt_trainer.launch.slurm.job_queries import (
    cancel_recorded_job,
    read_jobs,
    read_recorded_jobs,
)
from tfckpt_trainer.launch.slurm.submission import (
    adopt_job,
    last_slurm_options,
    new_job,
    submit,
    submit_script,
)
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.job import BatchJob


class Slurm:
    """Slurm, asked by the commands that its users have; see `Scheduler`."""

    name = "slurm"

    def __init__(self, runner: Runner = run_command) -> None:
        """Makes it.

        Args:
            runner: Runs its commands.
        """
        self._runner = runner

    def check(self, options: LaunchOptions) -> None:
        """Checks what a launch asks of it, without asking it."""
        # Imported here: commands that look at jobs submit none, and start no step.
        from tfckpt_trainer.launch.slurm.batch_script import check_request

        check_request(options)

    def submit(self, run: RunDirectory, options: LaunchOptions, by: str = "") -> BatchJob:
        """Submits the job of a run, whose directory exists, and records it."""
        return submit(run, options, by, self._runner)

    def has_launched(self, run: RunDirectory) -> bool:
        """Whether the last launch of a run was a job of it."""
        return last_slurm_options(run) is not None

    def submit_again(
        self, run: RunDirectory, script: Path, by: str, before: BatchJob | None
    ) -> BatchJob:
        """Submits a batch script that a launch has left, with the options of that launch."""
        asked = last_slurm_options(run)
        job_id, cluster = submit_script(run, script, by, self._runner)
        job = new_job(run, job_id, cluster, asked)
        if before is None:
            return job
        return replace(
            job,
            cluster=job.cluster or before.cluster,
            user=before.user,
            name=before.name,
            script=before.script,
            max_requeues=before.max_requeues if asked is None else asked.max_requeues,
        )

    def adopt(self, run: RunDirectory, by: str = "") -> BatchJob | None:
        """Makes the job of an unanswered submission that of the run, if there is one."""
        return adopt_job(run, by, self._runner)

    def read(self, jobs: Iterable[BatchJob]) -> JobAnswer:
        """Asks once about recorded jobs."""
        return read_recorded_jobs(jobs, runner=self._runner)

    def read_own(self) -> JobAnswer:
        """Asks once about all jobs of the user of this process."""
        return read_jobs(runner=self._runner)

    def script(self, run: RunDirectory, options: LaunchOptions) -> str:
        """Returns the batch script that `submit` would submit."""
        from tfckpt_trainer.launch.slurm.batch_script import batch_script

        return batch_script(run, options)

    def silence_seconds(self, options: LaunchRecord) -> float:
        """Returns after which silence of a node the workers of a job are started again."""
        from tfckpt_trainer.launch.slurm.job_step import silence_seconds

        return silence_seconds(options)

    def cancel(self, run: RunDirectory, job: BatchJob, *, only_waiting: bool = False) -> None:
        """Cancels the job of a run."""
        cancel_recorded_job(run, job, only_waiting=only_waiting, runner=self._runner)
