"""Which checkpoint a person means, and what going back to it gives up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfckpt_trainer.catalog.lineage import branch_after_restore
from tfckpt_trainer.catalog.scan.checkpoints import Checkpoint
from tfckpt_trainer.errors import RefusedError, UnknownCheckpointError
from tfckpt_trainer.rundir.health import read_workers
from tfckpt_trainer.rundir.paths import RunDirectory, parse_checkpoint_name

SHOWN_NEAR = 4

Place = tuple[int, int]
"""Where training is or was: a branch, and a step on it."""


@dataclass(frozen=True)
class RestorePlan:
    """What a restore would do.

    Attributes:
        checkpoint: Which one is meant; it can be restored.
        current_step: Where training is; None where no worker has said so.
        given_up: Steps done since; 0 where the checkpoint lies ahead.
        starts_branch: The branch that would begin; None where the checkpoint's own goes on.
    """

    checkpoint: Checkpoint
    current_step: int | None
    given_up: int
    starts_branch: int | None


def plan_restore(
    run: RunDirectory,
    checkpoints: Sequence[Checkpoint],
    *,
    step: int | None = None,
    name: str | None = None,
) -> RestorePlan:
    """Returns what going back to the checkpoint of this step, or of this name, would do.

    Raises:
        UsageError: There is none.
        RefusedError: It cannot be restored, or the step is in several branches.
    """
    chief = next((status for status in read_workers(run) if status.index == 0), None)
    place = None if chief is None else (chief.branch, chief.step)
    checkpoint = find_checkpoint(checkpoints, step=step, name=name, place=place)
    behind = (chief.step if chief is not None else 0) - (checkpoint.step or 0)
    branch = branch_after_restore(run, checkpoint.name)
    return RestorePlan(
        checkpoint,
        None if chief is None else chief.step,
        given_up=max(0, behind),
        starts_branch=None if branch == checkpoint.branch else branch,
    )


def find_checkpoint(
    checkpoints: Sequence[Checkpoint],
    *,
    step: int | None = None,
    name: str | None = None,
    place: Place | None = None,
) -> Checkpoint:
    """Returns the checkpoint of this name, or of this step.

    A step that several branches have is the one that training passed on its way to where it is
    now; where that does not decide, the name must be given.

    Args:
        checkpoints: All of the run, newest first.
        step: Which step; ignored where a name is given.
        name: Which name.
        place: Where training is; by default at the checkpoint from which a start would go on.

    Raises:
        UsageError: There is none.
        RefusedError: It cannot be restored, or the step is in several branches.
    """
    if name is not None:
        chosen = next((c for c in checkpoints if c.name == name), None)
        if chosen is None:
            known = ", ".join(c.name for c in checkpoints[:SHOWN_NEAR]) or "none"
            raise UnknownCheckpointError(
                f"There is no checkpoint {name!r}; the newest are: {known}.", name
            )
    else:
        chosen = _of_step(checkpoints, step, place)
    if not chosen.restorable:
        raise RefusedError(
            f"{chosen.name} is {chosen.state.value} and cannot be restored: {chosen.problem}"
        )
    return chosen


def lineage(checkpoints: Sequence[Checkpoint], place: Place | None = None) -> dict[int, int]:
    """Returns the branches through which training came to where it is.

    Args:
        checkpoints: All of the run.
        place: Where it is; by default at the checkpoint from which a start would go on.

    Returns:
        For each such branch its last step on the way. A branch whose beginning was pruned is the
        last that can be told.
    """
    head = next((c for c in checkpoints if c.is_head), None)
    came_from = _place(checkpoints, head.name) if head is not None else None
    passed: dict[int, int] = {}
    place = place or came_from
    while place is not None and place[0] not in passed:
        branch, last = place
        passed[branch] = last
        own = [c for c in checkpoints if c.branch == branch and c.step is not None]
        if own:
            parent = min(own, key=lambda c: c.step or 0).parent
            place = _place(checkpoints, parent) if parent is not None else None
        else:
            # A branch that has saved nothing yet began where the last restore went.
            place = came_from
    return passed


def _of_step(
    checkpoints: Sequence[Checkpoint], step: int | None, place: Place | None
) -> Checkpoint:
    found = [c for c in checkpoints if c.step == step]
    if not found:
        raise UnknownCheckpointError(
            f"No checkpoint has step {step}; near are: {_near(checkpoints, step)}.", str(step)
        )
    if len(found) == 1:
        return found[0]
    passed = lineage(checkpoints, place)
    on_the_way = [c for c in found if (c.step or 0) <= passed.get(c.branch, -1)]
    if len(on_the_way) == 1:
        return on_the_way[0]
    names = ", ".join(c.name for c in found)
    raise RefusedError(f"Step {step} is in several branches: {names}. Say which with --name.")


def _place(checkpoints: Sequence[Checkpoint], name: str) -> Place | None:
    """Branch and step of a checkpoint, from its name where it was pruned."""
    known = next((c for c in checkpoints if c.name == name), None)
    if known is not None:
        return None if known.step is None else (known.branch, known.step)
    said = parse_checkpoint_name(name)
    return (said.branch, said.step) if said is not None else None


def _near(checkpoints: Sequence[Checkpoint], step: int | None) -> str:
    steps = {c.step for c in checkpoints if c.step is not None and c.restorable}
    nearest = sorted(steps, key=lambda known: abs(known - (step or 0)))[:SHOWN_NEAR]
    return ", ".join(str(known) for known in sorted(nearest)) or "none"
