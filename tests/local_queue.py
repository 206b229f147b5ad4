"""A scheduler without Slurm: jobs are processes of this machine, one after the other."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

import psutil
from msgspec.structs import replace

from tfckpt_trainer.errors import LaunchError
from tfckpt_trainer.launch.batch.jobs import JobAnswer, JobReport, JobState
from tfckpt_trainer.launch.options import LaunchOptions, LaunchRecord
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.job import BatchJob
from tfckpt_trainer.rundir.storage.documents import store


class LocalQueue:
    """Runs one batch script at a time; see `Scheduler`."""

    name = "local"

    def __init__(self) -> None:
        self._jobs: dict[str, JobReport] = {}
        self._running: tuple[str, subprocess.Popen[bytes]] | None = None

    def check(self, options: LaunchOptions) -> None:
        """Takes any launch."""
        del options

    def submit(self, run: RunDirectory, options: LaunchOptions, by: str = "") -> BatchJob:
        """Submits the command of a launch."""
        run.job_script.write_text(self.script(run, options))
        job = self.submit_again(run, run.job_script, by, None)
        store(run.job_file, job)
        return job

    def has_launched(self, run: RunDirectory) -> bool:
        """Whether the last launch left a script."""
        return run.job_script.exists()

    def submit_again(
        self, run: RunDirectory, script: Path, by: str, before: BatchJob | None
    ) -> BatchJob:
        """Puts a script at the end of the queue."""
        del by, before
        report = JobReport(
            id=str(len(self._jobs) + 1),
            name=run.root.name,
            state=JobState.QUEUED,
            user=psutil.Process().username(),
            partition="",
            working_directory=str(run.root),
            script=str(script),
            submitted_at=time.time(),
        )
        self._jobs[report.id] = report
        self._go_on()
        return BatchJob(
            scheduler=self.name,
            id=report.id,
            user=report.user,
            name=report.name,
            submitted_at=report.submitted_at or 0.0,
            script=str(script.relative_to(run.root)),
        )

    def adopt(self, run: RunDirectory, by: str = "") -> BatchJob | None:
        """Adopts nothing: each submission is answered."""
        del run, by

    def read(self, jobs: Iterable[BatchJob]) -> JobAnswer:
        """Tells of jobs."""
        self._go_on()
        return JobAnswer({job.id: self._jobs[job.id] for job in jobs if job.id in self._jobs})

    def read_own(self) -> JobAnswer:
        """Tells of all jobs."""
        self._go_on()
        return JobAnswer(dict(self._jobs))

    def script(self, run: RunDirectory, options: LaunchOptions) -> str:
        """Returns the batch script."""
        del run
        return f"exec {' '.join(options.command)}\n"

    def silence_seconds(self, options: LaunchRecord) -> float:
        """Returns zero: this machine hears of the end of its own process."""
        del options
        return 0.0

    def cancel(self, run: RunDirectory, job: BatchJob, *, only_waiting: bool = False) -> None:
        """Takes a job out of the queue, or ends its process."""
        del run
        if job.id not in self._jobs:
            raise LaunchError(f"There is no job {job.id}.")
        if self._running is not None and self._running[0] == job.id:
            if only_waiting:
                return
            self._running[1].terminate()
            self._running[1].wait()
            self._running = None
        self._set(job.id, state=JobState.CANCELLED)
        self._go_on()

    def close(self) -> None:
        """Ends what runs, and starts nothing more."""
        self._jobs.clear()
        if self._running is not None:
            self._running[1].kill()
            self._running[1].wait()

    def _set(self, job_id: str, **facts: object) -> None:
        self._jobs[job_id] = replace(self._jobs[job_id], **facts)

    def _go_on(self) -> None:
        """Takes note of the end of the job that runs, and starts the next one."""
        if self._running is not None and self._running[1].poll() is not None:
            job_id, process = self._running
            state = JobState.FAILED if process.returncode else JobState.FINISHED
            self._set(job_id, state=state)
            self._running = None
        waiting = [job for job in self._jobs.values() if job.state is JobState.QUEUED]
        if self._running is None and waiting:
            process = subprocess.Popen(["sh", waiting[0].script], cwd=waiting[0].working_directory)
            self._running = waiting[0].id, process
            self._set(waiting[0].id, state=JobState.RUNNING, started_at=time.time())
