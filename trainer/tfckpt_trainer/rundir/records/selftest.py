"""What each worker of a self-test records for `tfckpt-tui selftest`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tfckpt_trainer.rundir.storage.documents import Document


class WorkerDevices(msgspec.Struct, frozen=True, kw_only=True):
    """The devices and versions of one worker.

    Attributes:
        gpus: Names of the GPUs that TensorFlow can use.
        driver_gpus: GPUs that the driver offers to this process, as `CUDA_VISIBLE_DEVICES` names
            them.
        strategy: Class of the strategy.
        replicas: Replicas in sync over all workers.
        local_replicas: Replicas of this worker.
        state_bytes: Bytes of all variables of one replica.
        versions: Versions of Python, TensorFlow, Keras, and of CUDA and cuDNN that TensorFlow was
            built for.
    """

    gpus: list[str] = []
    driver_gpus: list[str] = []
    strategy: str
    replicas: int
    local_replicas: int
    state_bytes: int
    versions: dict[str, str] = {}


class StepCost(msgspec.Struct, frozen=True, kw_only=True):
    """What the library adds to a step, measured in pairs of blocks.

    Attributes:
        plain_seconds: Median step of a plain loop.
        added_seconds: Quartiles of the difference of the median steps of both loops: a quarter of
            the pairs is below the first one.
        blocks: Pairs of blocks.
        steps: Steps of each block.
    """

    plain_seconds: float
    added_seconds: list[float]
    blocks: int
    steps: int


class MemoryPeaks(msgspec.Struct, frozen=True, kw_only=True):
    """The highest use of memory so far, in bytes.

    Attributes:
        host: Resident memory of the process.
        devices: Memory that TensorFlow used on each GPU, since the last such record.
    """

    host: int
    devices: list[int] = []


class RecordedStep(Document, frozen=True, kw_only=True):
    """A step of a worker; a line of its record. Further facts are only in some lines.

    Attributes:
        process: PID of the process that trained it.
        step: Number of the step.
        loss: The loss as a hexadecimal float.
        devices: The devices, with the first step of a process.
        cost: The cost per step, with the first step after it was measured.
        before_save: Peaks up to the step after which the first save begins.
        after_save: Peaks up to the first step that sees the checkpoint.
    """

    process: int
    step: int
    loss: str
    devices: WorkerDevices | None = None
    cost: StepCost | None = None
    before_save: MemoryPeaks | None = None
    after_save: MemoryPeaks | None = None


class KilledWorker(Document, frozen=True, kw_only=True):
    """A worker that ended itself by SIGKILL.

    Attributes:
        worker: Its index.
        process: Its PID.
        step: Its last step.
    """

    worker: int
    process: int
    step: int


def steps_file(directory: Path, worker: int) -> Path:
    """Path of the record of a worker: one `RecordedStep` per line."""
    return directory / f"worker-{worker}.jsonl"


def killed_file(directory: Path) -> Path:
    """Path of the `KilledWorker`; it exists before the worker dies."""
    return directory / "killed.json"
