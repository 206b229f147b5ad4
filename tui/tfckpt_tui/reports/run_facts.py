"""What `status` and `runs` print."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from tfckpt_trainer.launch.batch.jobs import JobState
from tfckpt_trainer.rundir.heartbeats.health import RunState
from tfckpt_trainer.rundir.records.exactness import ExactnessLevel, PipelineFacts, StepFacts
from tfckpt_trainer.rundir.records.failure import OutOfMemory
from tfckpt_trainer.rundir.records.run import CodeVersion
from tfckpt_tui.formats import run_columns, worker_columns
from tfckpt_tui.formats.process_columns import HostProcess
from tfckpt_tui.reports.base import Report


class ExactnessFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Whether resuming is exact.

    Attributes:
        level: What is known.
        reasons: Why it is not possible or unknown, each as a clause; empty otherwise.
        inputs: The input pipelines.
        step: The training steps.
        compared: What a check found, as a clause; empty without one that counts.
        outdated: Which check no longer counts and why, as a clause; empty if there is none.
        words: All of it as a sentence.
    """

    level: ExactnessLevel
    reasons: list[str]
    inputs: list[PipelineFacts]
    step: StepFacts
    compared: str
    outdated: str
    words: str


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A run.

    Attributes:
        id: Permanent identifier of the run; null in a directory that this library never used.
        directory: The run directory.
        state: What it does.
        words: `run.state` in words: `saving` or `restoring` between two steps of a run that
            trains, and `, stop requested` or `, stopping` while a stop is under way. Of a directory
            that a process of this host trains in without this library, names the process.
        reason: Why the supervisor restarts, stopped or failed; otherwise which worker is lost or
            holds up the others.
        exactness: Whether resuming is exact; null if nothing is recorded.
        strategy: Class of the `tf.distribute` strategy.
        worker_count: Number of processes that write heartbeats: the workers, and also the chief and
            the parameter servers if there are any.
        cluster: Addresses by job, as in `TF_CONFIG`; empty if unknown.
        step: Step of the chief, or of the checkpoint that a start resumes from.
        branch: The branch of that step.
        lost_steps: Steps after it that ended with their processes before a checkpoint had them, by
            the last heartbeat.
        loss: The same in words, such as `at least 38 steps lost`; empty if none were.
        total_steps: The step after which training ends.
        checkpoint: The checkpoint that a start resumes from.
        checkpoints: Number of checkpoints.
        other_files: Number of files of
            [other formats](checkpoints.md#files-of-other-formats).
        below: Subdirectories with checkpoints, or with files of Keras. They are not counted.
        restarts: Number of restarts of the workers.
        code: The Git repository of the script at the newest launch, or at the newest start of a
            script that was not launched; null if it is in none, or unknown.
        command: The command of the workers at the newest launch, or of a script that was not
            launched; null if it is unknown, or for who may not read it.
        gpus: Which GPUs are idle, shared by workers, or not counted, as sentences; empty otherwise,
            and after the end of the run.
        saves: When the trainer saves, such as `every 500 steps` or `only at its end`; empty if
            unknown.
        event_files: What TensorBoard event files tell, if this library did not train the run; null
            otherwise, and without such files.
    """

    id: str | None
    directory: str
    state: RunState
    words: str
    reason: str
    exactness: ExactnessFacts | None
    strategy: str
    worker_count: int
    cluster: dict[str, list[str]]
    step: int | None
    branch: int
    lost_steps: int
    loss: str
    total_steps: int | None
    checkpoint: str | None
    checkpoints: int
    other_files: int
    below: tuple[str, ...]
    restarts: int
    code: CodeVersion | None
    command: tuple[str, ...] | None
    gpus: str
    saves: str
    event_files: EventFileFacts | None


class EventFileFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The newest metrics in the TensorBoard event files and CSV files of a directory.

    Attributes:
        step: The highest step of them, as the program counts it.
        unit: What that counts: `epoch` if Keras names its metrics so, as in `epoch_loss`; else
            `step`, though it may be an epoch.
        at: When the last of them were written.
        step_seconds: Seconds from one step to the next, as the median; null if unknown.
        loss: The newest value of `loss`, or else of another loss; null without one, and for NaN.
        most_files: How many of the event files were read, if there are others; else null.
    """

    step: int
    unit: str
    at: float
    step_seconds: float | None
    loss: float | None = None
    most_files: int | None = None

    @property
    def reach(self) -> str:
        """What is between `metrics` and their step: `up to step`."""
        which = "" if self.most_files is None else f"of the first {self.most_files} event files "
        return f"{which}up to {self.unit}"

    @property
    def per(self) -> str:
        """What follows a duration: `a step` or `an epoch`."""
        return "an epoch" if self.unit == "epoch" else f"a {self.unit}"


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A batch job.

    Attributes:
        scheduler: `slurm`.
        id: The job ID.
        name: Its name.
        user: Who submitted it.
        state: A `requeued` job waits for a further start. Of an `unknown` one, Slurm did not
            answer; `problem` says why.
        reason: Slurm's reason why a job waits.
        expected_start: When Slurm expects it to start.
        started_at: When the current or last start began.
        ends_at: When the time limit ends it.
        nodes: The nodes of the current or last start.
        requeues: The starts after the first.
        max_requeues: How many of them there can be.
        preempted: Whether Slurm preempted the last start.
        submitted_at: When it was submitted.
        problem: Why its state is unknown.
    """

    scheduler: str
    id: str
    name: str
    user: str
    state: JobState
    reason: str
    expected_start: float | None
    started_at: float | None
    ends_at: float | None
    nodes: tuple[str, ...]
    requeues: int
    max_requeues: int
    preempted: bool
    submitted_at: float
    problem: str


class AlertFacts(msgspec.Struct, frozen=True, kw_only=True):
    """An alert.

    Attributes:
        kind: Kind of the [alert](../how-to/alerts.md): `run-failed`, `submit-refused`,
            `no-supervisor`, `save-failed`, `save-overdue`, `not-finite`, `no-heartbeat`,
            `checkpoint-damaged`, `checkpoint-unsupported`, `file-unwritten`, `job-stuck`,
            `job-silent`, `clock-differs`.
        message: What happened.
        advice: What to do.
    """

    kind: str
    message: str
    advice: str


class WorkerPlace(msgspec.Struct, frozen=True, kw_only=True):
    """What another worker of a run that failed or hangs did.

    Attributes:
        workers: Indexes of the workers of which this is true.
        words: How they ended, or `FILE:LINE: SOURCE`, where the script of a worker that hangs is.
    """

    workers: tuple[int, ...]
    words: str


class FailureFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to a run that failed, restarts or is degraded.

    Attributes:
        at: When; null if unknown.
        hangs: Whether its workers live and make no step; `at` is then the end of the last step.
        message: What happened, as a sentence.
        worker: Index of the worker that failed first, or that holds up the others; null if unknown.
        step: The step in its last heartbeat; null if unknown.
        exit_code: Its exit status, negative for a signal; null if it did not end, or if unknown.
        place: `FILE:LINE`, the innermost line of the script in the traceback; empty without one.
        function: The function of that line.
        source: The text of that line.
        error: Type and message of the error.
        log: The last lines that the worker printed, oldest first, at most 20.
        memory_bytes: Its resident memory at its last heartbeat.
        memory_limit_bytes: The memory that it could use.
        disk_free_bytes: Free bytes of the file system of the run then.
        out_of_memory: What shows that the kernel killed it because memory ran out: `counted` in its
            control group, `logged` by Slurm, or `on host`, which may mean another process. Null if
            nothing does.
        others: What the other workers did.
        checkpoint: The checkpoint from which the run continues; null if there is none.
        checkpoint_step: Its step.
        lost_steps: Steps after it that are lost or, while the run hangs, not saved, by the last
            heartbeat.
        lost_seconds: How long these steps took; null if unknown.
        next: What the supervisor does, as a sentence.
        next_start_at: When it starts the workers again; null if it does not, or does now.
    """

    at: float | None
    hangs: bool
    message: str
    worker: int | None
    step: int | None
    exit_code: int | None
    place: str
    function: str
    source: str
    error: str
    log: tuple[str, ...]
    memory_bytes: int | None
    memory_limit_bytes: int | None
    disk_free_bytes: int | None
    out_of_memory: OutOfMemory | None
    others: tuple[WorkerPlace, ...]
    checkpoint: str | None
    checkpoint_step: int | None
    lost_steps: int
    lost_seconds: float | None
    next: str
    next_start_at: float | None


if TYPE_CHECKING:
    WorkerLine: TypeAlias = Any
    RunLine: TypeAlias = Any
else:
    WorkerLine = worker_columns.json_record()
    RunLine = run_columns.json_record()


class StatusReport(Report, frozen=True, kw_only=True):
    """Exit code 1 if the run is degraded, restarting, failed, refused or unanswered, or if there is
    an [alert](../how-to/alerts.md).

    Attributes:
        job: The batch job of the run; null without a scheduler.
        failure: What happened; null unless the run failed, restarts or is degraded.
        problems: Files of the run that cannot be read, and why; they do not change the exit code.
        processes: Processes of this host that train here without this library.
    """

    run: RunFacts
    job: JobFacts | None
    failure: FailureFacts | None
    alerts: tuple[AlertFacts, ...]
    problems: tuple[str, ...]
    workers: tuple[WorkerLine, ...]
    processes: tuple[HostProcess, ...]


class RunsReport(Report, frozen=True, kw_only=True):
    """Sorted by last activity, newest first."""

    runs: tuple[RunLine, ...]
