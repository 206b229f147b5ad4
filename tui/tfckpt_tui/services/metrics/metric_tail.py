"""Reads the metrics of a run as they are recorded, whoever recorded them."""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from itertools import islice, pairwise
from pathlib import Path, PurePath
from typing import NamedTuple

from tfckpt_trainer.catalog.directory.other_formats import is_event_file
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import SeriesPoint
from tfckpt_trainer.rundir.series import RECENT_BYTES, SERIES_BYTES, SeriesTail, ThinnedPart
from tfckpt_trainer.rundir.storage.tail import Tail
from tfckpt_tui.formats.metric_names import main_of
from tfckpt_tui.reports.run_facts import EventFileFacts
from tfckpt_tui.services.metrics.csv_files import SUFFIXES, CsvLogTail, is_csv_log
from tfckpt_tui.services.metrics.event_files import EventFileTail

LOOK_SECONDS = 5.0
"""Time after which new event files are looked for."""

MOST_FILES = 256
"""Event files that are read at most: those with the newest names of each directory."""

MOST_CSV_FILES = 16
"""Files that may be of a `CSVLogger`, and are looked into."""

MOST_DIRECTORIES = 256
"""Directories that are searched for event files at most; those near the top come first."""

MOST_ENTRIES = 20_000
"""Files and directories that such a search looks at."""

RECENT_POINTS = 48
"""Newest points that lists and rates are made of."""

_LEAST_BYTES = 1 << 13


