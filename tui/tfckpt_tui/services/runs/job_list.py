"""The runs of a list with their batch jobs, and jobs of the user whose runs are not in the list."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from tfckpt_trainer.catalog.scan.alerts import silent_directory_alert
from tfckpt_trainer.launch.batch.jobs import ENDED, JobAnswer, JobReport, JobState
from tfckpt_trainer.launch.batch.scheduler import Scheduler
from tfckpt_trainer.launch.schedulers import SCHEDULER
from tfckpt_trainer.rundir.heartbeats.health import HAS_ENDED, RunState
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.job import BatchJob
from tfckpt_tui.services.batch.job_reader import (
    LONGEST_SILENT_SECONDS,
    RUNNING_SECONDS,
    SILENT_SECONDS,
    pause_after,
)
from tfckpt_tui.services.batch.job_view import JobView
from tfckpt_tui.services.runs.account import RunAccount, RunReading, give_account
from tfckpt_tui.services.runs.brief_reading import BriefReader
from tfckpt_tui.services.runs.failure import unreadable_alert
from tfckpt_tui.services.runs.open_run import require_readable
from tfckpt_tui.services.runs.process_watch import ProcessWatch, UsedDirectories
from tfckpt_tui.services.runs.timed_reads import ReadResult, TimedReads

ENDED_SECONDS = 10.0
"""After this long, a run that has ended is looked at again."""

LONG_ENDED_SECONDS = 30.0
"""The same of a run in which nothing happened for a day: a list may have thousands of them."""

_DAY = 86_400.0


class UnreadRun(NamedTuple):
    """A run that cannot be read, such as one of a colleague who closed it.

    Attributes:
        error: What the file system says.
    """

    error: OSError


_Read = ReadResult[RunReading | UnreadRun | None]


class ListReads:
    """Reads runs in threads. Runs that have ended are read less often.

    Of the others, only what changed is read again.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """Makes it.

        Args:
            clock: Returns seconds; never goes back.
        """
        self._clock = clock
        self._reads = TimedReads(self._read)
        self._readers: dict[Path, BriefReader] = {}
        self._answers: dict[Path, _Read] = {}
        self._due_at: dict[Path, float] = {}
        self._used = UsedDirectories(clock)
        self._watches: dict[Path, ProcessWatch] = {}

    def collect(self, roots: Iterable[Path], seconds: float) -> dict[Path, _Read]:
        """Returns what was read of each run; None of a directory that does not exist.

        Args:
            roots: The run directories.
            seconds: How long to wait for directories that do not answer.
        """
        now, wanted = self._clock(), list(dict.fromkeys(roots))
        due = [root for root in wanted if now >= self._due_at.get(root, now)]
        for root, answer in self._reads.collect(due, seconds).items():
            self._answers[root] = answer
            self._due_at[root] = now + _reading_pause(answer)
        for gone in self._answers.keys() - set(wanted):
            self._forget(gone)
        return {root: self._answers[root] for root in wanted}

    def _read(self, root: Path) -> RunReading | UnreadRun | None:
        if not root.is_dir():
            self._readers.pop(root, None)
            return None
        run = RunDirectory(root)
        reader = self._readers.get(root)
        if reader is None:
            reader = self._readers[root] = BriefReader(run, with_glance=True)
        try:
            require_readable(run)
            reading = reader.read(time.time())
            return self._with_processes(root, reading)
        except OSError as error:
            return UnreadRun(error)

    def _with_processes(self, root: Path, reading: RunReading) -> RunReading:
        """Adds the processes that train there without this library."""
        run = reading.run
        if not reading.may_have_others:
            return reading
        watch = self._watches.get(root)
        if watch is None:
            if not self._used.holds(root):
                return reading
            watch = ProcessWatch(run)
        processes = watch.look(time.time())
        if not processes:
            self._watches.pop(root, None)
            return reading
        # Between two saves, the process may have no file open.
        self._watches[root] = watch
        return replace(reading, processes=processes)

    def _forget(self, root: Path) -> None:
        for known in (self._answers, self._due_at, self._readers, self._watches):
            known.pop(root, None)


def _reading_pause(answer: _Read) -> float:
    """Returns for how many seconds a run need not be looked at."""
    reading = answer.result
    if isinstance(reading, UnreadRun):
        return ENDED_SECONDS
    if reading is None or answer.silent_seconds or reading.record is not None:
        return 0.0
    if reading.heartbeats.state not in HAS_ENDED or reading.processes:
        return 0.0
    return LONG_ENDED_SECONDS if time.time() - reading.active_at > _DAY else ENDED_SECONDS


ANSWER_TIMEOUT_SECONDS = 3.0
"""How long a list waits for directories that do not answer."""

_MOST_JOBS = 1000
"""How many jobs one question to the scheduler names."""


