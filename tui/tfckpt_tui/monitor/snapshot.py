"""The immutable snapshot of a run. The monitor makes it, and the widgets show it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tfckpt_trainer.catalog.alerts import Alert
from tfckpt_trainer.catalog.lineage import BranchStep, BranchTips
from tfckpt_trainer.catalog.scan.checkpoints import Checkpoint
from tfckpt_trainer.catalog.scan.diagnostics import Diagnostic
from tfckpt_trainer.catalog.scan.version_one import VersionOne
from tfckpt_trainer.rundir.health import RunState, WorkerState, knows_step
from tfckpt_trainer.rundir.records.command import Command
from tfckpt_trainer.rundir.records.event import JournalEntry, SeriesPoint
from tfckpt_trainer.rundir.records.run import RunInfo, SupervisorStatus
from tfckpt_trainer.rundir.records.trash import TrashManifest
from tfckpt_trainer.rundir.records.worker import WorkerStatus
from tfckpt_tui.services.batch.job_view import JobView


@dataclass(frozen=True)
class WorkerView:
    """One worker.

    Attributes:
        status: Its last heartbeat.
        state: Its state now.
        age: Age of the heartbeat in seconds.
        straggling: Why it seems to slow down the others; empty if it does not.
    """

    status: WorkerStatus
    state: WorkerState
    age: float
    straggling: str = ""


@dataclass(frozen=True)
class Forecast:
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


@dataclass(frozen=True)
class RunSnapshot:
    """A run at the time `at` (seconds since the epoch).

    Attributes:
        path: The run directory, safe to show.
        present: Whether the directory exists and can be read.
        tracked: Whether this library or its launcher was used in the directory.
        job: The batch job that runs the supervisor; None without a scheduler.
        trainer_answers: Whether a live chief executes commands.
        checkpoints: All checkpoints, newest first.
        version_one: Checkpoints in TensorFlow's V1 format, which is not supported.
        branch_tips: The tips of all branches; checkpoints in the trash count.
        diagnostics: Problems of the directory.
        pending: Commands that no trainer has received, oldest first.
        working: Commands in progress, oldest first.
        finished: Commands that ended since the app was opened, oldest first.
        journal: The newest entries, oldest first.
        points: The downsampled series for the charts, oldest first.
        trash: Contents of the trash, newest first.
        disk_total: Bytes of the file system; None if unknown.
        disk_free: Free bytes of the file system; None if unknown.
        disk_used: Bytes of all checkpoints.
        start_is_chosen: Whether a checkpoint for the next start was chosen after the run had ended.
        alerts: Problems of the training, the most urgent first.
        problems: Files that could not be read, and why; safe to show.
    """

    at: float
    path: str
    present: bool = True
    tracked: bool = False
    info: RunInfo | None = None
    state: RunState = RunState.UNATTENDED
    job: JobView | None = None
    trainer_answers: bool = False
    workers: tuple[WorkerView, ...] = ()
    supervisor: SupervisorStatus | None = None
    checkpoints: tuple[Checkpoint, ...] = ()
    version_one: tuple[VersionOne, ...] = ()
    branch_tips: BranchTips = field(default_factory=BranchTips)
    diagnostics: tuple[Diagnostic, ...] = ()
    pending: tuple[Command, ...] = ()
    working: tuple[Command, ...] = ()
    finished: tuple[Command, ...] = ()
    journal: tuple[JournalEntry, ...] = ()
    points: tuple[SeriesPoint, ...] = ()
    trash: tuple[TrashManifest, ...] = ()
    disk_total: int | None = None
    disk_free: int | None = None
    disk_used: int = 0
    start_is_chosen: bool = False
    forecast: Forecast = Forecast()
    alerts: tuple[Alert, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def chief(self) -> WorkerView | None:
        """Worker 0, if it has written a heartbeat."""
        return next((w for w in self.workers if w.status.index == 0), None)

    @property
    def step(self) -> int | None:
        """The current step: that of the chief, else that of the current checkpoint."""
        if self.chief is not None and not self._is_starting_again:
            return self.chief.status.step
        return self.head.step if self.head is not None else None

    @property
    def position(self) -> BranchStep | None:
        """Where training is; None if the chief never wrote a heartbeat."""
        chief = self.chief
        return BranchStep(chief.status.branch, chief.status.step) if chief is not None else None

    @property
    def branch(self) -> int:
        """The branch of the chief, else that of the current checkpoint."""
        if self.chief is not None and not self._is_starting_again:
            return self.chief.status.branch
        return self.head.branch if self.head is not None else 0

    @property
    def _is_starting_again(self) -> bool:
        """Whether the chief has not restored the current checkpoint: in a restart, or never."""
        chief = self.chief
        return chief is not None and not knows_step(
            chief.status,
            has_checkpoint=self.head is not None,
            start_is_chosen=self.start_is_chosen,
        )

    @property
    def total_steps(self) -> int | None:
        """The last step of the run, if it is known."""
        if self.chief is not None and self.chief.status.total_steps is not None:
            return self.chief.status.total_steps
        return self.info.total_steps if self.info is not None else None

    @property
    def active_at(self) -> float:
        """Time of the last activity, in seconds since the epoch; 0 if there was none."""
        moments = [view.status.updated_at for view in self.workers]
        moments += [checkpoint.saved_at for checkpoint in self.checkpoints[:1]]
        moments += [entry.at for entry in self.journal[-1:]]
        return max(moments, default=0.0)

    @property
    def head(self) -> Checkpoint | None:
        """The checkpoint from which a restarted run continues."""
        return next((c for c in self.checkpoints if c.is_head), None)

    def checkpoint(self, name: str) -> Checkpoint | None:
        """Returns the checkpoint called `name`."""
        return next((c for c in self.checkpoints if c.name == name), None)


def differs_only_in_time(one: RunSnapshot, other: RunSnapshot) -> bool:
    """Whether two snapshots differ only in time, ages and free disk space."""
    ages = {view.status.index: view.age for view in other.workers}
    workers = tuple(
        replace(view, age=ages.get(view.status.index, view.age)) for view in one.workers
    )
    return replace(one, at=other.at, disk_free=other.disk_free, workers=workers) == other
