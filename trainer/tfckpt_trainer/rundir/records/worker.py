"""What a worker says of itself in its heartbeat."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from tfckpt_trainer.rundir.documents import Document


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
        cpu_stall_ratio: For which part of the last interval its threads were ready and not let
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
    cpu_stall_ratio: float | None = None
