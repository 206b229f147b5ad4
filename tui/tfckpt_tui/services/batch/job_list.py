"""The runs of a list with their batch jobs, and jobs of the user whose runs are not in the list."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from tfckpt_trainer.launch.slurm.commands import Runner, run_command
from tfckpt_trainer.launch.slurm.jobs import (
    ENDED,
    WAITING,
    JobAnswer,
    JobReport,
    read_jobs,
)
from tfckpt_trainer.rundir.health import HAS_ENDED
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.job import BatchJob
from tfckpt_tui.services.batch.job_alerts import find_job_alerts
from tfckpt_tui.services.batch.job_reader import (
    LONGEST_SILENT_SECONDS,
    RUNNING_SECONDS,
    SILENT_SECONDS,
    SLURM,
    WAITING_SECONDS,
)
from tfckpt_tui.services.batch.job_view import JobView, state_with_job
from tfckpt_tui.settings.recent_runs import RunSummaries, RunSummary

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
        self._summaries = RunSummaries()
        self._answer = JobAnswer()
        self._asked_at = float("-inf")
        self._pause = 0.0

    def summarize(
        self,
        roots: Iterable[Path],
        *,
        with_others: bool,
        ask: bool = True,
        seconds: float = ANSWER_TIMEOUT_SECONDS,
    ) -> list[RunSummary]:
        """Summarizes the runs that exist, the one with the latest activity first.

        Args:
            roots: The run directories.
            with_others: Whether to add the runs of all other jobs of the user.
            ask: Whether to ask Slurm if it is time to, which takes seconds at worst.
            seconds: How long to wait for directories that do not answer.
        """
        answer = self._ask() if ask else self._answer
        known = {Path(os.path.abspath(root)) for root in roots}
        more = roots_of_jobs(answer.jobs.values()) if with_others else []
        read, now = self._summaries.read([*known, *more], seconds), time.time()
        # Only directories with the record of a job are those of a job.
        found = [_with_job(one, answer, now) for one in read if one.root in known or one.record]
        return sorted(found, key=lambda one: -one.active_at)

    def _ask(self) -> JobAnswer:
        """Returns the jobs of the user, not older than the pause after the last question."""
        if self._clock() - self._asked_at >= self._pause:
            self._answer = read_jobs(runner=self._runner)
            self._asked_at = self._clock()
            self._pause = _pause_after(self._answer)
        return self._answer


def _with_job(summary: RunSummary, answer: JobAnswer, now: float) -> RunSummary:
    record = summary.record
    if record is None:
        return summary
    view = _newest_view(summary.root, record, answer)
    heard_at = summary.heard_at
    state = state_with_job(summary.state, view, heard_at, reported=summary.reported)
    alerts = find_job_alerts(summary.root, state, view, heard_at, now)
    return replace(
        summary,
        state=state,
        alerts=(*(alert.title for alert in alerts), *summary.alerts),
        job=_short(view, runs=state not in HAS_ENDED),
        active_at=max(summary.active_at, record.submitted_at),
    )


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


def _short(view: JobView, *, runs: bool) -> str:
    """Returns the job in a few words: its ID, and why it waits or how it ended."""
    words: Sequence[str] = [view.word, view.reason]
    told = ", ".join(word for word in words if word)
    if told:
        return f"{view.record.id} {told}"
    return view.record.id if runs else ""


def _pause_after(answer: JobAnswer) -> float:
    if not answer.is_present:
        return LONGEST_SILENT_SECONDS
    if answer.problem:
        return SILENT_SECONDS
    waits = any(job.state in WAITING for job in answer.jobs.values())
    return WAITING_SECONDS if waits else RUNNING_SECONDS
