"""One run in Python: its checkpoints, metrics, lineage and state at one moment."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.catalog.scan.lineage import lineage_at, lineage_of
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.heartbeats.health import RunState
from tfckpt_trainer.rundir.records.event import SeriesPoint
from tfckpt_trainer.rundir.storage.tail import TAIL_BYTES
from tfckpt_tui.formats import units
from tfckpt_tui.formats.checkpoint_columns import COLUMNS, CheckpointRow
from tfckpt_tui.formats.text import clean
from tfckpt_tui.reading.checkpoint_reader import CheckpointReader, open_checkpoint
from tfckpt_tui.reading.notebook import html_table
from tfckpt_tui.services.checkpoints.choose import find_checkpoint
from tfckpt_tui.services.metrics.metric_tail import read_metrics
from tfckpt_tui.services.runs.account import RunAccount, RunReading
from tfckpt_tui.services.runs.open_run import open_run as open_directory
from tfckpt_tui.services.runs.reading import read_account

_SHOWN = 50
"""Checkpoints that a notebook shows."""


@dataclass(frozen=True)
class MetricCurve:
    """The values of one metric, in the order in which training reported them.

    Attributes:
        steps: The step of each value. After a restore, smaller steps follow larger ones.
        branches: The branch of each value.
        values: The values; NaN stands for NaN and infinity.
        times: When each was reported, in seconds since the epoch.
    """

    steps: NDArray[np.int64]
    branches: NDArray[np.int64]
    values: NDArray[np.float64]
    times: NDArray[np.float64]

    def to_pandas(self) -> Any:
        """Returns the values as a `pandas.DataFrame`, one row for each.

        Its columns are those of `tfckpt-tui metrics`: `at`, `step`, `branch` and `value`.

        Raises:
            UsageError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise UsageError(
                "A DataFrame needs pandas, which is not installed. Install it with "
                "`pip install pandas`."
            ) from error
        return pd.DataFrame(
            {"at": self.times, "step": self.steps, "branch": self.branches, "value": self.values}
        )


def open_run(path: str | os.PathLike[str]) -> RunReader:
    """Reads a run, or any directory of TensorFlow checkpoints, as it is now.

    Args:
        path: The directory. Call this again for what changed since.

    Raises:
        UsageError: It does not exist, or has no checkpoints.
        DamagedFileError: The description of the run cannot be read.
        OSError: It cannot be read.
    """
    return RunReader(*read_account(open_directory(os.fspath(path)), time.time()))


class RunReader:
    """A run at the moment at which it was opened.

    Attributes:
        path: The run directory.
        checkpoints: All checkpoints, newest first.
    """

    def __init__(self, reading: RunReading, account: RunAccount) -> None:
        self.path: Path = reading.run.root
        self.checkpoints: tuple[Checkpoint, ...] = tuple(reading.checkpoints)
        self._run = reading.run
        self._account = account

    @property
    def state(self) -> RunState:
        """What the run does, as `status` says it: `training`, `finished`, `failed`, …"""
        return self._account.state

    @property
    def reason(self) -> str:
        """Why, as sentences; empty if there is nothing to say."""
        return self._account.reason

    @property
    def step(self) -> int | None:
        """The step that training has reached, or from which the next start continues."""
        return self._account.step

    @property
    def total_steps(self) -> int | None:
        """The last step of the run, if it is known."""
        return self._account.total_steps

    @property
    def branch(self) -> int:
        """The branch of `step`."""
        return self._account.branch

    @property
    def alerts(self) -> tuple[str, ...]:
        """Problems of the run, the most urgent first, as sentences."""
        return tuple(f"{alert.message} {alert.advice}".strip() for alert in self._account.alerts)

    @property
    def metrics(self) -> Mapping[str, MetricCurve]:
        """The metrics that the run reported, by name; read now, from the newest 8 MiB of them.

        Those of TensorBoard event files, if it reported none to this library.
        """
        points = [point for some in read_metrics(self._run, first=TAIL_BYTES) for point in some]
        names = dict.fromkeys(name for point in points for name in point.metrics)
        return {name: _curve(name, points) for name in names}

    def lineage(self, checkpoint: str | int | None = None) -> tuple[str, ...]:
        """Returns the checkpoints that training passed on the way to one of them, newest first.

        Args:
            checkpoint: Name or step; by default, where training is now.

        Raises:
            UsageError: There is none, or several have the step.
        """
        if checkpoint is None:
            return lineage_at(self.checkpoints, self._account.position).names
        return lineage_of(self.checkpoints, self._find(checkpoint).name).names

    def open(self, checkpoint: str | int | None = None) -> CheckpointReader:
        """Opens a checkpoint; see `open_checkpoint`.

        Args:
            checkpoint: Name or step; by default, the one from which a start continues.

        Raises:
            UsageError: There is none, or several have the step.
            BundleError: Its index is damaged.
            OSError: Its index cannot be read.
        """
        return open_checkpoint(self.path / self._find(checkpoint).name)

    def _find(self, checkpoint: str | int | None) -> Checkpoint:
        text = None if checkpoint is None else str(checkpoint)
        return find_checkpoint(self.checkpoints, text)

    def __repr__(self) -> str:
        return f"<RunReader {str(self.path)!r}: {self._words()}>"

    def _repr_html_(self) -> str:
        columns = [column for column in COLUMNS if column.ls]
        shown = [CheckpointRow(checkpoint, self._account.at) for checkpoint in self.checkpoints]
        rows = [[clean(column.printed_text(row)) for column in columns] for row in shown]
        header = [column.ls.lower() for column in columns]
        return html_table(f"{self.path}: {self._words()}", header, rows, _SHOWN)

    def _words(self) -> str:
        step = "" if self.step is None else f" at step {self.step:,}"
        return f"{self._account.words}{step}, {units.count(len(self.checkpoints), 'checkpoint')}"


def _curve(name: str, points: Iterable[SeriesPoint]) -> MetricCurve:
    reported = [point for point in points if name in point.metrics]
    values: list[Any] = [point.metrics[name] for point in reported]
    return MetricCurve(
        steps=np.array([point.step for point in reported], np.int64),
        branches=np.array([point.branch for point in reported], np.int64),
        values=np.array([math.nan if value is None else value for value in values], np.float64),
        times=np.array([point.at for point in reported], np.float64),
    )
