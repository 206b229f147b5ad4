"""Reads the files of a run directory into a snapshot."""

from __future__ import annotations

import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint, CheckpointState
from tfckpt_trainer.catalog.directory.remembered_listing import (
    NAMES_REMEMBERED,
    DirectoryIdentity,
    directory_identity,
    is_settled_directory,
    remember_newest,
)
from tfckpt_trainer.catalog.directory.stored_results import result_directories
from tfckpt_trainer.catalog.directory.trash import list_trash
from tfckpt_trainer.catalog.scan.alerts import missing_directory_alert
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.catalog.scan.diagnostics import Diagnostic
from tfckpt_trainer.catalog.scan.lineage import BranchTips, Lineage, current_lineage
from tfckpt_trainer.catalog.scan.newest import scan_newest
from tfckpt_trainer.rundir.event_log import EventLogTail
from tfckpt_trainer.rundir.heartbeats.health import ProcessProbe
from tfckpt_trainer.rundir.heartbeats.process_table import process_lives
from tfckpt_trainer.rundir.paths import RunDirectory, is_plain_name
from tfckpt_trainer.rundir.records.command import Command
from tfckpt_trainer.rundir.records.event import EventEntry, SeriesPoint
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.records.trash import TrashManifest
from tfckpt_trainer.rundir.series import SERIES_BYTES, ThinnedPart
from tfckpt_trainer.rundir.storage.documents import ReadT, load_if_exists, try_read
from tfckpt_trainer.rundir.storage.filesystems import is_network_file_system
from tfckpt_tui.charting.series import Samples, Series
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.forecast import forecast
from tfckpt_tui.monitor.job_watch import JobWatch
from tfckpt_tui.monitor.snapshot import NewestRows, RunSnapshot
from tfckpt_tui.reports.run_facts import EventFileFacts
from tfckpt_tui.services.batch.job_reader import JobReader, last_told
from tfckpt_tui.services.exactness.stored_checks import with_stored_check
from tfckpt_tui.services.metrics.metric_tail import (
    RECENT_POINTS,
    MetricTail,
    newest_metrics,
    recorded_bytes,
)
from tfckpt_tui.services.runs.account import give_account
from tfckpt_tui.services.runs.failure import unreadable_alert
from tfckpt_tui.services.runs.file_changes import (
    FileLook,
    Kept,
    RecentLook,
    Signature,
    files_of_checkpoints,
    is_settled,
)
from tfckpt_tui.services.runs.open_run import require_readable
from tfckpt_tui.services.runs.process_watch import ProcessWatch
from tfckpt_tui.services.runs.reading import (
    EVENTS_KEPT,
    ProcessReader,
    as_problem,
    find_unreadable_outcomes,
    look_closely,
    with_checkpoints,
)

READ_SECONDS = 0.2
"""Seconds that a read takes at most, but for one block."""

FIRST_BYTES = 1 << 15
"""Bytes of the end of a long series that the first charts show."""

NEWEST_BYTES = 1 << 18
"""The same that is shown after them, until all of it is read."""

OUTCOMES_KEPT = 20
"""Maximum number of finished commands in a snapshot."""

FULL_READ_SECONDS = 15.0
"""Time after which everything is read again, even if no directory has changed."""

NETWORK_FULL_READ_SECONDS = 60.0
"""The same on a network disk; only a file that was changed in place is seen so late."""

DISK_SECONDS = 10.0
"""Interval at which a network disk is asked for its size and free space."""

DIAGNOSTIC_SECONDS = 3.0
"""Minimum time between diagnostics, while files change."""

CHECKPOINTS_PER_SECOND = 1000
"""Full reads and diagnostics come no sooner than a second for each so many.

So an open app on very many takes a few hundredths of a core.
"""


class SeriesReader:
    """Reads the series from its beginning, a part at a time.

    So a run is drawn alike whether it was followed for hours or opened now.
    """

    def __init__(self, run: RunDirectory) -> None:
        """Creates a reader.

        Args:
            run: The run directory.
        """
        self._run = run
        self._whole = _Followed(run)
        self._newest: _Followed | None = None
        self._reads = 0

    @property
    def has_read_all(self) -> bool:
        """Whether nothing is left for later reads."""
        return self._newest is None

    @property
    def measured(self) -> EventFileFacts | None:
        """The newest of the points that were read."""
        return (self._newest or self._whole).newest

    @property
    def thinned(self) -> ThinnedPart | None:
        """What the series tells of its thinned part; None if it is whole."""
        return (self._newest or self._whole).thinned

    def read(self) -> Samples:
        """Returns what is recorded; until all is read, the newest part of it."""
        self._reads += 1
        if self._reads == 1:
            if recorded_bytes(self._run) > NEWEST_BYTES:
                # The first charts wait for nothing else.
                return self._read_newest(FIRST_BYTES)
        elif self._reads == 2:
            self._newest = None
        until = time.monotonic() + READ_SECONDS
        while self._whole.read_block():
            if time.monotonic() >= until:
                return self._read_newest(NEWEST_BYTES)
        self._newest = None
        return self._whole.series.samples

    def _read_newest(self, size: int) -> Samples:
        self._newest = self._newest or _Followed(self._run, size)
        while self._newest.read_block():
            pass
        return self._newest.series.samples