class MetricTail:
    """Reads the new metrics of a run, a block at a time.

    They come from the series of the run. Without one, or with a `logdir`, they come from
    TensorBoard event files and those of Keras's `CSVLogger`, in the directory and below it. If
    event files are in several directories, a name is `DIRECTORY/NAME`, as TensorBoard names runs.
    A file of a `CSVLogger` counts as a directory.

    Attributes:
        beginnings: How often it began to read: more than once if files were replaced or moved.
        is_behind: Whether the last read left something that is there already.
        has_all_files: Whether all event files are read, rather than the first `MOST_FILES`.
    """

    def __init__(
        self,
        run: RunDirectory,
        first: int = SERIES_BYTES,
        clock: Callable[[], float] = time.monotonic,
        *,
        repeats: bool = True,
    ) -> None:
        """Creates a reader.

        Args:
            run: The run directory.
            first: Bytes at the end of the record in which the first read begins.
            clock: Returns seconds, for when new event files are looked for.
            repeats: Whether to return all points again if another series was put in place, rather
                than those that are newer.
        """
        self._series = SeriesTail(run, first)
        self._first = first
        self._run = run
        self._clock = clock
        self._files: dict[Path, Tail[SeriesPoint]] = {}
        self._base = ""
        self._looked_at: float | None = None
        self._repeats = repeats
        self._newest_at = self._known_until = -math.inf
        self.beginnings = 0
        self.is_behind = False
        self.has_all_files = True

    @property
    def thinned(self) -> ThinnedPart | None:
        """What the series tells of its thinned part, as of the last read; None if it is whole."""
        return self._series.thinned

    def read_new(self) -> list[SeriesPoint]:
        """Returns the points recorded since the last call; none if there is no record."""
        if self._run.logdir is not None:
            # Somebody asked for these.
            return self._read_events()
        before = self._series.beginnings
        points = self._series.read_new()
        if self._series.beginnings:
            self.beginnings += self._series.beginnings - before
            self.is_behind = self._series.is_behind
            self._files = {}
            if before and self._series.beginnings != before:
                self._known_until = self._newest_at
            return points if self._repeats else self._newer_of(points)
        return self._read_events()

    def _newer_of(self, points: list[SeriesPoint]) -> list[SeriesPoint]:
        """Returns the points that an earlier series did not have."""
        newer = [point for point in points if point.at > self._known_until]
        self._newest_at = max([self._newest_at, *(point.at for point in newer)])
        return newer

    def _read_events(self) -> list[SeriesPoint]:
        now = self._clock()
        if self._looked_at is None or now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            self._look()
        self.is_behind = False
        points: list[SeriesPoint] = []
        for tail in self._files.values():
            begun = tail.beginnings
            points += tail.read_new()
            if begun and tail.beginnings != begun:
                self._forget()
                self._looked_at, self.is_behind = None, True
                return []
            if tail.is_behind:
                # The files are read one after the other, oldest first.
                self.is_behind = True
                break
        return points

    def _forget(self) -> None:
        """Has the next reads begin again: all points come once more."""
        self._files = {}
        self.beginnings += 1

    def _look(self) -> None:
        """Finds new event files."""
        found = find_metric_files(self._run)
        self.has_all_files = found.are_all
        paths = found.paths
        base = os.path.commonpath(list(map(_directory_of, paths))) if paths else ""
        if self._files and base != self._base:
            # The metrics get other names.
            self._forget()
        if paths:
            self.beginnings = max(1, self.beginnings)
        self._base = base
        first = max(_LEAST_BYTES, self._first // max(1, len(paths)))
        for path in paths:
            if path not in self._files:
                directory = PurePath(os.path.relpath(_directory_of(path), base)).as_posix()
                prefix = "" if directory == "." else f"{directory}/"
                is_csv = path in found.csv_logs
                tail = CsvLogTail(path, prefix) if is_csv else EventFileTail(path, prefix, first)
                self._files[path] = tail


class RecentMetrics:
    """Keeps the newest metrics of a run."""

    def __init__(self, run: RunDirectory) -> None:
        """Creates a reader.

        Args:
            run: The run directory.
        """
        self._tail = MetricTail(run, RECENT_BYTES)
        self._points: tuple[SeriesPoint, ...] = ()

    @property
    def newest(self) -> EventFileFacts | None:
        """The newest of the points that were read."""
        return newest_metrics(self._points, self._tail.has_all_files)

    def read(self) -> Sequence[SeriesPoint]:
        """Returns the newest points, oldest first; the same object until there are more."""
        begun = self._tail.beginnings
        found = self._tail.read_new()
        while self._tail.is_behind:
            found += self._tail.read_new()
        if begun and self._tail.beginnings != begun:
            self._points = ()
        if found:
            points = sorted([*self._points, *found], key=lambda point: point.at)
            self._points = tuple(points[-RECENT_POINTS:])
        return self._points


def read_metrics(run: RunDirectory, first: int = SERIES_BYTES) -> Iterator[list[SeriesPoint]]:
    """Yields the metrics of a run in blocks, as `MetricTail` reads them.

    Args:
        run: The run directory.
        first: Bytes at the end of the record in which the first read begins.
    """
    tail = MetricTail(run, first, repeats=False)
    yield tail.read_new()
    while tail.is_behind:
        yield tail.read_new()


def recorded_bytes(run: RunDirectory) -> int:
    """Returns the size of what `read_metrics` reads; 0 if there is nothing."""
    with suppress(OSError):
        return run.series.stat().st_size
    size = 0
    for path in find_metric_files(run).paths:
        with suppress(OSError):
            size += path.lstat().st_size
    return size


def has_events_alone(run: RunDirectory) -> bool:
    """Whether a directory has event files, of which none has a scalar.

    Args:
        run: The run directory.
    """
    return bool(find_metric_files(run).events) and not any(map(bool, read_metrics(run)))


def newest_metrics(points: Sequence[SeriesPoint], has_all_files: bool) -> EventFileFacts | None:
    """Returns the newest of some points with its rate; None without points.

    Args:
        points: Points of event files.
        has_all_files: Whether they are of all event files.
    """
    ordered = sorted((point for point in points if point.metrics), key=lambda point: point.at)
    if not ordered:
        return None
    # A program may count epochs beside steps, each for some metrics. A restart goes back in all.
    newest_of = {name: point for point in ordered for name in point.metrics}
    last = max(newest_of.values(), key=lambda point: (point.step, point.at))
    name = next(iter(last.metrics))
    own = [point for point in ordered if name in point.metrics]
    main = main_of(newest_of)
    return EventFileFacts(
        step=last.step,
        unit="epoch" if all(map(_is_of_epochs, last.metrics)) else "step",
        at=ordered[-1].at,
        step_seconds=_pace(own),
        loss=newest_of[main].metrics[main] if "loss" in main else None,
        most_files=None if has_all_files else MOST_FILES,
    )


def _pace(points: Sequence[SeriesPoint]) -> float | None:
    """Returns the seconds of a step since the last restart; None if they are unknown.

    It is the median, so that an outage does not count.
    """
    steps = list(pairwise(points))
    begun = max((n for n, (one, other) in enumerate(steps) if other.step < one.step), default=-1)
    # Lines of a `CSVLogger` that were read at once have one time.
    paces = sorted(
        (later.at - earlier.at) / (later.step - earlier.step)
        for earlier, later in steps[begun + 1 :]
        if later.at > earlier.at and later.step > earlier.step
    )
    # `statistics` takes a tenth of the time of `status` to import.
    return paces[len(paces) // 2] if paces else None


def _is_of_epochs(name: str) -> bool:
    """Whether Keras writes a metric of this name once an epoch, with its number as the step."""
    return PurePath(name).name.startswith("epoch_")


class MetricFiles(NamedTuple):
    """The files of a directory that have metrics.

    Both lists are in the order of the names, in each directory; those near the top come first.

    Attributes:
        events: TensorBoard event files.
        are_all: Whether there are no other event files: the search for them has its limits.
        csv_logs: The files of Keras's `CSVLogger`.
    """

    events: list[Path]
    are_all: bool
    csv_logs: list[Path]

    @property
    def paths(self) -> list[Path]:
        """All of them."""
        return [*self.events, *self.csv_logs]


def find_metric_files(run: RunDirectory) -> MetricFiles:
    """Returns the files with metrics in a run directory and below it, or in its `logdir`.

    No link is followed, and hidden directories, such as `.tfckpt`, are left out.

    Args:
        run: The run directory.
    """
    waiting = deque([run.root if run.logdir is None else run.logdir])
    events: list[Path] = []
    tables: list[Path] = []
    files, directories, entries = 0, 0, 0
    while waiting and directories < MOST_DIRECTORIES and entries < MOST_ENTRIES:
        place = waiting.popleft()
        names, below, looked_at = _look_into(place, MOST_ENTRIES - entries)
        of_events = sorted(filter(is_event_file, names))
        if of_events and not _reads_event_files():
            of_events = []
        events += [place / name for name in of_events[-MOST_FILES:]]
        tables += [place / name for name in sorted(names) if name.endswith(SUFFIXES)]
        waiting.extend(place / name for name in sorted(below))
        files, directories, entries = files + len(of_events), directories + 1, entries + looked_at
    are_all = not waiting and files <= MOST_FILES and entries < MOST_ENTRIES
    csv_logs = [path for path in tables[:MOST_CSV_FILES] if is_csv_log(path)]
    return MetricFiles(events[:MOST_FILES], are_all, csv_logs)


def _directory_of(path: Path) -> Path:
    return path.parent if is_event_file(path.name) else path.with_suffix("")


@cache
def _reads_event_files() -> bool:
    """Whether the packages that read event files are installed; some remove them."""
    try:
        return all(map(find_spec, ("tensorboard", "google.protobuf")))
    except ModuleNotFoundError:
        return False


def _look_into(place: Path, most: int) -> tuple[list[str], list[str], int]:
    """Returns the files and the directories in a directory, and how many names it read."""
    names: list[str] = []
    below: list[str] = []
    looked_at = 0
    with suppress(OSError), os.scandir(place) as listed:
        for entry in islice(listed, most):
            looked_at += 1
            if entry.is_dir(follow_symlinks=False):
                if not entry.name.startswith("."):
                    below.append(entry.name)
            elif entry.is_file(follow_symlinks=False):
                names.append(entry.name)
    return names, below, looked_at
