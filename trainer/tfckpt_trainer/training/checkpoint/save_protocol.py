"""What the parts of a save tell each other: the request, the votes, the outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.rundir.documents import Document
from tfckpt_trainer.rundir.paths import checkpoint_name
from tfckpt_trainer.rundir.records.checkpoint import FileFacts, SaveCost, WorkerFacts

LOCAL_FAILURES = (OSError, TfckptError, tf.errors.OpError)
"""What writing, flushing and verifying on one worker can end in."""


@dataclass(frozen=True)
class SaveRequest:
    """What is to be saved: the same on all workers."""

    step: int
    branch: int
    parent: str | None
    sequence: int
    trigger: str
    command: str | None
    metrics: Mapping[str, float | None]
    best: Mapping[str, float]
    state: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The checkpoint's name."""
        return checkpoint_name(self.step, self.branch)


@dataclass(frozen=True)
class SaveOutcome:
    """What became of a save: the same on all workers.

    Attributes:
        name: The checkpoint, saved now or before; None if there is none.
        already: Whether it was there before.
        refused: Whether nothing was tried because it could not have worked.
        full: Whether that is because the disk has no room.
        problem: Why there is none, naming the worker.
        warning: What went wrong once the checkpoint was there, as a sentence; empty if nothing.
        size: Bytes written by all workers.
        seconds: From the agreed step to the commit.
        stall_seconds: For how much of that training stood still.
    """

    name: str | None
    step: int = 0
    branch: int = 0
    already: bool = False
    refused: bool = False
    full: bool = False
    problem: str = ""
    warning: str = ""
    size: int = 0
    seconds: float = 0.0
    stall_seconds: float = 0.0

    @property
    def durability(self) -> str:
        """What is known of it on disk, to follow its size and time in a sentence."""
        return f"verified. {self.warning}" if self.warning else "verified and flushed to disk."


class Vote(Document, frozen=True, kw_only=True):
    """What one worker says of its part of a save; times in seconds.

    Attributes:
        problem: Why it could not do its part; the rest is empty then.
        files: What it wrote, by names relative to the run directory. Shards of the shared state
            have the names under which they were written.
    """

    problem: str = ""
    facts: WorkerFacts | None = None
    files: list[FileFacts] = []
    write_seconds: float = 0.0
    flush_seconds: float = 0.0
    verify_seconds: float = 0.0


def cost_of(votes: list[Vote], *, background: bool) -> SaveCost:
    """Returns what a save cost, from what the workers say of it."""
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
    """Returns what went wrong on this worker in one line, without TensorFlow's stack."""
    if isinstance(error, tf.errors.OpError):
        return str(error.message).splitlines()[0]
    return str(error)
