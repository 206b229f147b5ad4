"""The immutable snapshot of a run. The monitor makes it, and the widgets show it."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.catalog.directory.other_formats import OtherFile
from tfckpt_trainer.catalog.directory.version_one import VersionOne
from tfckpt_trainer.catalog.scan.diagnostics import PRUNE_DAMAGED, Diagnostic
from tfckpt_trainer.catalog.scan.lineage import BranchTips, Lineage
from tfckpt_trainer.rundir.records.command import Command
from tfckpt_trainer.rundir.records.event import EventEntry
from tfckpt_trainer.rundir.records.trash import TrashManifest
from tfckpt_tui.charting.series import Samples
from tfckpt_tui.formats.text import clean
from tfckpt_tui.services.runs.account import NextStart, RunAccount


class Forecast(msgspec.Struct, frozen=True):
    """Forecasts from the current rates; None if there is too little data.

    Attributes:
        seconds_left: Until training reaches its last step.
        disk_full_seconds: Until the disk is full, at the rate of the newest saves.
        save_share: Part of the time that saving takes, 0 to 1.
        save_interval: Seconds between saves.
        best_interval: Seconds between saves that lose the least time, to saves and to failures;
            None before the first failure.
    """

    seconds_left: float | None = None
    disk_full_seconds: float | None = None
    save_share: float | None = None
    save_interval: float | None = None
    best_interval: float | None = None


class NewestRows(msgspec.Struct, frozen=True):
    """The newest checkpoints, to be shown until the first snapshot has all.

    It is no snapshot: without one, no action on checkpoints is available.

    Attributes:
        at: When they were read, in seconds since the epoch.
        checkpoints: Newest first; the head is not determined.
    """

    at: float
    checkpoints: tuple[Checkpoint, ...]


class RunSnapshot(RunAccount, frozen=True):
    """The account of a run, with everything else that the app shows of it.

    Attributes:
        present: Whether the directory exists and can be read.
        tracked: Whether this library or its launcher was used in the directory.
        checkpoints: All checkpoints, newest first.
        start: What the next start continues from; None if nothing can be restored.
        version_one: Checkpoints in TensorFlow's V1 format, which is not supported.
        other_files: Files of other formats, such as those of Keras, newest first.
        branch_tips: The tips of all branches; checkpoints in the trash count.
        lineage: What the present model was trained on.
        diagnostics: Problems of the directory.
        pending: Commands that no trainer has received, oldest first.
        working: Commands in progress, oldest first.
        finished: Commands that ended since the app was opened, oldest first.
        event_log: The newest entries, oldest first.
        samples: What was measured, for the charts.
        lacks_samples: Whether the older part of a long series is still being read.
        series_is_thinned: Whether the record itself lacks older values.
        trash: Contents of the trash, newest first.
        disk_total: Bytes of the file system; None if unknown.
        disk_free: Free bytes of the file system; None if unknown.
        disk_used: Bytes of all checkpoints; a file with several names counts once.
    """

    present: bool = True
    tracked: bool = False
    checkpoints: tuple[Checkpoint, ...] = ()
    start: NextStart | None = None
    version_one: tuple[VersionOne, ...] = ()
    other_files: tuple[OtherFile, ...] = ()
    branch_tips: BranchTips = BranchTips()
    lineage: Lineage = Lineage()
    diagnostics: tuple[Diagnostic, ...] = ()
    pending: tuple[Command, ...] = ()
    working: tuple[Command, ...] = ()
    finished: tuple[Command, ...] = ()
    event_log: tuple[EventEntry, ...] = ()
    samples: Samples = Samples()
    lacks_samples: bool = False
    series_is_thinned: bool = False
    trash: tuple[TrashManifest, ...] = ()
    disk_total: int | None = None
    disk_free: int | None = None
    disk_used: int = 0
    forecast: Forecast = Forecast()

    @classmethod
    def of(cls, account: RunAccount, **more: Any) -> RunSnapshot:
        """Returns a snapshot with the fields of an account, and others."""
        return cls(
            **{name: getattr(account, name) for name in RunAccount.__struct_fields__}, **more
        )

    @property
    def head(self) -> Checkpoint | None:
        """The checkpoint from which a restarted run continues."""
        return next((c for c in self.checkpoints if c.is_head), None)

    @property
    def damaged_prune(self) -> Diagnostic | None:
        """The first prune in the trash that cannot be brought back."""
        return next((d for d in self.diagnostics if d.kind == PRUNE_DAMAGED), None)

    @property
    def nothing_to_undo(self) -> str:
        """Why there is no prune to bring back; empty if there is one."""
        if self.trash:
            return ""
        if self.damaged_prune is not None:
            return f"Nothing can be brought back. {clean(self.damaged_prune.message)}"
        return "The trash is empty; there is nothing to bring back."

    def checkpoint(self, name: str) -> Checkpoint | None:
        """Returns the checkpoint called `name`."""
        return next((c for c in self.checkpoints if c.name == name), None)


def differs_only_in_time(snapshot: RunSnapshot, other: RunSnapshot) -> bool:
    """Whether two snapshots differ only in time, ages and free disk space."""
    ages = {view.status.index: view.age for view in other.workers}
    workers = tuple(
        replace(view, age=ages.get(view.status.index, view.age)) for view in snapshot.workers
    )
    return replace(snapshot, at=other.at, disk_free=other.disk_free, workers=workers) == other
