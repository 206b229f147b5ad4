"""The typed records of the contract: what each file of a run directory holds."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar

import msgspec

from tfckpt_trainer.rundir.documents import Document, SealedDocument


class Activity(StrEnum):
    """What a worker says of itself in its heartbeat."""

    STARTING = "starting"
    TRAINING = "training"
    SAVING = "saving"
    RESTORING = "restoring"
    PAUSED = "paused"
    WAITING = "waiting"
    SERVING = "serving"
    EXITED = "exited"


class Phase(StrEnum):
    """Where in its loop a worker is: waiting for input, in a step, or in the script between."""

    INPUT = "input"
    STEP = "step"
    SCRIPT = "script"


class Ending(StrEnum):
    """Why a worker left, written with its last heartbeat."""

    FINISHED = "finished"
    STOPPED = "stopped"
    PREEMPTED = "preempted"
    PEER_LOST = "peer lost"
    FAILED = "failed"


class RetentionRules(msgspec.Struct, frozen=True, kw_only=True):
    """Which checkpoints to keep, as it is written in files; None and an empty list are no rule.

    Attributes:
        keep_last: The newest so many.
        keep_every_steps: One in every so many steps.
        keep_every_hours: One in every so many hours.
        keep_best: By metrics, each as `METRIC:min|max:COUNT`.
        trash_hours: How long what a trainer moved to the trash by these rules stays there; None
            is for good.
        make_room: Whether a save that would not fit may empty the trash, the oldest first.
    """

    keep_last: int | None = None
    keep_every_steps: int | None = None
    keep_every_hours: float | None = None
    keep_best: list[str] = []
    trash_hours: float | None = None
    make_room: bool = False


class RunInfo(Document, frozen=True, kw_only=True):
    """`run.json`: who runs here.

    Attributes:
        id: Names the run for good; it survives restarts.
        created_at: Seconds since the epoch, as all times in the contract.
        strategy: Class name of the `tf.distribute` strategy; empty until the chief started.
        worker_count: Processes of the run that write heartbeats: the workers, and where there are
            parameter servers also those and the chief.
        replica_count: Replicas in sync over all workers; 0 until the chief started.
        cluster: Addresses by job, as in `TF_CONFIG`.
        command: What each worker process runs; empty where nobody launched it through us.
        working_directory: Where `command` runs.
        total_steps: The step at which training ends by itself, if it does.
        tensorboard: Directory of event files, relative to the run directory unless absolute.
        host: Where the chief runs.
        versions: Of Python, TensorFlow and Keras.
        retention: By which the trainer prunes, if it does.
    """

    id: str
    created_at: float
    strategy: str = ""
    worker_count: int = 1
    replica_count: int = 0
    cluster: dict[str, list[str]] = {}
    command: list[str] = []
    working_directory: str = ""
    total_steps: int | None = None
    tensorboard: str = ".tfckpt/tensorboard"
    host: str = ""
    versions: dict[str, str] = {}
    retention: RetentionRules | None = None


class Head(SealedDocument, frozen=True, kw_only=True):
    """`head.json`: the last restore; later saves are newer than it by their sequence.

    Attributes:
        checkpoint: From which training went on.
        step: Its step.
        branch: On which what follows is saved.
        sequence: Place in the order of all saves and restores of the run.
    """

    has_copy: ClassVar[bool] = True

    checkpoint: str
    step: int
    branch: int
    sequence: int


class GpuStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU as seen by the worker that uses it; memory in bytes, use in percent."""

    name: str
    memory_used: int
    memory_total: int
    use_percent: float


