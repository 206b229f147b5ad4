"""What charts read beside the snapshots: another run, another branch."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path

from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.catalog.scan.lineage import BranchStep, current_lineage, lineage_at
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.machine.user_directories import expand_user
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.charting.curves import kept_until
from tfckpt_tui.charting.series import STEP, VALUE, Samples, Series
from tfckpt_tui.charting.view import RunSeries
from tfckpt_tui.formats.metric_names import main_of
from tfckpt_tui.services.metrics.metric_tail import read_metrics, recorded_bytes
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
        size = recorded_bytes(RunDirectory(expand_user(self._directory)))
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
    samples = read_samples(run)
    if samples.newest is None:
        raise UsageError(
            f"{run.root} has no measurements. Give the directory of a run that "
            "trained with tfckpt_trainer, or that has TensorBoard event files."
        )
    branch = samples.newest.branch
    checkpoints = Catalog(run).scan(time.time(), quick=True)
    kept = kept_until(current_lineage(checkpoints, branch), branch)
    info = read_info(run)
    epoch_steps = info.epoch_steps if info is not None else None
    name = run.root.name or str(run.root)
    return RunSeries(samples, kept, name, epoch_steps).present()


def read_samples(run: RunDirectory) -> Samples:
    """Returns what charts show of the whole series of a run."""
    series = Series()
    for points in read_metrics(run):
        series.add(points)
    return series.samples


def branch_reference(
    samples: Samples, checkpoints: Sequence[Checkpoint], branch: int, epoch_steps: int | None
) -> RunSeries:
    """Returns what led to the last step of a branch.

    Args:
        samples: The values of the run.
        checkpoints: Its checkpoints, newest first.
        branch: A branch with values.
        epoch_steps: Steps of an epoch of the run; None if it does not tell.
    """
    segments = (one for channel in samples.channels.values() for one in channel.segments)
    last = int(max(one.last[STEP] for one in segments if one.branch == branch))
    kept = lineage_at(checkpoints, BranchStep(branch, last)).last_steps
    return RunSeries(samples, dict(kept), f"branch {branch}", epoch_steps).present()


def good_branch(samples: Samples, present: int) -> int | None:
    """Returns the newest other branch whose main metric ended with a finite value.

    Args:
        samples: The values of the run.
        present: The branch in training.
    """
    segments = samples.segments(main_of(samples.metrics))
    last = {segment.branch: segment.last[VALUE] for segment in segments}
    good = (branch for branch, value in last.items() if math.isfinite(value) and branch != present)
    return max(good, default=None)
