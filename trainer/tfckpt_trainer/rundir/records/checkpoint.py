"""Records about a checkpoint: its files, its save and its verification."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar

import msgspec

from tfckpt_trainer.rundir.records.exactness import Exactness
from tfckpt_trainer.rundir.records.hyperparameter import Hyperparameter
from tfckpt_trainer.rundir.records.worker import NotFiniteMetric
from tfckpt_trainer.rundir.storage.documents import Document, SealedDocument


class PlannedSkip(msgspec.Struct, frozen=True, kw_only=True):
    """Input that is not trained.

    Attributes:
        at_step: Steps done when it is dropped.
        batches: Steps whose input each worker drops.
        by: Who asked for it.
    """

    at_step: int
    batches: int
    by: str = ""


class FileFacts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One file of a checkpoint as it was written: size in bytes and CRC32C."""

    name: str
    size: int
    crc32c: int


class WorkerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """State and statistics of one worker at a save. Times in seconds, memory in bytes.

    Attributes:
        state: The content of `run.worker_state`.
        not_finite: Which of the metrics are None because they are NaN or infinite, and since when.
    """

    index: int
    host: str
    step_seconds: float | None = None
    input_wait_seconds: float | None = None
    stall_seconds: float | None = None
    memory_bytes: int | None = None
    metrics: dict[str, float | None] = {}
    state: dict[str, Any] = {}
    not_finite: list[NotFiniteMetric] = []