class JobList:
    """Adds batch jobs to lists of runs; asks the scheduler once for all jobs of the user."""

    def __init__(
        self, scheduler: Scheduler = SCHEDULER, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Creates a list.

        Args:
            scheduler: The scheduler that is asked.
            clock: Returns seconds; never goes back.
        """
        self._scheduler = scheduler
        self._clock = clock
        self._readings = ListReads(clock)
        self._known: dict[Path, tuple[RunReading, RunAccount]] = {}
        self._answer: JobAnswer | None = None
        self._due_at = float("-inf")
        self._others: dict[str, tuple[float, JobAnswer]] = {}

    def read(
        self,
        roots: Iterable[Path],
        *,
        with_others: bool,
        ask: bool = True,
        seconds: float = ANSWER_TIMEOUT_SECONDS,
    ) -> list[RunAccount]:
        """Returns the accounts of the runs that exist.

        Those with live processes come first, by name, then the one with the latest activity.

        Args:
            roots: The run directories.
            with_others: Whether to add the runs of all other jobs of the user.
            ask: Whether to ask the scheduler if it is time to, which takes seconds at worst.
            seconds: How long to wait for directories that do not answer.
        """
        if ask:
            self._ask_about_own()
        paths = [r if r.is_absolute() else Path(os.path.abspath(r)) for r in roots]
        jobs = self._answer.jobs.values() if self._answer is not None else ()
        more = roots_of_jobs(jobs) if with_others else []
        readings = self._readings.collect([*paths, *more], seconds)
        records = [_record_in(reading) for reading in readings.values()]
        if ask:
            self._ask_about_others(record for record in records if record is not None)
        listed = frozenset(paths)
        accounts: list[RunAccount] = []
        for root, read in readings.items():
            # Only directories with the record of a job are those of a job.
            if root in listed or _record_in(read) is not None:
                accounts += self._accounts(root, read)
        self._known = {root: known for root, known in self._known.items() if root in readings}
        return sorted(accounts, key=_place)

    def _ask_about_own(self) -> None:
        """Asks for the jobs of the user if it is time to."""
        if self._clock() >= self._due_at:
            self._answer = self._scheduler.read_own()
            self._due_at = self._clock() + _pause_after(self._answer)

    def _ask_about_others(self, records: Iterable[BatchJob]) -> None:
        """Asks once for jobs that are not among those of the user: forgotten, or another user's."""
        assert self._answer is not None
        if self._answer.problem:
            return
        now = self._clock()
        others = {
            record.id: record
            for record in records
            if record.scheduler == self._scheduler.name and record.id not in self._answer.jobs
        }
        due = sorted(job_id for job_id in others if now >= self._others.get(job_id, (now, None))[0])
        asked = [others[job_id] for job_id in due[:_MOST_JOBS]]
        answer = self._scheduler.read(asked) if asked else JobAnswer()
        for job_id in due[:_MOST_JOBS]:
            state = answer.jobs[job_id].state if job_id in answer.jobs else JobState.UNKNOWN
            pause = pause_after(state, silences=bool(answer.problem))
            self._others[job_id] = now + pause, answer

    def _accounts(self, root: Path, read: _Read) -> Sequence[RunAccount]:
        """Returns the account of a run; none if it does not exist."""
        reading = read.result
        if isinstance(reading, UnreadRun):
            return [_unread(root, reading.error)]
        if reading is None:
            return [_silent(RunAccount(time.time(), root), read)] if read.silent_seconds else []
        account = self._account(root, reading)
        return [_silent(account, read) if read.silent_seconds else account]

    def _account(self, root: Path, reading: RunReading) -> RunAccount:
        if reading.record is not None:
            return give_account(reading, self._newest_view(root, reading.record))
        known = self._known.get(root)
        if known is None or known[0] is not reading:
            known = self._known[root] = reading, give_account(reading, None)
        return known[1]

    def _newest_view(self, root: Path, record: BatchJob) -> JobView:
        """Returns the recorded job, or a later one that somebody submitted with the same script."""
        view = JobView.of(record, self._answer_on(record))
        own = self._answer
        if own is not None and (view.report is None or view.report.state in ENDED):
            later = _active_job_of(root, own.jobs.values())
            if later is not None:
                return JobView(_record_of(later, self._scheduler.name), later)
        return view

    def _answer_on(self, record: BatchJob) -> JobAnswer | None:
        """Returns the answer to the last question about a job; None without one."""
        own = self._answer
        if own is None or own.problem or record.id in own.jobs:
            return own
        return self._others[record.id][1] if record.id in self._others else None


def _place(account: RunAccount) -> tuple[bool, float, Path]:
    """Returns the place of a run in a list. All that are live are active now."""
    has_ended = account.state in HAS_ENDED and not account.has_other_trainer
    return has_ended, -account.active_at if has_ended else 0.0, account.root


def _record_in(read: _Read) -> BatchJob | None:
    return read.result.record if isinstance(read.result, RunReading) else None


def _unread(root: Path, error: OSError) -> RunAccount:
    """Returns what is known of a run that cannot be read."""
    alert = unreadable_alert(root, error)
    return replace(RunAccount(time.time(), root), state=RunState.UNKNOWN, alerts=(alert,))


def _silent(last: RunAccount, read: _Read) -> RunAccount:
    """Returns what was known of a run whose directory does not answer."""
    seconds = round(read.silent_seconds)
    words = f"no answer for {seconds} s" if seconds else "no answer yet"
    alert = silent_directory_alert(last.path, words)
    return replace(last, state=RunState.UNKNOWN, alerts=(alert,))


def roots_of_jobs(jobs: Iterable[JobReport]) -> list[Path]:
    """Returns the run directories whose kept batch scripts are waiting or running jobs.

    The scheduler knows the path of each script.
    """
    roots = []
    for job in jobs:
        root = _root_of(job)
        if root is not None and job.state not in ENDED and root.is_absolute():
            roots.append(root)
    return list(dict.fromkeys(roots))


def _root_of(job: JobReport) -> Path | None:
    """Returns the run directory of which a job runs the kept batch script."""
    script = Path(job.script)
    root = script.parent.parent
    return root if job.script and script == RunDirectory(root).job_script else None


def _active_job_of(root: Path, jobs: Iterable[JobReport]) -> JobReport | None:
    return next((j for j in jobs if _root_of(j) == root and j.state not in ENDED), None)


def _record_of(report: JobReport, scheduler: str) -> BatchJob:
    return BatchJob(
        scheduler=scheduler,
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
    return min([RUNNING_SECONDS, *(pause_after(job.state) for job in answer.jobs.values())])
