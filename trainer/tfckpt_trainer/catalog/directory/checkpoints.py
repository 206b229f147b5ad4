"""The record of one checkpoint as a scan found it: identity, place in the history, state."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from tfckpt_trainer.bundle.links import Link
from tfckpt_trainer.catalog.directory.packed_record import PackedRecord
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, Derivation
from tfckpt_trainer.rundir.records.hyperparameter import Hyperparameter
from tfckpt_trainer.rundir.records.results import ActionResult


class CheckpointState(StrEnum):
    """The state of the files of a checkpoint; `states` has the rules."""

    WRITING = "writing"
    COMPLETE = "complete"
    VERIFIED = "verified"
    INEXACT = "inexact"
    INCOMPLETE = "incomplete"
    CORRUPT = "corrupt"
    UNREADABLE = "unreadable"
    UNSUPPORTED = "unsupported"
    ORPHANED = "orphaned"
    TRASHED = "trashed"

    def __init__(self, value: str) -> None:
        # An attribute: this is looked up several times for each of ten thousand checkpoints.
        self.restorable = value in ("complete", "verified", "inexact")
        """Whether it can be restored."""


class Checkpoint(msgspec.Struct, frozen=True, gc=False):
    """One checkpoint at the time of a scan.

    Attributes:
        step: From its record or its name; None if neither has it.
        parent: The checkpoint that training continued from.
        sequence: Position in the order of all saves and restores; None without a record.
        size: Bytes of all its files, with the workers' own state.
        shards: Number of data files.
        saved_at: Seconds since the epoch, from the record or else from the index file.
        metrics: Values by name: metrics at that step, and what users' own actions found besides.
        results: What users' own actions found, by action, the oldest first.
        pinned: Whether the user protected it from prunes.
        is_head: Whether a cold start restores it.
        listed: Whether TensorFlow's state file lists it.
        dropped_by_manager: Whether a `tf.train.CheckpointManager` writes the state file and does
            not list it. No manager will delete it.
        is_placed_by_step: Whether its place among the others follows from its step, because
            nothing records the order.
        is_proven: Whether content or a record shows that it is a checkpoint, or was one.
        lacks_file: Whether a file of it is missing, which may be there under another name.
        stranger: Its owner, if that is none of `RunDirectory.owners`; else empty.
        problem: Why it cannot be restored, or not exactly; empty if it can.
        verified_at: When these files were last verified, whatever the result; None if never.
        not_finite_tensors: Number of tensors with NaN or infinite values; None if no verification
            looked for them.
        packed: Its record, if there is one that can be used.
        links: The files that are symbolic links.
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
    metrics: Mapping[str, float | None] = {}
    results: Mapping[str, ActionResult] = {}
    pinned: bool = False
    is_head: bool = False
    listed: bool = False
    dropped_by_manager: bool = False
    is_placed_by_step: bool = False
    is_proven: bool = True
    lacks_file: bool = False
    stranger: str = ""
    problem: str = ""
    verified_at: float | None = None
    packed: PackedRecord | None = None
    links: tuple[Link, ...] = ()
    not_finite_tensors: int | None = None

    @property
    def record(self) -> CheckpointRecord | None:
        """Its whole record, decoded anew: not for what is asked of all checkpoints."""
        return self.packed.unpack() if self.packed is not None else None

    @property
    def derived(self) -> Derivation | None:
        """What it was made from, if it was made from other checkpoints, without training."""
        return self.packed.derived if self.packed is not None else None

    @property
    def restorable(self) -> bool:
        """Whether it can be restored under this name; a checkpoint with links cannot."""
        return self.state.restorable and not self.links

    @property
    def hyperparameters(self) -> dict[str, Hyperparameter]:
        """Its hyperparameters, by name; none without a record."""
        saved = self.packed.hyperparameters if self.packed is not None else []
        return {one.name: one for one in saved}

    @property
    def not_finite(self) -> dict[str, str]:
        """The metrics that were not finite at its step, each with `nan`, `inf` or `-inf`."""
        broken = {
            name: value
            for name, value in self.metrics.items()
            if value is None or not math.isfinite(value)
        }
        record = self.record if broken else None
        recorded = record.not_finite if record is not None else {}
        return {
            name: _known_value(recorded.get(name)) if value is None else str(value)
            for name, value in broken.items()
        }


def is_derived(checkpoint: Checkpoint) -> bool:
    """Whether it was made from other checkpoints, without training."""
    # Not by its property: this is asked several times about each of very many.
    packed = checkpoint.packed
    return packed is not None and packed.derived is not None


def is_trained(checkpoint: Checkpoint) -> bool:
    """Whether training saved it, and under this name: neither made from others nor a link."""
    return not is_derived(checkpoint) and not (checkpoint.links and _is_link(checkpoint))


def counted_by_rules(checkpoints: Iterable[Checkpoint]) -> list[Checkpoint]:
    """Returns the checkpoints to which rules apply: those that training saved, and are restorable.

    A user made the others, or a stranger owns them: no rule keeps or deletes them.
    """
    return [
        c
        for c in checkpoints
        # As `restorable` and `is_derived`, of which calls for very many take long.
        if c.state.restorable
        and not c.links
        and (c.packed is None or c.packed.derived is None)
        and not c.stranger
    ]


def rule_groups(checkpoints: Iterable[Checkpoint]) -> list[list[Checkpoint]]:
    """Returns those that `counted_by_rules` does, in groups: with a record of this library first.

    Each rule is applied to each group, so that copies of others take no place of what a run saved.
    No group is empty.
    """
    counted = counted_by_rules(checkpoints)
    recorded = [c for c in counted if c.packed is not None]
    others = [c for c in counted if c.packed is None]
    return [group for group in (recorded, others) if group]


def trained_first(checkpoints: Iterable[Checkpoint]) -> list[Checkpoint]:
    """Returns checkpoints in their order, those that were made from others last."""
    return sorted(checkpoints, key=is_derived)


def _is_link(checkpoint: Checkpoint) -> bool:
    return any(
        link.name == f"{checkpoint.name}.index" and (not link.file or link.file.endswith(".index"))
        for link in checkpoint.links
    )


def _known_value(recorded: str | None) -> str:
    """Returns a recorded value that is not finite; early records do not have it."""
    return recorded if recorded in {"inf", "-inf"} else "nan"


def newest_finite(checkpoints: Sequence[Checkpoint]) -> Checkpoint | None:
    """Returns the newest checkpoint that can be restored, with no known NaN or infinite value.

    Args:
        checkpoints: Newest first.
    """
    return next((c for c in checkpoints if c.restorable and not is_suspected(c)), None)


def may_be_finite(checkpoint: Checkpoint) -> bool:
    """Whether it can be restored, nobody looked at its values, and its loss says nothing bad."""
    is_unread = checkpoint.not_finite_tensors is None
    return checkpoint.restorable and is_unread and "loss" not in checkpoint.not_finite


def is_suspected(checkpoint: Checkpoint) -> bool:
    """Whether its values may not be finite: by a verification of them, else by its metrics.

    A metric that is rarely reported keeps its value for many steps, and may be NaN for another
    reason than the values of the checkpoint.
    """
    tensors = checkpoint.not_finite_tensors
    return bool(checkpoint.not_finite) if tensors is None else tensors > 0
