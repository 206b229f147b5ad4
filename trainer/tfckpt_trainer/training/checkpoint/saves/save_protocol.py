"""A save, from what is known at its step to the votes of the workers and the outcome."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import tensorflow as tf

from tfckpt_trainer.errors import TfckptError, describe_error
from tfckpt_trainer.rundir.full_disk import FULL, is_full
from tfckpt_trainer.rundir.paths import checkpoint_name
from tfckpt_trainer.rundir.records.checkpoint import (
    CheckpointRecord,
    FileFacts,
    SaveCost,
    WorkerFacts,
)
from tfckpt_trainer.rundir.records.exactness import Exactness
from tfckpt_trainer.rundir.storage.documents import Document
from tfckpt_trainer.training.checkpoint.state import Position

LOCAL_FAILURES = (OSError, TfckptError, tf.errors.OpError)
"""Errors of reading or writing on one worker."""

AFTER_ERROR = "error"
"""The trigger of a save after an error of the script."""


def begin_record(position: Position, trigger: str, **facts: Any) -> CheckpointRecord:
    """Returns what is known of a checkpoint at its step; `Saver` adds the rest.

    It is equal on all workers.

    Args:
        position: Where training is.
        trigger: Why it is saved.
        facts: Further fields of the record.
    """
    return CheckpointRecord(
        name=checkpoint_name(position.step, position.branch),
        step=position.step,
        branch=position.branch,
        parent=position.parent,
        sequence=position.sequence,
        best=dict(position.best),
        saved_at=time.time(),
        trigger=trigger,
        **facts,
    )


def on_branch(record: CheckpointRecord, branch: int) -> CheckpointRecord:
    """Returns the record of the same step on another branch."""
    name = checkpoint_name(record.step, branch)
    return msgspec.structs.replace(record, name=name, branch=branch)


@dataclass(frozen=True)
class SaveOutcome:
    """The result of a save; equal on all workers.

    Attributes:
        name: The checkpoint, saved now or before; None if there is none.
        already_saved: Whether it existed before.
        refused: Whether the save was refused before anything was written.
        disk_full: Whether there is none because the disk is full.
        problem: Why there is none, with the worker's index.
        free_branch: A branch on which nothing has the name of this step, if on this branch another
            file has it; otherwise None.
        warning: What went wrong after the commit, as a sentence; empty if nothing did.
        size: Bytes of the checkpoint, with the workers' own state.
        seconds: Time from the step to the commit, as its record has it.
        stall_seconds: Part of that time during which training stood still.
        exactness: What resuming from it brings back.
    """

    name: str | None
    step: int = 0
    branch: int = 0
    already_saved: bool = False
    refused: bool = False
    disk_full: bool = False
    problem: str = ""
    free_branch: int | None = None
    warning: str = ""
    size: int = 0
    seconds: float = 0.0
    stall_seconds: float = 0.0
    exactness: Exactness | None = None

    @property
    def durability(self) -> str:
        """Whether it is verified and flushed, as the end of a sentence."""
        return f"verified. {self.warning}" if self.warning else "verified and flushed to disk."


class SaveVote(Document, frozen=True, kw_only=True):
    """The result of one worker's part of a save; times in seconds.

    Attributes:
        problem: Why its part failed, with the worker's index; then all other fields are empty.
        disk_full: Whether it failed because its disk or a quota is full.
        exactness: What its part brings back.
        files: Files that it wrote, by names relative to the run directory. Shards of the shared
            state have the names under which they were written.
        contents: What the save stores; see `CheckpointRecord.contents`.
        per_worker: See `CheckpointRecord.per_worker`.
    """

    problem: str = ""
    disk_full: bool = False
    facts: WorkerFacts | None = None
    exactness: Exactness | None = None
    files: list[FileFacts] = []
    contents: list[str] = []
    per_worker: list[str] = []
    write_seconds: float = 0.0
    flush_seconds: float = 0.0
    verify_seconds: float = 0.0

    @classmethod
    def against(cls, worker: int, error: Exception, what: str = "") -> SaveVote:
        """Returns the vote of a worker on which an error happened.

        Args:
            worker: Its index.
            error: The error.
            what: What could not be done, as a clause; empty if the error says it.
        """
        problem = f"{what}: {describe_failure(error)}" if what else describe_failure(error)
        return cls(problem=f"worker {worker}: {problem}", disk_full=is_disk_full(error))


def outcome_without(votes: Sequence[SaveVote]) -> SaveOutcome:
    """Returns the outcome of a save that these votes prevent."""
    return SaveOutcome(
        name=None,
        disk_full=any(vote.disk_full for vote in votes),
        problem="; ".join(vote.problem for vote in votes),
    )


def cost_of(votes: list[SaveVote], *, background: bool) -> SaveCost:
    """Returns what a save cost all workers together."""
    write = max(vote.write_seconds for vote in votes)
    flush = max(vote.flush_seconds for vote in votes)
    size = sum(facts.size for vote in votes for facts in vote.files)
    return SaveCost(
        background=background,
        stall_seconds=max(vote.facts.stall_seconds or 0 for vote in votes if vote.facts),
        write_seconds=write,
        flush_seconds=flush,
        verify_seconds=max(vote.verify_seconds for vote in votes),
        bytes_per_second=size / (write + flush) if write + flush > 0 else None,
    )


def describe_failure(error: Exception) -> str:
    """Returns the error in one line, without TensorFlow's stack trace."""
    if isinstance(error, tf.errors.OpError):
        return str(error.message).splitlines()[0]
    # Other errors are not meant to be read alone: `'name'` is a KeyError.
    return describe_error(error) if isinstance(error, LOCAL_FAILURES) else repr(error)


def is_disk_full(error: Exception) -> bool:
    """Whether an error, also one of TensorFlow, means that the disk or a quota is full."""
    if not isinstance(error, tf.errors.ResourceExhaustedError):
        return is_full(error)
    # TensorFlow raises this for memory too, and has the number of the error only as a text: it
    # writes `PATH; REASON`, and in which operation.
    reason = describe_failure(error).rpartition("; ")[2]
    return reason.startswith(tuple(os.strerror(number) for number in FULL))
