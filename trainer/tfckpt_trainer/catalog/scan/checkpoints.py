"""A checkpoint as a watcher sees it: what it is, where it stands, what state it is in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tfckpt_trainer.bundle.links import Link
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord


class CheckpointState(StrEnum):
    """What is known of the files of a checkpoint."""

    WRITING = "writing"
    COMPLETE = "complete"
    VERIFIED = "verified"
    INCOMPLETE = "incomplete"
    CORRUPT = "corrupt"
    UNREADABLE = "unreadable"
    ORPHANED = "orphaned"
    TRASHED = "trashed"

    @property
    def restorable(self) -> bool:
        """Whether a restore may be tried."""
        # Not membership in a set: it is asked of ten thousand at once, and hashing is slow.
        return self is CheckpointState.COMPLETE or self is CheckpointState.VERIFIED


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint of a directory at the moment of a look.

    Attributes:
        step: From its record or its name; None where neither says.
        parent: The checkpoint from which training reached it.
        sequence: Place in the order of all saves and restores; None without a record.
        size: Bytes of all its files.
        shards: Data files.
        saved_at: Seconds since the epoch; from the record, or the index file's time.
        pinned: Whether a person said that it is never to be pruned.
        is_head: Whether a cold start goes on from it.
        listed: Whether TensorFlow's state file names it.
        let_go: Whether a manager of TensorFlow's writes that file and does not name it, as it
            does with what it keeps for good; no manager ever deletes it.
        problem: Why it cannot be restored, in words; empty if it can.
        verified_at: When all bytes of these very files were last read and compared, whatever
            was found; None if never, as far as is known.
        links: Those of its files that are symbolic links.
    """

    name: str
    step: int | None
    branch: int
    state: CheckpointState
    size: int
    shards: int
    saved_at: float
    parent: str | None = None
    sequence: int | None = None
    trigger: str = ""
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    pinned: bool = False
    is_head: bool = False
    listed: bool = False
    let_go: bool = False
    problem: str = ""
    verified_at: float | None = None
    record: CheckpointRecord | None = None
    links: tuple[Link, ...] = ()

    @property
    def restorable(self) -> bool:
        """Whether a restore may be tried; of what has links, the checkpoint they lead to is."""
        return self.state.restorable and not self.links