class _Followed:
    """A series, and where the next points of it are read."""

    def __init__(self, run: RunDirectory, first: int = SERIES_BYTES) -> None:
        self.series = Series()
        self.newest_points: deque[SeriesPoint] = deque(maxlen=RECENT_POINTS)
        self._tail = MetricTail(run, first)

    @property
    def newest(self) -> EventFileFacts | None:
        """The newest of the points that were read."""
        return newest_metrics(self.newest_points, self._tail.has_all_files)

    @property
    def thinned(self) -> ThinnedPart | None:
        """What the series tells of its thinned part; None if it is whole."""
        return self._tail.thinned

    def read_block(self) -> bool:
        """Reads a block; returns whether there may be another."""
        before = self._tail.beginnings
        points = self._tail.read_new()
        if before and self._tail.beginnings != before:
            # Another file was put in place of the one that was read.
            self.series = Series()
            self.newest_points.clear()
        self.series.add(points)
        self.newest_points.extend(points)
        return self._tail.is_behind


class SnapshotReader:
    """Reads one run directory repeatedly, and caches what has not changed."""

    def __init__(
        self,
        run: RunDirectory,
        lives: ProcessProbe = process_lives,
        jobs: JobWatch | None = None,
    ) -> None:
        """Creates a reader.

        Args:
            run: The run directory.
            lives: Checks whether a process runs on this machine.
            jobs: Asks about the batch job of the run.
        """
        self._run = run
        self._is_network = is_network_file_system(run.root)
        self._full_read_seconds = (
            NETWORK_FULL_READ_SECONDS if self._is_network else FULL_READ_SECONDS
        )
        self._lives = lives
        self._jobs = jobs or JobWatch(JobReader(), _ignore)
        self._processes = ProcessWatch(run)
        self._identity: tuple[int, int] | None = None
        self._described: tuple[RunInfo | None, RunInfo | None] = None, None
        self._problems: list[str] = []
        self._forget()

    @property
    def has_read_all(self) -> bool:
        """Whether no index, record, result or part of the series is left for later reads."""
        return not self._catalog.deferred and self._series.has_read_all

    def read_newest(self, count: int, now: float) -> NewestRows | None:
        """Returns the newest checkpoints alone, before the first snapshot.

        Args:
            count: How many are shown.
            now: Seconds since the epoch.

        Returns:
            The checkpoints; None if a snapshot takes no longer.
        """
        checkpoints = try_read(lambda: scan_newest(self._run, count, now))
        return NewestRows(now, tuple(checkpoints)) if checkpoints else None

    def read(self, now: float, *, anew: bool = False) -> RunSnapshot:
        """Returns a snapshot of the run.

        Args:
            now: Seconds since the epoch.
            anew: Whether to look at all files, also on a network disk.
        """
        if anew:
            self._recent.forget()
        self._problems = []
        path = clean(str(self._run.root))
        try:
            require_readable(self._run)
        except PermissionError as error:
            return RunSnapshot(
                at=now,
                root=self._run.root,
                present=False,
                alerts=(unreadable_alert(self._run.root, error),),
                problems=(),
            )
        identity = self._identify()
        if identity is None:
            self._identity = None
            return RunSnapshot(
                at=now,
                root=self._run.root,
                present=False,
                alerts=(missing_directory_alert(path),),
                problems=tuple(self._problems),
            )
        if identity != self._identity:
            # The directory was replaced by another one.
            self._forget()
            self._identity = identity
        return self._read_present(now)

    def _read_info(self, look: FileLook, now: float) -> RunInfo | None:
        read = partial(load_if_exists, self._run.run_file, RunInfo)
        known = self._info.get(look.signature([self._run.run_file]), now, partial(try_read, read))
        # Why there is none is told each time.
        return known or self._try(read)

    def _with_check(self, info: RunInfo | None) -> RunInfo | None:
        """Adds the last check of the script; looked up again only if the description changed."""
        if info is not self._described[0]:
            self._described = info, info and with_stored_check(info, self._run)
        return self._described[1]

    def _read_present(self, now: float) -> RunSnapshot:
        run = self._run
        self._event_log.extend(self._event_tail.read_new())
        look = self._recent.take(now)
        info = self._with_check(self._read_info(look, now))
        samples = self._read_samples(look)
        reading = look_closely(self._process_reader.read(info, now, look, self._event_log))
        told_at = last_told(reading.event_log)
        job = self._jobs.look(run, reading.record, reading.heartbeats.state, told_at)
        checkpoints, trash = self._checkpoints(look, now), self._trash(look, now)
        tips = self._newest_branch_tips(trash)
        total, free = self._disk(now)
        diagnostics, finished = self._newest_diagnostics(now), self._outcomes(look, now)
        # Found with the diagnostics.
        unsupported = tuple(self._catalog.version_one)
        reading = with_checkpoints(reading, self._catalog, checkpoints, tips)
        reading = replace(
            reading,
            problems=(*reading.problems, *self._problems),
            measured=self._series.measured if info is None else None,
            processes=self._processes.look(now) if reading.may_have_others else (),
        )
        account = give_account(reading, job)
        return RunSnapshot.of(
            account,
            tracked=run.was_trained_here,
            checkpoints=checkpoints,
            start=reading.start,
            branch_tips=tips,
            lineage=self._newest_lineage(checkpoints, account.branch),
            diagnostics=diagnostics,
            version_one=unsupported,
            other_files=tuple(self._catalog.other_files),
            pending=reading.pending,
            working=tuple(command for command in reading.working if not command.state.is_final),
            finished=finished,
            event_log=reading.event_log,
            samples=samples,
            lacks_samples=not self._series.has_read_all,
            series_is_thinned=self._series.thinned is not None,
            trash=trash,
            disk_total=total,
            disk_free=free,
            disk_used=sum(c.size for c in checkpoints)
            + sum(checkpoint.size for checkpoint in unsupported)
            - self._catalog.shared_bytes,
            forecast=forecast(account, checkpoints, free, self._event_log, now),
        )

    def _forget(self) -> None:
        run = self._run
        self._catalog = Catalog(run)
        self._known: tuple[Checkpoint, ...] = ()
        self._remembered: DirectoryIdentity | None = None
        self._branch_tips = BranchTips()
        self._branch_tips_are_old = False
        self._lineage = Lineage()
        self._lineage_key: tuple[tuple[Checkpoint, ...], int] = (), 0
        self._diagnostics: tuple[Diagnostic, ...] = ()
        self._diagnostics_are_old = False
        self._diagnosed_at = 0.0
        self._diagnosis_holds = DIAGNOSTIC_SECONDS
        self._known_signature: Signature | None = None
        self._known_at = 0.0
        self._event_log: deque[EventEntry] = deque(maxlen=EVENTS_KEPT)
        self._event_tail = EventLogTail(run)
        self._series = SeriesReader(run)
        self._info = Kept[RunInfo | None]()
        self._process_reader = ProcessReader(run, self._lives, on_network=self._is_network)
        self._recent = RecentLook(run, on_network=self._is_network)
        self._samples_of: FileLook | None = None
        self._samples = Samples()
        self._done_names = Kept[frozenset[str]]()
        self._done_before: set[str] | None = None
        self._finished: dict[str, Command] = {}
        self._trash_known: tuple[TrashManifest, ...] = ()
        self._trash_signature: Signature | None = None
        self._disk_known = float("-inf"), 0, 0

    def _identify(self) -> tuple[int, int] | None:
        try:
            stats = os.stat(self._run.root)
            if not self._is_network:
                os.scandir(self._run.root).close()
        except FileNotFoundError:
            self._problems.append("The directory does not exist; waiting for it.")
            return None
        except OSError as error:
            self._problems.append(f"The directory cannot be read: {clean(error.strerror or '')}.")
            return None
        return stats.st_dev, stats.st_ino

    def _read_samples(self, look: FileLook) -> Samples:
        if look is not self._samples_of or not self._series.has_read_all:
            self._samples_of, self._samples = look, self._series.read()
        return self._samples

    def _checkpoints(self, look: FileLook, now: float) -> tuple[Checkpoint, ...]:
        run = self._run
        signature = look.signature([*files_of_checkpoints(run), *result_directories(run)])
        settled = (
            signature == self._known_signature
            and is_settled(signature, self._known_at)
            # Not negative: after the clock was set back, read everything again.
            and 0 <= now - self._known_at < self._spaced(self._full_read_seconds)
            and not self._catalog.deferred
            # The newest checkpoint, if it is being written, changes its state with time alone.
            and not any(c.state is CheckpointState.WRITING for c in self._known[:1])
        )
        if not settled:
            identity = self._try(lambda: directory_identity(run.root))
            checkpoints = self._try(lambda: self._catalog.scan(now, quick=True))
            if checkpoints is not None:
                self._branch_tips_are_old |= self._catalog.has_changed
                self._known, self._known_signature, self._known_at = checkpoints, signature, now
                self._diagnostics_are_old = True
                self._remember(identity, now)
        return self._known

    def _remember(self, identity: DirectoryIdentity | None, now: float) -> None:
        """Remembers the newest checkpoints for the next start, once there are no newer ones."""
        if identity is None or identity == self._remembered or len(self._known) <= NAMES_REMEMBERED:
            return
        if is_settled_directory(identity, now):
            self._remembered = identity
            remember_newest(self._run.root, identity, [c.name for c in self._known])

    def _newest_diagnostics(self, now: float) -> tuple[Diagnostic, ...]:
        """Returns the diagnostics, which cost more than a scan in a directory of thousands."""
        if self._diagnostics_are_old and not 0 <= now - self._diagnosed_at < self._diagnosis_holds:
            diagnostics = self._try(lambda: self._catalog.diagnostics(now))
            self._diagnostics = self._diagnostics if diagnostics is None else diagnostics
            self._diagnostics_are_old, self._diagnosed_at = False, now
            # A look in haste leaves out much: what it found holds no longer than with few.
            holds = DIAGNOSTIC_SECONDS
            self._diagnosis_holds = holds if self._catalog.deferred else self._spaced(holds)
        return self._diagnostics

    def _spaced(self, seconds: float) -> float:
        """Returns the seconds between looks that take the longer, the more checkpoints."""
        return max(seconds, len(self._known) / CHECKPOINTS_PER_SECOND)

    def _trash(self, look: FileLook, now: float) -> tuple[TrashManifest, ...]:
        signature = look.signature((self._run.trash,))
        if signature != self._trash_signature or not is_settled(signature, now):
            manifests = self._try(lambda: list_trash(self._run))
            if manifests is not None:
                self._trash_known, self._trash_signature = tuple(manifests), signature
                self._branch_tips_are_old = True
        return self._trash_known

    def _newest_branch_tips(self, trash: Sequence[TrashManifest]) -> BranchTips:
        if self._branch_tips_are_old:
            self._branch_tips = self._catalog.branch_tips(trash)
            self._branch_tips_are_old = False
        return self._branch_tips

    def _newest_lineage(self, checkpoints: tuple[Checkpoint, ...], branch: int) -> Lineage:
        if checkpoints is not self._lineage_key[0] or branch != self._lineage_key[1]:
            self._lineage = current_lineage(checkpoints, branch)
            self._lineage_key = checkpoints, branch
        return self._lineage

    def _outcomes(self, look: FileLook, now: float) -> tuple[Command, ...]:
        """Returns the commands that ended since the first read, oldest first."""
        done = self._run.done
        names = self._done_names.get(look.signature((done,)), now, partial(_documents_in, done))
        if self._done_before is None:
            self._done_before = set(names - find_unreadable_outcomes(self._run).keys())
        for name in sorted(names - self._done_before):
            command = self._try(partial(load_if_exists, done / name, Command))
            if command is not None and command.state.is_final:
                self._finished[command.id] = command
                self._done_before.add(name)
        while len(self._finished) > OUTCOMES_KEPT:
            self._finished.pop(next(iter(self._finished)))
        return tuple(self._finished.values())

    def _disk(self, now: float) -> tuple[int | None, int | None]:
        known_at, total, free = self._disk_known
        if self._is_network and 0 <= now - known_at < DISK_SECONDS:
            return total, free
        try:
            usage = shutil.disk_usage(self._run.root)
        except OSError:
            return None, None
        self._disk_known = now, usage.total, usage.free
        return usage.total, usage.free

    def _try(self, read: Callable[[], ReadT]) -> ReadT | None:
        return try_read(read, lambda error: self._problems.append(as_problem(error)))


def _ignore() -> None:
    return


def _documents_in(directory: Path) -> frozenset[str]:
    try:
        with os.scandir(directory) as entries:
            names = [entry.name for entry in entries if is_plain_name(entry.name)]
    except OSError:
        return frozenset()
    return frozenset(name for name in names if name.endswith(".json"))
