"""What is recorded of a checkpoint: its files, its save, its verification."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar

import msgspec

from tfckpt_trainer.rundir.documents import Document, SealedDocument


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
