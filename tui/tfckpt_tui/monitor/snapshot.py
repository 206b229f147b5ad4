"""What is known of a run at one moment: immutable, made by the monitor, shown by the widgets."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tfckpt_trainer.catalog.lineage import BranchStep, BranchTips
from tfckpt_trainer.catalog.scan.checkpoints import Checkpoint
from tfckpt_trainer.catalog.scan.diagnostics import Diagnostic
from tfckpt_trainer.rundir.health import RunState, WorkerState
from tfckpt_trainer.rundir.records.command import Command
from tfckpt_trainer.rundir.records.event import JournalEntry, SeriesPoint
from tfckpt_trainer.rundir.records.run import RunInfo, SupervisorStatus
from tfckpt_trainer.rundir.records.trash import TrashManifest
from tfckpt_trainer.rundir.records.worker import WorkerStatus


@dataclass(frozen=True)
class WorkerView:
    """One worker: what it said last, what that means now, and how old it is in seconds.

    Attributes:
        straggling: Why it seems to hold up the others; empty if it does not.
    """

    status: WorkerStatus
    state: WorkerState
    age: float
    straggling: str = ""


@dataclass(frozen=True)
class Forecast:
    """What follows from the present rates; None where there is too little to tell.

    Attributes:
        seconds_left: Until training reaches its last step.
        disk_full_seconds: Until the disk is full, at the rate of the newest saves.
        save_share: Part of the time that goes into saving, 0 to 1.
        save_interval: Seconds between saves.
        best_interval: Seconds between saves at which the least is lost, to saving and to what
            failures undo; None until something failed.
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
        path: The run directory, made safe to show.
        present: Whether the directory exists and can be read.
        ours: Whether our library or launcher has been there.
        trainer_answers: Whether a live chief serves the command box.
        checkpoints: Newest first.
        branch_tips: The tips of all branches; checkpoints in the trash count.
        diagnostics: What is odd in the directory.
        pending: Commands that nobody took yet, oldest first.
        working: Commands that a trainer works on, oldest first.
        finished: Outcomes since the app was opened, oldest first.
        journal: The newest entries, oldest first.
        points: The series for the charts, oldest first, thinned out.
        trash: What a prune moved away and an undo can bring back, newest first.
        disk_total: Bytes of the file system; None where it cannot be asked.
        disk_used: Bytes of all checkpoints.
        problems: What could not be read, in words made safe to show.
    """

    at: float
    path: str
    present: bool = True
    ours: bool = False
    info: RunInfo | None = None
    state: RunState = RunState.UNATTENDED
    trainer_answers: bool = False
    workers: tuple[WorkerView, ...] = ()
    supervisor: SupervisorStatus | None = None
    checkpoints: tuple[Checkpoint, ...] = ()
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
    forecast: Forecast = Forecast()
    problems: tuple[str, ...] = ()

    @property
    def chief(self) -> WorkerView | None:
        """Worker 0, if it ever wrote a heartbeat."""
        return next((w for w in self.workers if w.status.index == 0), None)

    @property
    def step(self) -> int | None:
        """The step the run is at: the chief's, else the newest checkpoint's."""
        if self.chief is not None:
            return self.chief.status.step
        return self.head.step if self.head is not None else None

    @property
    def position(self) -> BranchStep | None:
        """Where training is; None if the chief never wrote a heartbeat."""
        chief = self.chief
        return BranchStep(chief.status.branch, chief.status.step) if chief is not None else None

    @property
    def branch(self) -> int:
        """The branch that is being trained, or would be continued."""
        if self.chief is not None:
            return self.chief.status.branch
        return self.head.branch if self.head is not None else 0

    @property
    def total_steps(self) -> int | None:
        """The step at which training ends by itself, where it is known."""
        if self.chief is not None and self.chief.status.total_steps is not None:
            return self.chief.status.total_steps
        return self.info.total_steps if self.info is not None else None

    @property
    def active_at(self) -> float:
        """When something last happened, in seconds since the epoch; 0 where nothing ever did."""
        moments = [view.status.updated_at for view in self.workers]
        moments += [checkpoint.saved_at for checkpoint in self.checkpoints[:1]]
        moments += [entry.at for entry in self.journal[-1:]]
        return max(moments, default=0.0)

    @property
    def head(self) -> Checkpoint | None:
        """The checkpoint that a cold start continues from."""
        return next((c for c in self.checkpoints if c.is_head), None)

    def checkpoint(self, name: str) -> Checkpoint | None:
        """Returns the checkpoint called `name`."""
        return next((c for c in self.checkpoints if c.name == name), None)


def is_same_but_for_time(one: RunSnapshot, other: RunSnapshot) -> bool:
    """Whether nothing happened between two looks at a run, but that time passed.

    Of a disk somebody else may take or give a little at any time; that does not count either.
    """
    ages = {view.status.index: view.age for view in other.workers}
    workers = tuple(
        replace(view, age=ages.get(view.status.index, view.age)) for view in one.workers
    )
    return replace(one, at=other.at, disk_free=other.disk_free, workers=workers) == other
