"""Which checkpoint a person means, and what going back to it gives up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfckpt_trainer.catalog.checkpoints import Checkpoint
from tfckpt_trainer.errors import RefusedError, UsageError

SHOWN_NEAR = 4


@dataclass(frozen=True)
class RestorePlan:
    """What a restore would do.

    Attributes:
        given_up: Steps done since; 0 where the checkpoint lies ahead.
    """

    checkpoint: Checkpoint
    given_up: int


def find_checkpoint(
    checkpoints: Sequence[Checkpoint], *, step: int | None = None, name: str | None = None
) -> Checkpoint:
    """Returns the checkpoint of this name, or of this step.

    A step that several branches have is that of the newest branch in which training was, as
    long as only one of them can be restored; else the name must be given.

    Raises:
        UsageError: There is none, or the step is ambiguous.
        RefusedError: It cannot be restored.
    """
    if name is not None:
        found = [c for c in checkpoints if c.name == name]
        if not found:
            known = ", ".join(c.name for c in checkpoints[:SHOWN_NEAR]) or "none"
            raise UsageError(f"There is no checkpoint {name!r}; the newest are: {known}.")
    else:
        found = [c for c in checkpoints if c.step == step]
        if not found:
            raise UsageError(
                f"No checkpoint has step {step}; near are: {_near(checkpoints, step)}."
            )
    restorable = [c for c in found if c.restorable]
    if not restorable:
        worst = found[0]
        raise RefusedError(
            f"{worst.name} is {worst.state.value} and cannot be restored: {worst.problem}"
        )
    if len(restorable) > 1:
        names = ", ".join(c.name for c in restorable)
        raise UsageError(f"Step {step} is in several branches: {names}. Give --name.")
    return restorable[0]


def plan_restore(checkpoint: Checkpoint, current_step: int | None) -> RestorePlan:
    """Returns what going to `checkpoint` gives up, seen from `current_step`."""
    behind = (current_step or 0) - (checkpoint.step or 0)
    return RestorePlan(checkpoint, max(0, behind))


def _near(checkpoints: Sequence[Checkpoint], step: int | None) -> str:
    steps = {c.step for c in checkpoints if c.step is not None and c.restorable}
    nearest = sorted(steps, key=lambda known: abs(known - (step or 0)))[:SHOWN_NEAR]
    return ", ".join(str(known) for known in sorted(nearest)) or "none"
