"""Which checkpoints no prune may delete, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from tfckpt_trainer.catalog.scan.checkpoints import (
    Checkpoint,
    CheckpointState,
    is_derived,
    newest_finite,
)
from tfckpt_trainer.catalog.scan.symbolic_links import link_reasons

NOT_IN_USE: Mapping[str, str] = MappingProxyType({})
"""No checkpoint is in use."""

LAST_VERIFIED = "the last verified"
"""Why the newest checkpoint with a good verification result is protected."""


def protections(
    checkpoints: Sequence[Checkpoint], in_use: Mapping[str, str] = NOT_IN_USE
) -> dict[str, str]:
    """Returns the names of the checkpoints that no prune may delete, each with the reason.

    Args:
        checkpoints: All checkpoints of a directory, newest first.
        in_use: Names of checkpoints that another process may read or write, each with the reason.
    """
    reasons: dict[str, str] = {}
    for checkpoint in checkpoints:
        reason = _reason(checkpoint, in_use)
        if reason:
            reasons[checkpoint.name] = reason
    for name, reason in link_reasons(checkpoints):
        reasons.setdefault(name, reason)
    trained = [c for c in checkpoints if not is_derived(c)]
    if any(checkpoint.restorable for checkpoint in trained):
        checkpoints = trained
    newest = next((c for c in checkpoints if c.restorable), None)
    if newest is not None:
        reasons.setdefault(newest.name, "the newest that can be restored")
    for name, reason in _newest_finite(checkpoints):
        reasons.setdefault(name, reason)
    verified = next(
        (c for c in checkpoints if c.state is CheckpointState.VERIFIED and not c.links), None
    )
    if verified is not None:
        reasons.setdefault(verified.name, LAST_VERIFIED)
    return reasons


def _newest_finite(checkpoints: Sequence[Checkpoint]) -> Iterator[tuple[str, str]]:
    """Yields the newest checkpoints to go back to after NaN, each with what is known of it."""
    restorable = [checkpoint for checkpoint in checkpoints if checkpoint.restorable]
    metrics = next((c for c in restorable if c.metrics and not c.not_finite), None)
    if metrics is not None:
        yield metrics.name, "the newest with finite metrics"
    unsuspected = newest_finite(restorable)
    read = next((c for c in restorable if c.not_finite_tensors == 0), None)
    if read is not None and unsuspected is not restorable[0]:
        # The newest is known to be bad, and those before it may be so too where nobody looked.
        yield read.name, "the newest whose values are known to be finite"
    if unsuspected is not None:
        yield unsuspected.name, "the newest with no known NaN or infinite value"


def _reason(checkpoint: Checkpoint, in_use: Mapping[str, str]) -> str:
    if checkpoint.pinned:
        return "pinned"
    if checkpoint.state is CheckpointState.WRITING:
        return "being written"
    if checkpoint.state is CheckpointState.TRASHED:
        return "being moved to the trash"
    if checkpoint.name in in_use:
        return in_use[checkpoint.name]
    if checkpoint.is_head:
        return "training continues from it"
    try:
        checkpoint.name.encode()
    except UnicodeEncodeError:
        # No manifest can hold it.
        return "its name is not UTF-8; rename its files first"
    return ""
