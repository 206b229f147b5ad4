"""The runs of a list with their batch jobs, and jobs of the user whose runs are not in the list."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
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
from tfckpt_trainer.rundir.storage.filesystems import is_network_file_system
from tfckpt_tui.services.batch.job_reader import (
    LONGEST_SILENT_SECONDS,
    RUNNING_SECONDS,
    SILENT_SECONDS,
    pause_after,
)
from tfckpt_tui.services.batch.job_view import JobView
from tfckpt_tui.services.runs.account import RunAccount, RunReading, give_account
from tfckpt_tui.services.runs.brief_reading import BriefReader, signs_of_start
from tfckpt_tui.services.runs.failure import unreadable_alert
from tfckpt_tui.services.runs.file_changes import may_keep, signature_of
from tfckpt_tui.services.runs.list_turns import ListTurns, Looked
from tfckpt_tui.services.runs.open_run import require_readable
from tfckpt_tui.services.runs.process_watch import ProcessWatch, UsedDirectories
from tfckpt_tui.services.runs.remembered_list import RememberedRun, remember_run_as
from tfckpt_tui.services.runs.timed_reads import ReadResult, TimedReads

ENDED_SECONDS = 10.0
"""After this long, a run that has ended is looked at again."""

LONG_ENDED_SECONDS = 30.0
"""The same of a run in which nothing happened for a day: a list may have thousands of them."""

WHOLE_SECONDS = 15.0
"""Interval at which one run that was only remembered is read."""

_HOUR = 3_600.0
_DAY = 86_400.0


class UnreadRun(NamedTuple):
    """A run that cannot be read, such as one of a colleague who closed it.

    Attributes:
        error: What the file system says.
    """

    error: OSError


class UnseenRun(NamedTuple):
    """A run that is remembered, and was not looked at yet.

    Attributes:
        remembered: What is remembered.
    """

    remembered: RememberedRun


_Result = RunReading | RememberedRun | UnseenRun | UnreadRun | None

_Read = ReadResult[_Result]


class ListReads:
    """Reads runs in threads. Runs that have ended are read less often.

    Of the others, only what changed is read again.

    Attributes:
        unseen: How many runs the last call left for the next one.
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
        self._turns = ListTurns(clock)
        self._remembered: dict[Path, RememberedRun] = {}
        self._heartbeats = TimedReads(_heard_at)
        self._heard_at: dict[Path, float] = {}
        self._on_network: dict[Path, bool] = {}
        self._only_recent = False
        self._whole_at = clock()
        self._used = UsedDirectories(clock)
        self._watches: dict[Path, ProcessWatch] = {}
        self.unseen = 0

    def recall(self, runs: Iterable[RememberedRun], *, only_recent: bool = False) -> None:
        """Is told what is remembered of runs that were not looked at yet.

        Args:
            runs: The runs.
            only_recent: Whether a run is read anew if it was read long ago, though it seems not to
                have changed. Otherwise these are read later, one after the other.
        """
        self._remembered = {run.account.root: run for run in runs}
        self._only_recent = only_recent

    def collect(
        self,
        roots: Iterable[Path],
        seconds: float,
        *,
        most: int | None = None,
        awaited: AbstractSet[Path] = frozenset(),
    ) -> dict[Path, _Read]:
        """Returns what was read of each run; None of a directory that does not exist.

        Args:
            roots: The run directories.
            seconds: How long to wait for directories that do not answer.
            most: How many runs on network disks are looked at for the first time; None for all.
                Of the others, there is an answer only if they are remembered.
            awaited: Runs whose batch jobs wait or run.
        """
        wanted = list(dict.fromkeys(roots))
        for root in awaited:
            # A start may leave no sign for some time.
            self._remembered.pop(root, None)
        new = [root for root in wanted if root not in self._answers]
        first = new if most is None else self._first_of(new, most, seconds)
        seen = [root for root in wanted if root in self._answers]
        due = [*first, *self._turns.choose(seen, awaited), *self._next_whole(seen)]
        for root, answer in self._reads.collect(due, seconds).items():
            self._answers[root] = answer
            self._turns.note(root, self._looked(root, answer))
        for gone in self._answers.keys() - set(wanted):
            self._forget(gone)
        self.unseen = len(new) - len(first)
        found = {root: self._answers.get(root) or self._unseen(root) for root in wanted}
        return {root: answer for root, answer in found.items() if answer is not None}

    def remembered(self, account: RunAccount) -> RememberedRun:
        """Returns what is remembered of a run that was looked at."""
        root, now = account.root, time.time()
        answer = self._answers.get(root)
        if answer is not None and isinstance(answer.result, RememberedRun):
            return answer.result._replace(looked_at=now)
        if account.remembered_for is not None and root in self._remembered:
            return self._remembered[root]
        reader = self._readers.get(root)
        return remember_run_as(account, reader.signs if reader is not None else (), now)

    def _counts(self, known: RememberedRun) -> bool:
        """Whether what is remembered counts as read if the signs are the same."""
        return not self._only_recent or may_keep(known.signs, known.account.at, time.time())

    def _first_of(self, roots: Sequence[Path], most: int, seconds: float) -> list[Path]:
        """Returns all runs on local disks, and of those on network disks first those that go on.

        Args:
            roots: Runs that were not looked at yet.
            most: How many on network disks.
            seconds: How long to wait for directories that do not answer.
        """
        on_network = [root for root in roots if self._is_on_network(root)]
        if len(on_network) > most > 0:
            asked = [r for r in on_network if r not in self._remembered and r not in self._heard_at]
            for root, answer in self._heartbeats.collect(asked, seconds).items():
                self._heard_at[root] = answer.result or 0.0
        first = sorted(on_network, key=self._place_among_new)[:most]
        local = set(roots) - set(on_network)
        return [*(root for root in roots if root in local), *first]

    def _place_among_new(self, root: Path) -> tuple[int, float]:
        """Returns the place of a run in the first looks: first those that went on."""
        known, heard_at = self._remembered.get(root), self._heard_at.get(root, 0.0)
        if known is None:
            return 1, -heard_at
        return (2 if known.account.state in HAS_ENDED else 0), 0.0

    def _unseen(self, root: Path) -> _Read | None:
        known = self._remembered.get(root)
        return ReadResult(UnseenRun(known)) if known is not None else None

    def _next_whole(self, roots: Iterable[Path]) -> list[Path]:
        """Returns one of the runs that were only remembered, from time to time, to be read."""
        now = self._clock()
        if now < self._whole_at + WHOLE_SECONDS:
            return []
        self._whole_at = now
        runs = {root: self._answers[root].result for root in roots}
        known = {root: run for root, run in runs.items() if isinstance(run, RememberedRun)}
        if not known:
            return []
        oldest = min(known, key=lambda root: known[root].account.at)
        self._remembered.pop(oldest, None)
        return [oldest]

    def _is_on_network(self, root: Path) -> bool:
        """Whether a run is on a network disk, as the directory that contains it."""
        above = root.parent
        if above not in self._on_network:
            self._on_network[above] = is_network_file_system(above)
        return self._on_network[above]

    def _looked(self, root: Path, answer: _Read) -> Looked:
        is_network = self._is_on_network(root)
        reading = answer.result
        return Looked(
            at=self._clock(),
            pause=_pause_on_network(answer) if is_network else _reading_pause(answer),
            is_network=is_network,
            goes_on=_goes_on(answer),
            workers=len(reading.heartbeats.statuses) if isinstance(reading, RunReading) else 0,
        )

    def _read(self, root: Path) -> _Result:
        if not root.is_dir():
            self._readers.pop(root, None)
            return None
        run = RunDirectory(root)
        known = self._remembered.get(root)
        if known is not None and known.signs and self._counts(known):
            if signature_of(signs_of_start(run)) == known.signs:
                return known
            self._remembered.pop(root, None)
        reader = self._readers.get(root)
        if reader is None:
            reader = self._readers[root] = BriefReader(
                run, with_glance=True, on_network=self._is_on_network(root)
            )
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
        for known in (self._answers, self._readers, self._watches, self._heard_at):
            known.pop(root, None)
        self._turns.forget(root)


