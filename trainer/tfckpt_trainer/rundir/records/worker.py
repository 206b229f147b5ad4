"""The heartbeat of a worker."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from tfckpt_trainer.rundir.records.failure import ScriptFault
from tfckpt_trainer.rundir.records.hyperparameter import Hyperparameter
from tfckpt_trainer.rundir.records.process import ProcessIdentity
from tfckpt_trainer.rundir.storage.documents import Document


class Activity(StrEnum):
    """What a worker is doing, by its own account."""

    STARTING = "starting"
    TRAINING = "training"
    SAVING = "saving"
    RESTORING = "restoring"
    PAUSED = "paused"
    WAITING = "waiting"
    SERVING = "serving"
    EXITED = "exited"


class Phase(StrEnum):
    """What a worker is in the middle of.

    At its start, in this order: `import` of TensorFlow, `prepare`, the code of the script before
    its strategy, `join`, waiting for all workers, `build`, the code before its run, and `restore`.
    In the training loop: waiting for `input`, in a `step`, or in the `script` between two steps.
    """

    IMPORT = "import"
    PREPARE = "prepare"
    JOIN = "join"
    BUILD = "build"
    RESTORE = "restore"
    INPUT = "input"
    STEP = "step"
    SCRIPT = "script"


BEFORE_RUN = frozenset({Phase.IMPORT, Phase.PREPARE, Phase.JOIN, Phase.BUILD})
"""Phases before the run exists in the worker: it writes no regular heartbeats."""


class Ending(StrEnum):
    """Why a worker exited, written with its last heartbeat."""

    FINISHED = "finished"
    STOPPED = "stopped"
    PREEMPTED = "preempted"
    PEER_LOST = "peer lost"
    FAILED = "failed"


class GpuStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU of a worker.

    Attributes:
        name: Its name.
        memory_used: Memory that all processes use, in bytes.
        memory_total: Its memory in bytes.
        use_percent: Use in percent; unknown for a part of a GPU (MIG), which does not report it.
    """

    name: str
    memory_used: int
    memory_total: int
    use_percent: float | None


class SaveStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The saves of a run since its worker processes started.

    Attributes:
        failed: Number of the newest saves that failed or were refused; 0 after a success.
        problem: Why the newest one failed; empty after a success.
        saved_at: Time of the last save that made a checkpoint; None before the first.
        saved_step: Step of the newest checkpoint, saved or restored; None if there is none.
        save_seconds: Duration of the steps during the last successful save.
        unsaved_steps: Steps since the newest checkpoint.
        unsaved_seconds: Duration of these steps, without pauses and saves.
        every_steps: Steps between saves; None if steps do not trigger saves.
        every_seconds: Seconds between saves; None if the clock does not trigger saves.
        waits_for_room: Whether training is paused until a save fits on the disk.
    """

    failed: int = 0
    problem: str = ""
    saved_at: float | None = None
    saved_step: int | None = None
    save_seconds: float = 0.0
    unsaved_steps: int = 0
    unsaved_seconds: float = 0.0
    every_steps: int | None = None
    every_seconds: float | None = None
    waits_for_room: bool = False


class TaskShare(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker or a parameter server does for the chief that coordinates it.

    Attributes:
        job: Its job in TensorFlow's cluster: `worker` or `ps`.
        task: Its number in that job.
        steps_per_second: Steps that it computed in the last half minute; None if it computes none.
        variable_bytes: Size of the variables that it holds; None if it holds none.
    """

    job: str
    task: int
    steps_per_second: float | None = None
    variable_bytes: int | None = None


class NotFiniteMetric(msgspec.Struct, frozen=True, kw_only=True):
    """A metric whose newest value is NaN or infinite.

    Attributes:
        value: `nan`, `inf` or `-inf`.
        step: The step since which it is not finite.
    """

    name: str
    value: str
    step: int


