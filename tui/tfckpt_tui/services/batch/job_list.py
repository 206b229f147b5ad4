"""The runs of a list with their batch jobs, and jobs of the user whose runs are not in the list."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from tfckpt_trainer.catalog.alerts import silent_directory_alert
from tfckpt_trainer.launch.slurm.commands import Runner, run_command
from tfckpt_trainer.launch.slurm.jobs import (
    ENDED,
    WAITING,
    JobAnswer,
    JobReport,
    read_jobs,
)
from tfckpt_trainer.rundir.health import HAS_ENDED, RunState
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.job import BatchJob
from tfckpt_tui.services.batch.job_reader import (
    LONGEST_SILENT_SECONDS,
    RUNNING_SECONDS,
    SILENT_SECONDS,
    SLURM,
    WAITING_SECONDS,
)
from tfckpt_tui.services.batch.job_view import JobView
from tfckpt_tui.services.runs.account import RunAccount, RunReading, give_account
from tfckpt_tui.services.runs.reading import read_run_briefly
from tfckpt_tui.services.runs.timed_reads import Answer, TimedReads

ANSWER_TIMEOUT_SECONDS = 3.0
"""How long a list waits for directories that do not answer."""


class JobList:
    """Adds batch jobs to lists of runs; asks Slurm once for all jobs of the user."""

    def __init__(
        self, runner: Runner = run_command, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Creates a list.

        Args:
            runner: Runs the commands of Slurm.
            clock: Returns seconds; never goes back.
        """
        self._runner = runner
        self._clock = clock
        self._readings = TimedReads(_read_if_exists)
        self._answer = JobAnswer()
        self._asked_at = float("-inf")
        self._pause = 0.0

    def read(
        self,
        roots: Iterable[Path],
        *,
        with_others: bool,
        ask: bool = True,
        seconds: float = ANSWER_TIMEOUT_SECONDS,
    ) -> list[RunAccount]:
        """Returns the accounts of the runs that exist.

        Those with live processes come first, then the one with the latest activity.

        Args:
            roots: The run directories.
            with_others: Whether to add the runs of all other jobs of the user.
            ask: Whether to ask Slurm if it is time to, which takes seconds at worst.
            seconds: How long to wait for directories that do not answer.
        """
        answer = self._ask() if ask else self._answer
        known = [Path(os.path.abspath(root)) for root in roots]
        more = roots_of_jobs(answer.jobs.values()) if with_others else []
        listed = frozenset(known)
        found: list[RunAccount] = []
        for root, read in self._readings.collect([*known, *more], seconds).items():
            reading = read.result
            # Only directories with the record of a job are those of a job.
            if root in listed or (reading is not None and reading.record is not None):
                found += _accounts(root, read, answer)
        return sorted(found, key=lambda one: (one.state in HAS_ENDED, -one.active_at))

    def _ask(self) -> JobAnswer:
        """Returns the jobs of the user, not older than the pause after the last question."""
        if self._clock() - self._asked_at >= self._pause:
            self._answer = read_jobs(runner=self._runner)
            self._asked_at = self._clock()
            self._pause = _pause_after(self._answer)
        return self._answer


def _read_if_exists(root: Path) -> RunReading | None:
    return read_run_briefly(RunDirectory(root), time.time()) if root.is_dir() else None


def _accounts(
    root: Path, read: Answer[RunReading | None], answer: JobAnswer
) -> Sequence[RunAccount]:
    """Returns the account of a run; none if it does not exist."""
    reading = read.result
    if reading is None:
        return [_silent(RunAccount(time.time(), root), read)] if read.silent_seconds else []
    view = _newest_view(root, reading.record, answer) if reading.record is not None else None
    account = give_account(reading, view)
    return [_silent(account, read) if read.silent_seconds else account]


def _silent(last: RunAccount, read: Answer[RunReading | None]) -> RunAccount:
    """Returns what was known of a run whose directory does not answer."""
    seconds = round(read.silent_seconds)
    words = f"no answer for {seconds} s" if seconds else "no answer yet"
    alert = silent_directory_alert(last.path, words)
    return replace(last, state=RunState.UNKNOWN, alerts=(alert,))


def roots_of_jobs(jobs: Iterable[JobReport]) -> list[Path]:
    """Returns the run directories whose kept batch scripts are waiting or running jobs.

    Slurm knows the path of each script.
    """
    found = []
    for job in jobs:
        root = _root_of(job)
        if root is not None and job.state not in ENDED and root.is_absolute():
            found.append(root)
    return list(dict.fromkeys(found))


def _root_of(job: JobReport) -> Path | None:
    """Returns the run directory of which a job runs the kept batch script."""
    script = Path(job.script)
    root = script.parent.parent
    return root if job.script and script == RunDirectory(root).job_script else None


def _newest_view(root: Path, record: BatchJob, answer: JobAnswer) -> JobView:
    """Returns the recorded job, or a later one that somebody submitted with the same script."""
    report = answer.report_on(record)
    if report is None or report.state in ENDED:
        later = _active_job_of(root, answer.jobs.values())
        if later is not None:
            return JobView(_record_of(later), later)
    return JobView(record, report)


def _active_job_of(root: Path, jobs: Iterable[JobReport]) -> JobReport | None:
    return next((j for j in jobs if _root_of(j) == root and j.state not in ENDED), None)


def _record_of(report: JobReport) -> BatchJob:
    return BatchJob(
        scheduler=SLURM,
        id=report.id,
        user=report.user,
        name=report.name,
        submitted_at=report.submitted_at or 0.0,
        script=report.script,
    )


def _pause_after(answer: JobAnswer) -> float:
    if not answer.is_present:
        return LONGEST_SILENT_SECONDS
    if answer.problem:
        return SILENT_SECONDS
    waits = any(job.state in WAITING for job in answer.jobs.values())
    return WAITING_SECONDS if waits else RUNNING_SECONDS