def _heard_at(root: Path) -> float:
    """Returns when the chief wrote its last heartbeat, by the clock of the disk; 0 without one."""
    try:
        return RunDirectory(root).worker_status(0).lstat().st_mtime
    except OSError:
        return 0.0


def _goes_on(answer: _Read) -> bool:
    """Whether a run has live processes, or may have some elsewhere."""
    reading = answer.result
    if isinstance(reading, UnreadRun | RememberedRun | UnseenRun):
        return False
    if reading is None or answer.silent_seconds:
        return True
    if reading.heartbeats.state not in HAS_ENDED or reading.processes:
        return True
    # Without this library, files alone tell that training goes on.
    return reading.info is None and time.time() - reading.active_at < _HOUR


def _pause_on_network(answer: _Read) -> float:
    """Returns for how many seconds a run on a network disk need not be looked at."""
    reading = answer.result
    if isinstance(reading, RunReading) and time.time() - reading.active_at <= _DAY:
        return ENDED_SECONDS
    return LONG_ENDED_SECONDS


def _reading_pause(answer: _Read) -> float:
    """Returns for how many seconds a run need not be looked at."""
    reading = answer.result
    if isinstance(reading, UnreadRun | RememberedRun | UnseenRun):
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
        self._records: dict[Path, BatchJob] = {}
        self._answer: JobAnswer | None = None
        self._due_at = float("-inf")
        self._others: dict[str, tuple[float, JobAnswer]] = {}

    @property
    def unseen(self) -> int:
        """How many runs the last read left for the next one."""
        return self._readings.unseen

    def recall(self, runs: Iterable[RememberedRun], *, only_recent: bool = False) -> None:
        """Is told what is remembered of runs; see `ListReads.recall`."""
        self._readings.recall(runs, only_recent=only_recent)

    def remembered(self, accounts: Iterable[RunAccount]) -> list[RememberedRun]:
        """Returns what is remembered of runs that were read here."""
        return [self._readings.remembered(account) for account in accounts]

    def read(
        self,
        roots: Iterable[Path],
        *,
        with_others: bool,
        ask: bool = True,
        seconds: float = ANSWER_TIMEOUT_SECONDS,
        most: int | None = None,
    ) -> list[RunAccount]:
        """Returns the accounts of the runs that exist.

        Those with live processes come first, by name, then the one with the latest activity.

        Args:
            roots: The run directories.
            with_others: Whether to add the runs of all other jobs of the user.
            ask: Whether to ask the scheduler if it is time to, which takes seconds at worst.
            seconds: How long to wait for directories that do not answer.
            most: How many runs on network disks are looked at for the first time; None for all.
                The others are in the list only if they are remembered.
        """
        if ask:
            self._ask_about_own()
        paths = [r if r.is_absolute() else Path(os.path.abspath(r)) for r in roots]
        jobs = self._answer.jobs.values() if self._answer is not None else ()
        more = roots_of_jobs(jobs) if with_others else []
        awaited = self._awaited()
        readings = self._readings.collect([*paths, *more], seconds, most=most, awaited=awaited)
        records = [_record_in(reading) for reading in readings.values()]
        if ask:
            self._ask_about_others(record for record in records if record is not None)
        listed = frozenset(paths)
        accounts: list[RunAccount] = []
        for root, read in readings.items():
            # Only directories with the record of a job are those of a job.
            if root in listed or _record_in(read) is not None:
                accounts += self._accounts(root, read)
        self._records = {
            root: record
            for root, reading in readings.items()
            if (record := _record_in(reading)) is not None
        }
        self._known = {root: known for root, known in self._known.items() if root in readings}
        return sorted(accounts, key=_place)

    def _awaited(self) -> frozenset[Path]:
        """Returns the runs whose batch jobs wait or run, as the scheduler said last."""
        own = self._answer.jobs if self._answer is not None else {}
        answers = (self._answer_on(record) for record in self._records.values())
        reports = (
            answer.jobs.get(record.id) if answer is not None else None
            for record, answer in zip(self._records.values(), answers, strict=True)
        )
        by_record = (
            root
            for root, report in zip(self._records, reports, strict=True)
            if report is not None and report.state not in ENDED
        )
        return frozenset([*by_record, *roots_of_jobs(own.values())])

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
        if isinstance(reading, RememberedRun):
            last = reading.account
            return [_silent(last, read) if read.silent_seconds else last]
        if isinstance(reading, UnseenRun):
            known = reading.remembered
            age = max(0.0, time.time() - known.looked_at)
            return [replace(known.account, remembered_for=age)]
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
    if isinstance(read.result, RememberedRun):
        job = read.result.account.job
        return job.record if job is not None else None
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
