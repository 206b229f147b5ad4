"""What a run directory says of its run: settings, history head, supervisor."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar

import msgspec

from tfckpt_trainer.rundir.documents import Document, SealedDocument


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
        retention: How the trainer prunes, if it does; see `RetentionSettings.from_json`. Values are
            checked when it is used: a rule of a newer version must not make the file unreadable.
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
    retention: dict[str, Any] | None = None


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