class SaveCost(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of a save. Times in seconds, each the maximum over all workers.

    Attributes:
        background: Whether the save ran in the background.
        stall_seconds: Time for which training stopped.
        write_seconds: Time to pass all data to the operating system.
        flush_seconds: Time to flush the data to disk.
        verify_seconds: Time to read the data back and compare it.
        bytes_per_second: Rate of writing and flushing, over all workers.
        slowing_seconds: Total slowdown of the steps during and after the save, compared with the
            steps before it. None in the record itself: it is measured later and stored in
            `overheads.jsonl`.
        slowing_steps: Number of steps over which the slowdown was measured.
    """

    background: bool = False
    stall_seconds: float = 0.0
    write_seconds: float = 0.0
    flush_seconds: float = 0.0
    verify_seconds: float = 0.0
    bytes_per_second: float | None = None
    slowing_seconds: float | None = None
    slowing_steps: int = 0


class SourceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint that another one was made from.

    Attributes:
        weight: Its weight in an average; None in other operations.
        index_crc32c: CRC32C of its index at that time.
    """

    name: str
    step: int | None = None
    weight: float | None = None
    index_crc32c: int | None = None


class Derivation(msgspec.Struct, frozen=True, kw_only=True):
    """How a checkpoint was made without training.

    Attributes:
        operation: `average`, `edit` or `convert`.
        sources: The checkpoints that it was made from, the newest last; none if it was made from
            an array file alone.
        changes: What was done to single tensors, a sentence each.
    """

    operation: str
    sources: list[SourceFacts]
    changes: list[str] = []


class CheckpointRecord(SealedDocument, frozen=True, kw_only=True, gc=False):
    """`records/NAME.json`: what TensorFlow does not record about a checkpoint. Never modified.

    Attributes:
        parent: The checkpoint from which training reached this one; None for the first.
        sequence: Position in the order of all saves and restores of the run. A cold restore uses
            the good checkpoint with the highest sequence, not the highest step.
        trigger: Why it was saved: `every N steps`, `every N seconds`, `command`, `end`, ...
        command: ID of the command that requested the save, if any.
        metrics: Means over all replicas at that step; None stands for NaN and infinity.
        not_finite: Which of the metrics are None, each with its value: `nan`, `inf` or `-inf`.
        best: Best value so far of each metric that triggers a save when it improves.
        state: The content of `run.state` on the chief.
        hyperparameters: Their values, and changes that were not complete.
        skips: Input that is to be dropped in later steps.
        duration_seconds: Time from the agreed step to the commit, on the chief.
        cost: The cost of the save; None if training did not save it.
        files: Its files, with names relative to the run directory.
        world: Worker and replica counts, strategy and versions.
        contents: What a restore brings back: `model`, `optimizer`, `step`, `input position`, ...
        exactness: Whether resuming from it is exact, and what is missing; None if training did
            not save it.
        per_worker: Paths of the values that each worker stored because they were not equal on
            all replicas; None if no checkpoint of training has such values for it.
        derived: How it was made without training; None if training saved it. A start
            resumes from such a checkpoint only after it was restored.
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
    hyperparameters: list[Hyperparameter] = []
    skips: list[PlannedSkip] = []
    workers: list[WorkerFacts] = []
    duration_seconds: float | None = None
    cost: SaveCost | None = None
    files: list[FileFacts] = []
    world: dict[str, Any] = {}
    contents: list[str] = []
    exactness: Exactness | None = None
    per_worker: list[str] | None = None
    not_finite: dict[str, str] = {}
    derived: Derivation | None = None

    @property
    def size(self) -> int:
        """Total size of its files in bytes."""
        return sum(facts.size for facts in self.files)

    @property
    def worker_bytes(self) -> int:
        """Size of the workers' own state, which is not in the run directory itself."""
        return sum(facts.size for facts in self.files if "/" in facts.name)

    @property
    def asked(self) -> tuple[object, ...]:
        """What commands made of the run, apart from its position, to compare two records."""
        changed = [
            (value.name, value.changed_at, value.changed_to, value.planned)
            for value in self.hyperparameters
            if value.changed_at is not None or value.planned is not None
        ]
        return changed, self.skips

    def has_file(self, prefix: str) -> bool:
        """Whether files of the workers with this prefix were written."""
        return any(facts.name.endswith(f"/{prefix}.index") for facts in self.files)


class FoundFault(msgspec.Struct, frozen=True, kw_only=True):
    """A problem that a verification found.

    Attributes:
        severity: `error` or `warning`.
        kind: A short name for scripts, such as `checksum` or `shard-missing`.
        file: Name of the file, without its directory.
        tensor: The affected tensor; empty if there is none.
    """

    severity: str
    kind: str
    file: str
    message: str
    tensor: str = ""


class SaveOverhead(Document, frozen=True, kw_only=True):
    """One line of `overheads.jsonl`: the slowdown of the steps after a save.

    Attributes:
        checkpoint: Name of the saved checkpoint.
        sequence: The sequence in its record.
        slowing_seconds: See `SaveCost.slowing_seconds`.
        slowing_steps: See `SaveCost.slowing_steps`.
    """

    checkpoint: str
    sequence: int
    slowing_seconds: float
    slowing_steps: int


class SavePhase(StrEnum):
    """Phase of a save. It decides what happens to its files after a crash."""

    WRITING = "writing"
    COMMITTING = "committing"
    DISCARDING = "discarding"


class SaveManifest(SealedDocument, frozen=True, kw_only=True):
    """`saving/NAME.json`: a save in progress.

    Attributes:
        phase: In `writing`, all files are deleted after a crash. In `committing`, all files are
            verified and the commit is completed. In `discarding`, moved files are deleted.
        record: The record of the checkpoint, with its files; None in `writing`.
    """

    name: str
    phase: SavePhase
    record: CheckpointRecord | None = None


class VerificationRecord(SealedDocument, frozen=True, kw_only=True):
    """`verifications/NAME.json`: the result of a verification.

    Attributes:
        name: Name of the checkpoint.
        verified_at: Time of the verification.
        seconds: Its duration.
        bytes: Number of bytes read.
        tensors: Number of tensors checked.
        files: Size, modification time in nanoseconds and inode of each file. The result is valid
            only while these are unchanged.
        findings: The problems found. An error among them prevents a restore.
        not_finite: Number of tensors with NaN or infinite values; None if that was not checked.
    """

    name: str
    verified_at: float
    seconds: float
    bytes: int
    tensors: int
    files: dict[str, tuple[int, int, int]]
    findings: list[FoundFault] = []
    not_finite: int | None = None

    @property
    def fault(self) -> FoundFault | None:
        """The first error; None if there is none."""
        return next((finding for finding in self.findings if finding.severity == "error"), None)
