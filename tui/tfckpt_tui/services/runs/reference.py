"""What charts read beside the snapshots: earlier points, another run, another branch."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event

from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.catalog.scan.lineage import BranchStep, current_lineage, lineage_at
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.event_log import TAIL_BYTES, read_series
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import SeriesPoint
from tfckpt_trainer.user_directories import expand_user
from tfckpt_tui.charting.curves import kept_until
from tfckpt_tui.charting.measurements import main_metric, metric_of
from tfckpt_tui.charting.series import Series
from tfckpt_tui.charting.view import RunSeries
from tfckpt_tui.services.runs.brief_reading import read_info

_READING_SHARE = 0.02
"""The part of a core that reading a run again may take."""


class ReferenceReader:
    """Reads a run that other charts are compared with, and reads it again while it trains."""

    def __init__(self, directory: Path) -> None:
        """Makes the reader.

        Args:
            directory: The run directory.
        """
        self._directory = directory
        self._size = -1
        self._not_before = 0.0

    def read_new(self) -> RunSeries | None:
        """Returns what led to the present model of the run; None if nothing is new.

        A long series is read less often.

        Raises:
            UsageError: It has no measurements.
        """
        began = time.monotonic()
        try:
            size = RunDirectory(expand_user(self._directory)).series.stat().st_size
        except OSError:
            size = 0
        if size == self._size or began < self._not_before:
            return None
        reference = read_reference(self._directory)
        now = time.monotonic()
        self._size, self._not_before = size, now + (now - began) / _READING_SHARE
        return reference


def read_reference(directory: Path) -> RunSeries:
    """Reads what led to the present model of a run.

    Args:
        directory: The run directory.

    Raises:
        UsageError: It has no measurements.
    """
    run = RunDirectory(expand_user(directory))
    series = Series()
    for points in read_series(run):
        series.add(points)
    if not series.points:
        raise UsageError(
            f"{run.root} has no measurements. Give the directory of a run that "
            "trained with tfckpt_trainer."
        )
    branch = series.points[-1].branch
    checkpoints = Catalog(run).scan(time.time(), quick=True)
    kept = kept_until(current_lineage(checkpoints, branch), branch)
    info = read_info(run)
    epoch_steps = info.epoch_steps if info is not None else None
    name = run.root.name or str(run.root)
    return RunSeries(series.points, kept, name, epoch_steps).present()


def read_earlier(directory: Path, first: SeriesPoint, stop: Event) -> tuple[SeriesPoint, ...]:
    """Reads what a long series has before the part that the monitor reads.

    Args:
        directory: The run directory.
        first: The first point of that part.
        stop: Ends reading when it is set.

    Returns:
        Earlier points, downsampled; none if the monitor reads the whole series.
    """
    run = RunDirectory(directory)
    with suppress(OSError):
        if run.series.stat().st_size <= TAIL_BYTES:
            return ()
    series = Series()
    for points in read_series(run):
        earlier = [point for point in points if point.at < first.at]
        if not earlier or stop.is_set():
            break
        series.add(earlier)
    return series.points


def branch_reference(
    points: tuple[SeriesPoint, ...],
    checkpoints: Sequence[Checkpoint],
    branch: int,
    epoch_steps: int | None,
) -> RunSeries:
    """Returns what led to the last step of a branch.

    Args:
        points: The points of the run, oldest first.
        checkpoints: Its checkpoints, newest first.
        branch: A branch with points.
        epoch_steps: Steps of an epoch of the run; None if it does not tell.
    """
    last = max(point.step for point in points if point.branch == branch)
    kept = lineage_at(checkpoints, BranchStep(branch, last)).last_steps
    return RunSeries(points, dict(kept), f"branch {branch}", epoch_steps).present()


def good_branch(points: Sequence[SeriesPoint], present: int) -> int | None:
    """Returns the newest other branch whose main metric ended with a finite value.

    Args:
        points: The points of the run, oldest first.
        present: The branch in training.
    """
    value_of = metric_of(main_metric(points))
    last: dict[int, float] = {}
    for point in points:
        value = value_of(point)
        if value is not None:
            last[point.branch] = value
    good = (branch for branch, value in last.items() if math.isfinite(value) and branch != present)
    return max(good, default=None)
