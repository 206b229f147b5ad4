"""What must never go, whatever is asked: the one list of reasons."""

from __future__ import annotations

from collections.abc import Sequence

from tfckpt_trainer.catalog.scan.checkpoints import Checkpoint, CheckpointState
from tfckpt_trainer.catalog.scan.linked import link_reasons


def protections(
    checkpoints: Sequence[Checkpoint], in_use: frozenset[str] = frozenset()
) -> dict[str, str]:
    """Returns the names of the checkpoints that must stay, each with the reason.

    Args:
        checkpoints: All of a directory, newest first.
        in_use: Names of what is being read or written.
    """
    reasons: dict[str, str] = {}
    for checkpoint in checkpoints:
        reason = _reason(checkpoint, in_use)
        if reason:
            reasons[checkpoint.name] = reason
    for name, reason in link_reasons(checkpoints):
        reasons.setdefault(name, reason)
    newest = next((c for c in checkpoints if c.restorable), None)
    if newest is not None:
        reasons.setdefault(newest.name, "the newest that can be restored")
    verified = next(
        (c for c in checkpoints if c.state is CheckpointState.VERIFIED and not c.links), None
    )
    if verified is not None:
        reasons.setdefault(verified.name, "the last verified")
    return reasons


def _reason(checkpoint: Checkpoint, in_use: frozenset[str]) -> str:
    if checkpoint.pinned:
        return "pinned"
    if checkpoint.state is CheckpointState.WRITING:
        return "being written"
    if checkpoint.state is CheckpointState.TRASHED:
        return "on its way to the trash"
    if checkpoint.name in in_use:
        return "in use"
    if checkpoint.is_head:
        return "training goes on from it"
    return ""