class WorkerStatus(Document, frozen=True, kw_only=True):
    """`status/worker-N.json`: heartbeat of one worker.

    Attributes:
        process_started_at: When the process was started, by the clock of `updated_at`.
        process_after_boot: How many seconds after the machine it was started; no clock changes
            that. None in a file of an earlier release.
        namespace: Boot and PID namespace of `pid`; empty if unknown.
        directory: Device and inode of the run directory, which a copy of it does not have; None on
            a network disk.
        job: Job in TensorFlow's cluster: `worker`, `chief` or `ps`.
        interval_seconds: Interval between heartbeats.
        lost_after_seconds: Age at which it is too old; None for five intervals.
        step_seconds: Median step time in the last window; None before the first step.
        step_seconds_p95: 95th percentile of the step time in the last window.
        step_seconds_mean: Mean step time in the last window. Where some steps are slow, the others
            do not tell how training goes on.
        steps_per_call: The most steps that one call of the step function ran.
        input_wait_seconds: Median time that a step waited for input.
        loss: The newest reported loss, mean over all replicas; None before the first step.
        metrics: The newest values of all reported metrics, including `loss`.
        examples_per_second: Throughput over all workers; None if the batch size is unknown.
        cpu_percent: CPU use in percent of one core; two busy cores are 200.
        memory_bytes: Resident memory of the process.
        ending: Why the worker exited, if `activity` is `exited`.
        detail: Description of what it is doing, or why it exited.
        fault: The error of the script that ended it; None if none did.
        last_step_at: End of the last step.
        phase: What it is in the middle of; None during a step.
        phase_since: Start of that phase.
        cpu_stall_ratio: Share of the last interval, from 0 to 1, in which ready threads waited for
            a core. Causes are other processes and CPU limits. None if the system does not report
            it.
        not_finite: The metrics in `metrics` that are null because they are NaN or infinite.
        saves: The saves of the run, in the heartbeat of the chief; None in all others.
        hyperparameters: Values that can be changed, in the heartbeat of the chief.
        shares: What each worker and parameter server does, in the heartbeat of a chief that
            coordinates them.
        write_problem: Why the chief cannot write a file of the run; empty if it can.
        measured_at: When it measured what it tells of itself, if a later step of the chief showed
            that it lives; None if that was at `updated_at`. Never in a file.
        measured_step: Its step then; None likewise.
    """

    index: int
    host: str
    pid: int
    process_started_at: float
    updated_at: float
    interval_seconds: float
    activity: Activity
    step: int
    namespace: str = ""
    directory: tuple[int, int] | None = None
    job: str = "worker"
    branch: int = 0
    total_steps: int | None = None
    step_seconds: float | None = None
    step_seconds_p95: float | None = None
    step_seconds_mean: float | None = None
    steps_per_call: int = 1
    input_wait_seconds: float | None = None
    loss: float | None = None
    metrics: dict[str, float | None] = {}
    examples_per_second: float | None = None
    cpu_percent: float | None = None
    memory_bytes: int | None = None
    gpus: list[GpuStatus] = []
    ending: Ending | None = None
    detail: str = ""
    fault: ScriptFault | None = None
    last_step_at: float | None = None
    phase: Phase | None = None
    phase_since: float | None = None
    cpu_stall_ratio: float | None = None
    not_finite: list[NotFiniteMetric] = []
    saves: SaveStatus | None = None
    hyperparameters: list[Hyperparameter] = []
    shares: list[TaskShare] = []
    write_problem: str = ""
    lost_after_seconds: float | None = None
    measured_at: float | None = None
    measured_step: int | None = None
    process_after_boot: float | None = None

    @property
    def process(self) -> ProcessIdentity:
        """The process that wrote it."""
        return ProcessIdentity(self.pid, self.process_started_at, self.process_after_boot)

    @property
    def call_seconds(self) -> float | None:
        """The usual time between two moments at which the step changes; None if unknown."""
        return None if self.step_seconds is None else self.step_seconds * self.steps_per_call

    @property
    def has_ended(self) -> bool:
        """Whether it ended by itself, and will write no further heartbeat."""
        return self.activity is Activity.EXITED

    @property
    def is_starting(self) -> bool:
        """Whether it has completed no step since its process started."""
        is_first_restore = self.activity is Activity.RESTORING and self.phase is Phase.RESTORE
        return self.activity is Activity.STARTING or is_first_restore

    @property
    def has_position(self) -> bool:
        """Whether its step is that of the run: after the restore, if there was one to do."""
        without = {Activity.STARTING, Activity.RESTORING, Activity.SERVING}
        if self.phase is None:
            return bool(self.step) or self.activity not in without
        # One that ended in such a phase never had a position.
        is_early = self.phase in {*BEFORE_RUN, Phase.RESTORE}
        return bool(self.step) or not (is_early and self.activity in {*without, Activity.EXITED})


class GatheredHeartbeats(Document, frozen=True, kw_only=True):
    """`status/workers.json`: the heartbeats of many workers, gathered by their chief.

    Attributes:
        pid: The process of the chief.
        process_started_at: When that was started: another start of the workers has another chief.
        updated_at: When it was written, by the clock of the chief.
        workers: The heartbeats of all others as it last read them, with times by its clock.
    """

    pid: int
    process_started_at: float
    updated_at: float
    workers: list[WorkerStatus]