class WorkerStatus(Document, frozen=True, kw_only=True):
    """`status/worker-N.json`: heartbeat and stats of one worker, replaced about once a second.

    Attributes:
        process_started_at: With `pid`, tells this process from a later one with the same number.
        namespace: Among which processes `pid` counts: boot and PID namespace; empty if unknown.
        job: Its job in TensorFlow's cluster: `worker`, `chief`, or `ps`, a parameter server.
        interval_seconds: How often the worker writes this.
        step_seconds: Median over the last window; p95 beside it. None before the first step.
        input_wait_seconds: Median time a step waited for its input.
        loss: The newest reported loss, mean over all replicas. None before the first step.
        metrics: All newest reported metrics, `loss` among them.
        examples_per_second: Over all workers, where the batch size is known.
        cpu_percent: Of one core; two busy cores are 200.
        memory_bytes: Resident memory of the process.
        ending: Why it left, once `activity` is `exited`.
        detail: What it is doing or what it died of, in words.
        last_step_at: When the last step ended.
        phase: Where in its loop it is; None before the first step.
        phase_since: Since when.
        kept_from_cpu: For which part of the last interval its threads were ready and not let
            onto a processor, by others or by a limit; None where the system does not tell.
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
    job: str = "worker"
    branch: int = 0
    total_steps: int | None = None
    step_seconds: float | None = None
    step_seconds_p95: float | None = None
    input_wait_seconds: float | None = None
    loss: float | None = None
    metrics: dict[str, float | None] = {}
    examples_per_second: float | None = None
    cpu_percent: float | None = None
    memory_bytes: int | None = None
    gpus: list[GpuStatus] = []
    ending: Ending | None = None
    detail: str = ""
    last_step_at: float | None = None
    phase: Phase | None = None
    phase_since: float | None = None
    kept_from_cpu: float | None = None


class SupervisorState(StrEnum):
    """What the supervisor does."""

    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    STOPPED = "stopped"
    FINISHED = "finished"
    FAILED = "failed"


class WorkerProcess(msgspec.Struct, frozen=True, kw_only=True):
    """One worker process as its supervisor sees it; `exit_code` is negative for a signal."""

    index: int
    pid: int
    process_started_at: float
    exit_code: int | None = None


class SupervisorStatus(Document, frozen=True, kw_only=True):
    """`status/supervisor.json`: heartbeat of the process that starts and restarts the workers.

    Attributes:
        attempt: 0 for the first start of the workers, then one more for each start after it.
        restarts: Of `max_restarts`, how many are used; training well for long gives them back.
        reason: Why it restarts, stopped or failed, in words for a person.
        next_start_at: While restarting: when the workers are started again.
        namespace: Among which processes `pid` counts: boot and PID namespace; empty if unknown.
    """

    pid: int
    host: str
    process_started_at: float
    updated_at: float
    interval_seconds: float
    state: SupervisorState
    attempt: int = 0
    restarts: int = 0
    max_restarts: int = 0
    reason: str = ""
    next_start_at: float | None = None
    workers: list[WorkerProcess] = []
    namespace: str = ""


class FileFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a checkpoint as it was written: size in bytes, CRC32C of all its bytes."""

    name: str
    size: int
    crc32c: int


class WorkerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker said of itself at a save; times in seconds, memory in bytes.

    Attributes:
        state: What the script keeps in `run.worker_state`.
    """

    index: int
    host: str
    step_seconds: float | None = None
    input_wait_seconds: float | None = None
    stall_seconds: float | None = None
    memory_bytes: int | None = None
    metrics: dict[str, float | None] = {}
    state: dict[str, Any] = {}


class SaveCost(msgspec.Struct, frozen=True, kw_only=True):
    """What a save cost; times in seconds, each the longest of any worker.

    Attributes:
        background: Whether training went on while it was written.
        stall_seconds: How long training stood still for it.
        write_seconds: Until all was handed to the operating system.
        flush_seconds: Until the disk had it.
        verify_seconds: Until it was read back and compared.
        bytes_per_second: Written and flushed, by all workers together.
        slowing_seconds: By how much the steps beside and after it took longer than those
            before, in sum. It is measured after the record is written: None there, but in
            records of version 0.1, and filled in from `overheads.jsonl` by `catalog.history`.
        slowing_steps: Over how many steps that was taken.
    """

    background: bool = False
    stall_seconds: float = 0.0
    write_seconds: float = 0.0
    flush_seconds: float = 0.0
    verify_seconds: float = 0.0
    bytes_per_second: float | None = None
    slowing_seconds: float | None = None
    slowing_steps: int = 0


class CheckpointRecord(SealedDocument, frozen=True, kw_only=True):
    """`records/NAME.json`: what TensorFlow does not record of a checkpoint; never changed.

    Attributes:
        parent: The checkpoint from which training reached this one; None for the first.
        sequence: Place in the order of all saves and restores of the run. A cold start goes
            on from the good checkpoint with the highest one, not from the highest step.
        trigger: Why it was saved: `every N steps`, `every N seconds`, `command`, `end`, ...
        command: Id of the command that asked for it, if one did.
        metrics: Means over all replicas at that step; None stands for not-a-number.
        best: The best value so far of each metric by whose improvement is saved.
        state: What the script keeps in `run.state`, as the chief had it.
        duration_seconds: From the agreed step to the commit, on the chief.
        cost: What it cost; None in records of earlier versions.
        files: What belongs to it, by name relative to the run directory.
        world: Worker and replica counts, strategy, versions.
        contents: What resuming brings back: `model`, `optimizer`, `step`, `input position`...
    """

    has_copy: ClassVar[bool] = True

    name: str
    step: int
    branch: int
    sequence: int
    saved_at: float
    trigger: str
    parent: str | None = None
    command: str | None = None
    metrics: dict[str, float | None] = {}
    best: dict[str, float] = {}
    state: dict[str, Any] = {}
    workers: list[WorkerFacts] = []
    duration_seconds: float | None = None
    cost: SaveCost | None = None
    files: list[FileFacts] = []
    world: dict[str, Any] = {}
    contents: list[str] = []


class FoundFault(msgspec.Struct, frozen=True, kw_only=True):
    """Something that verifying found; severity is `error` or `warning`.

    Attributes:
        kind: A short name for scripts, such as `checksum` or `shard-missing`.
        file: Name of the file, without its directory.
        tensor: Which tensor it concerns; empty if none.
    """

    severity: str
    kind: str
    file: str
    message: str
    tensor: str = ""


class SaveOverhead(Document, frozen=True, kw_only=True):
    """One line of `overheads.jsonl`: what was measured after a save, in the steps that followed.

    Attributes:
        checkpoint: Which one was saved.
        sequence: That of its record.
        slowing_seconds: As `SaveCost.slowing_seconds`.
        slowing_steps: As `SaveCost.slowing_steps`.
    """

    checkpoint: str
    sequence: int
    slowing_seconds: float
    slowing_steps: int


class SavePhase(StrEnum):
    """How far a save is; it tells what to do with its files after a crash."""

    WRITING = "writing"
    COMMITTING = "committing"
    DISCARDING = "discarding"


class SaveManifest(SealedDocument, frozen=True, kw_only=True):
    """`saving/NAME.json`: a save under way, and exactly which files it moves into view.

    Attributes:
        phase: While writing, nothing of it is in view and all of it is removed after a crash.
            While committing, every file is written, flushed and verified, and it is completed.
            While discarding, what came into view is removed again.
        record: What is recorded of it, its files among that; None while it is being written.
    """

    name: str
    phase: SavePhase
    record: CheckpointRecord | None = None


class VerificationRecord(SealedDocument, frozen=True, kw_only=True):
    """`verifications/NAME.json`: what reading every byte of a checkpoint found.

    Attributes:
        name: The checkpoint.
        verified_at: When it was done.
        seconds: How long it took.
        bytes: How many bytes were read.
        tensors: How many tensors were checked.
        files: Size, modification time in nanoseconds and inode of each file that was read. It
            holds for exactly these files.
        findings: What was wrong; with an error among them the checkpoint cannot be restored.
    """

    name: str
    verified_at: float
    seconds: float
    bytes: int
    tensors: int
    files: dict[str, tuple[int, int, int]]
    findings: list[FoundFault] = []

    @property
    def fault(self) -> FoundFault | None:
        """The first thing that keeps a restore from being right."""
        return next((found for found in self.findings if found.severity == "error"), None)


class CommandKind(StrEnum):
    """What a person or a script can ask of a live trainer."""

    SAVE = "save"
    RESTORE = "restore"
    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"
    PRUNE = "prune"
    UNDO = "undo"


class CommandState(StrEnum):
    """The life of a command; each state is entered only when its evidence exists."""

    REQUESTED = "requested"
    SEEN = "seen"
    AGREED = "agreed"
    WORKING = "working"
    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"
    EXPIRED = "expired"

    @property
    def is_final(self) -> bool:
        """Whether nothing follows it."""
        return self in _FINAL


_FINAL = {CommandState.DONE, CommandState.REFUSED, CommandState.FAILED, CommandState.EXPIRED}


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """When a command entered a state, and what was known then."""

    state: CommandState
    at: float
    message: str = ""


class Command(Document, frozen=True, kw_only=True):
    """One request and what became of it.

    Attributes:
        arguments: By kind. Restore: `name`. Stop: `save`. Prune: `names`. Undo: `trash`.
        expires_at: If nobody took it by then it is never carried out.
        requested_by: `user@host`, and through what.
        seen_by: Indexes of the workers that know of it.
        worker_count: Of how many.
        step: The step at which all workers act.
        message: The newest word on it, for a person.
        result: What came of it: the checkpoint's name, bytes, counts, evidence.
        history: All transitions, oldest first.
    """

    id: str
    kind: CommandKind
    requested_at: float
    expires_at: float
    requested_by: str
    arguments: dict[str, Any] = {}
    state: CommandState = CommandState.REQUESTED
    seen_by: list[int] = []
    worker_count: int = 0
    step: int | None = None
    message: str = ""
    result: dict[str, Any] = {}
    history: list[Transition] = []


class JournalKind(StrEnum):
    """What the journal tells of."""

    START = "start"
    SAVE = "save"
    RESTORE = "restore"
    PRUNE = "prune"
    UNDO = "undo"
    EMPTY = "empty trash"
    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"
    FINISH = "finish"
    REFUSED = "refused"
    FAILED = "failed"
    EXPIRED = "expired"
    WORKER_LOST = "worker lost"
    RESTART = "restart"
    PIN = "pin"
    UNPIN = "unpin"
    EXPORT = "export"
    NOTE = "note"


class JournalEntry(Document, frozen=True, kw_only=True):
    """One line of `journal.jsonl`: what happened, when, who asked and why."""

    at: float
    kind: JournalKind
    message: str
    step: int | None = None
    branch: int | None = None
    checkpoint: str | None = None
    by: str = ""
    details: dict[str, Any] = {}


class SeriesPoint(Document, frozen=True, kw_only=True):
    """One line of `series.jsonl`: training at one moment; None stands for not-a-number."""

    at: float
    step: int
    branch: int
    metrics: dict[str, float | None] = {}
    examples_per_second: float | None = None
    step_seconds: float | None = None


class ExportFormat(StrEnum):
    """As what a model can be exported; the value is also what the command line calls it."""

    KERAS = "keras"
    SAVED_MODEL = "saved-model"
    WEIGHTS = "weights"

    @property
    def suffix(self) -> str:
        """How names of such files end; a SavedModel is a directory."""
        return {"keras": ".keras", "weights": ".weights.h5"}.get(self.value, "")


class ExportPhase(StrEnum):
    """What a process that was started to export does."""

    WRITE = "write"
    CHECK = "check"


class ExportRequest(Document, frozen=True, kw_only=True):
    """What a training script is to export, in the place of training.

    Attributes:
        checkpoint: Its name.
        file_name: Of what is written, beside this request.
    """

    checkpoint: str
    format: ExportFormat
    file_name: str
    phase: ExportPhase


class ExportReport(Document, frozen=True, kw_only=True):
    """What became of one phase of an export.

    Attributes:
        problem: Why it failed; empty if it did not.
        step: Of the checkpoint.
        examples: On which examples the answers were compared, in words.
        outputs: How many numbers an answer has.
        difference: The largest relative difference of the answers; 0 if they are equal.
    """

    problem: str = ""
    step: int | None = None
    examples: str = ""
    outputs: int = 0
    difference: float | None = None


class ListEntry(msgspec.Struct, frozen=True, kw_only=True):
    """How TensorFlow's state file listed a checkpoint: as `path`, at `place` from the oldest."""

    path: str
    place: int
    timestamp: float | None = None


class TrashedCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint in the trash: its files by their names relative to the run directory.

    Attributes:
        files: In the order in which a prune moves them; an undo goes backwards.
        identities: Of each file: size, time in nanoseconds, inode. What has others by now is
            another file, and is left alone, unless its content is proven to be the same: in a
            copy of a run directory times and inodes are others.
        checksums: Of each file: CRC32C of its bytes, where it is small or a record tells it; of
            a directory: CRC32C of the names and sizes in it. None where it is not known.
        list_entry: How the state file listed it, where a prune took it off that list.
    """

    name: str
    step: int | None
    size: int
    files: list[str]
    identities: list[tuple[int, int, int]] = []
    checksums: list[int | None] = []
    listed: bool = False
    list_entry: ListEntry | None = None
    reason: str = ""


class TrashPhase(StrEnum):
    """How far a prune or an undo is; it tells what to finish after a crash."""

    PRUNING = "pruning"
    TRASHED = "trashed"
    UNDOING = "undoing"


class TrashManifest(SealedDocument, frozen=True, kw_only=True):
    """`trash/ID/manifest.json`, written before the first file moves: what an undo brings back.

    Attributes:
        update_state_file: Whether TensorFlow's state file follows what is moved.
        sequence: Place in the order of all prunes of the run, whatever the clocks said; 0 in
            manifests of version 0.1, which come before all others.
    """

    id: str
    at: float
    by: str
    checkpoints: list[TrashedCheckpoint]
    phase: TrashPhase = TrashPhase.PRUNING
    update_state_file: bool = True
    sequence: int = 0


class TrashOrder(Document, frozen=True, kw_only=True):
    """`trash.json`: the highest sequence that a prune of the run has had."""

    sequence: int
