"""Reads what the account of a run is made from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.catalog.directory.trash import list_trash
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.catalog.scan.lineage import BranchTips
from tfckpt_trainer.errors import describe_error
from tfckpt_trainer.launch.batch.job_record import read_job_record
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.heartbeats.attention import look_at
from tfckpt_trainer.rundir.heartbeats.clock import known_ahead
from tfckpt_trainer.rundir.heartbeats.gathered import WorkerReader
from tfckpt_trainer.rundir.heartbeats.health import (
    HAS_ENDED,
    ProcessProbe,
    is_late,
    start_was_chosen,
)
from tfckpt_trainer.rundir.heartbeats.process_table import process_lives
from tfckpt_trainer.rundir.heartbeats.reading import read_supervisor
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import Command
from tfckpt_trainer.rundir.records.event import EventEntry
from tfckpt_trainer.rundir.records.job import BatchJob
from tfckpt_trainer.rundir.records.run import RunInfo, SupervisorStatus
from tfckpt_trainer.rundir.storage.documents import OnError, load_if_exists, try_read
from tfckpt_tui.formats.text import clean
from tfckpt_tui.services.batch.job_reader import JobReader, last_told
from tfckpt_tui.services.runs.account import (
    RunAccount,
    RunReading,
    find_next_start,
    give_account,
)
from tfckpt_tui.services.runs.file_changes import FileLook, Signature, may_keep
from tfckpt_tui.services.runs.heartbeats import Heartbeats
from tfckpt_tui.services.runs.process_watch import ProcessWatch

SHOWN_PROBLEMS = 10
"""How many of the files that cannot be read are named."""

EVENTS_KEPT = 500
"""Entries of the event log that an account considers."""

OUTCOMES_READ = 20
"""How many outcomes of commands are read: a network disk takes long to open hundreds of files."""


def read_whole_run(run: RunDirectory, info: RunInfo | None, now: float) -> RunReading:
    """Reads a run with all its checkpoints.

    Args:
        run: The run directory.
        info: The description of the run.
        now: Seconds since the epoch.

    Raises:
        OSError: The directory cannot be read.
    """
    reading = look_closely(ProcessReader(run).read(info, now, FileLook()))
    if info is None:
        # Imported here: a run of this library tells its step itself.
        from tfckpt_tui.services.metrics.metric_tail import RecentMetrics

        event_files = RecentMetrics(run)
        event_files.read()
        reading = replace(reading, measured=event_files.newest)
    catalog = Catalog(run)
    checkpoints = catalog.scan(now)
    return with_checkpoints(reading, catalog, checkpoints, catalog.branch_tips(list_trash(run)))


def read_account(
    run: RunDirectory,
    now: float,
    jobs: JobReader | None = None,
    processes: ProcessWatch | None = None,
) -> tuple[RunReading, RunAccount]:
    """Returns what `read_whole_run` reads, and the account of the run.

    Args:
        run: The run directory.
        now: Seconds since the epoch.
        jobs: Asks about the batch job of the run; keep it for repeated reads, so that the
            scheduler is asked less often.
        processes: Looks at the processes of this host; by default nobody does.

    Raises:
        DamagedFileError: The description of the run cannot be read.
        OSError: The directory cannot be read.
    """
    reading = read_whole_run(run, load_if_exists(run.run_file, RunInfo), now)
    outcomes = map(as_problem, find_unreadable_outcomes(run).values())
    reading = replace(
        reading,
        problems=(*reading.problems, *outcomes),
        processes=processes.look(now) if processes is not None and reading.may_have_others else (),
    )
    job = (jobs or JobReader()).read(
        reading.record, reading.heartbeats.state, last_told(reading.event_log), share=run
    )
    return reading, give_account(reading, job)


def event_directory(run: RunDirectory) -> Path:
    """Returns the directory of the event files; the run directory if `run.json` is missing."""
    info = load_if_exists(run.run_file, RunInfo)
    return run.root if info is None else run.root / info.tensorboard


class ProcessReader:
    """Reads one run without its checkpoints, again and again."""

    def __init__(
        self, run: RunDirectory, lives: ProcessProbe = process_lives, *, on_network: bool = False
    ) -> None:
        """Begins with nothing.

        Args:
            run: The run directory.
            lives: Checks whether a process runs on this machine.
            on_network: Whether it is on a network disk, where calls cost much.
        """
        self._run = run
        self._lives = lives
        self._is_network = on_network
        self._workers = WorkerReader(run)
        self._look: FileLook | None = None
        self._supervisor: SupervisorStatus | None = None
        self._job: BatchJob | None = None
        self._slow_errors: list[Exception] = []
        self._empty: tuple[Signature, float] | None = None

    def read(
        self,
        info: RunInfo | None,
        now: float,
        look: FileLook,
        event_log: Iterable[EventEntry] | None = None,
    ) -> RunReading:
        """Returns what the files say; but for the heartbeats of workers, once for each look.

        Args:
            info: The description of the run.
            now: Seconds since the epoch.
            look: What the files are; the same one as before if they count as unchanged.
            event_log: The newest entries of the event log if they are known, oldest first.
        """
        run = self._run
        errors: list[Exception] = []
        count = info.worker_count if info is not None else None
        statuses = self._workers.read(count, now, errors.append)
        self._read_slow(look, now)
        errors += self._slow_errors
        heartbeats = Heartbeats.judge(statuses, self._supervisor, now, self._lives)
        chief = heartbeats.chief
        pending, working = self._read_queue(look, now, errors.append)
        return RunReading(
            run,
            heartbeats,
            info,
            self._job,
            tuple(read_entries(run, newest=EVENTS_KEPT) if event_log is None else event_log),
            start_is_chosen=chief is not None and start_was_chosen(run, chief, now),
            pending=pending,
            working=working,
            clock_ahead=known_ahead(run),
            problems=as_problems(errors),
        )

    def _read_slow(self, look: FileLook, now: float) -> None:
        """Reads what changes with a look, or is due."""
        supervisor = self._supervisor
        is_due = supervisor is not None and is_late(supervisor, now)
        if look is self._look and not is_due:
            return
        self._look, self._slow_errors = look, []
        self._supervisor = read_supervisor(self._run, self._slow_errors.append)
        self._job = read_job_record(self._run, self._slow_errors.append)

    def _read_queue(
        self, look: FileLook, now: float, on_error: OnError
    ) -> tuple[tuple[Command, ...], tuple[Command, ...]]:
        """Returns the commands that wait and those that are worked on.

        On a network disk, directories that were empty are read again once they have changed.
        """
        boxes = look.signature([self._run.inbox, self._run.active]) if self._is_network else ()
        if self._is_network and self._empty is not None:
            known, read_at = self._empty
            if known == boxes and may_keep(known, read_at, now):
                return (), ()
        errors: list[Exception] = []
        queue = CommandQueue(self._run, errors.append)
        # In this order, none is missed that is accepted in between.
        pending = try_read(queue.pending, errors.append) or ()
        working = try_read(queue.working, errors.append) or ()
        for error in errors:
            on_error(error)
        self._empty = None if pending or working or errors else (boxes, now)
        return tuple(pending), tuple(working)


def look_closely(reading: RunReading) -> RunReading:
    """Has the processes of a run that was read, if they live, write a heartbeat each second."""
    if reading.heartbeats.state not in HAS_ENDED:
        look_at(reading.run)
    return reading


def find_unreadable_outcomes(run: RunDirectory) -> dict[str, Exception]:
    """Returns which of the newest outcomes of commands cannot be read, by file name, and why."""
    errors: dict[str, Exception] = {}
    for path in sorted(run.done.glob("*.json"))[-OUTCOMES_READ:]:
        note = partial(errors.__setitem__, path.name)
        try_read(partial(load_if_exists, path, Command), note)
    return errors


def as_problems(errors: Sequence[Exception]) -> tuple[str, ...]:
    """Returns why files cannot be read, safe to show; of many, the first ones and a number."""
    more = len(errors) - SHOWN_PROBLEMS
    shown = tuple(map(as_problem, errors[:SHOWN_PROBLEMS]))
    return (*shown, f"{more:,} more files cannot be read.") if more > 0 else shown


def as_problem(error: Exception) -> str:
    """Returns why a file cannot be read, safe to show."""
    return clean(describe_error(error))


def with_checkpoints(
    reading: RunReading, catalog: Catalog, checkpoints: Sequence[Checkpoint], tips: BranchTips
) -> RunReading:
    """Adds the checkpoints to what was read of a run.

    Args:
        reading: What was read.
        catalog: The catalog of the run, scanned.
        checkpoints: All checkpoints, newest first.
        tips: The tips of all branches.
    """
    return replace(
        reading,
        start=find_next_start(checkpoints, catalog.resumed, tips),
        latest=catalog.latest,
        checkpoints=checkpoints,
        tips=tips,
        newer_records=catalog.newer_records,
        saved_at=max((checkpoint.saved_at for checkpoint in checkpoints[:1]), default=0.0),
    )
