"""What an action would do to a run, said before anyone is asked: pure, from a snapshot."""

from __future__ import annotations

from dataclasses import dataclass

from tfckpt_trainer.catalog.retention.rules import is_number
from tfckpt_trainer.catalog.scan.checkpoints import Checkpoint
from tfckpt_trainer.errors import TfckptError
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.services.restore import find_checkpoint as choose

_MOST_NEAR = 4


@dataclass(frozen=True)
class RestorePlan:
    """What going back to a checkpoint means.

    Attributes:
        checkpoint: To which one; None where what was typed names none.
        refusal: Why it cannot be done; empty if it can.
        steps_given_up: Steps that the run leaves behind; 0 where it goes forward.
        steps_unsaved: Steps since the newest checkpoint: no checkpoint holds them.
        new_branch: The branch that begins; None where the present one goes on.
    """

    checkpoint: Checkpoint | None
    refusal: str = ""
    steps_given_up: int = 0
    steps_unsaved: int = 0
    new_branch: int | None = None


def find_checkpoint(snapshot: RunSnapshot, typed: str) -> tuple[Checkpoint | None, str]:
    """Returns the checkpoint that `typed` means, or why there is none.

    It is a name, a step, or `min` or `max` with the name of a metric. Of several checkpoints with
    one step it is the one that training passed on its way here.
    """
    typed = typed.strip()
    if not typed:
        return None, "Type a step, the name of a checkpoint, or a metric as in: min loss."
    named = snapshot.checkpoint(typed)
    if named is not None:
        return named, ""
    extreme, _, metric = typed.partition(" ")
    if extreme in {"min", "max"}:
        return _best_by(snapshot, metric.strip(), largest=extreme == "max")
    digits = typed.replace(",", "").replace("_", "")
    if not digits.isascii() or not digits.isdigit():
        return None, f"There is no checkpoint {clean(typed)}."
    step = int(digits)
    at_step = [c for c in snapshot.checkpoints if c.step == step]
    if len(at_step) == 1:
        return at_step[0], ""
    if at_step:
        place = (snapshot.branch, snapshot.step or 0)
        try:
            return choose(snapshot.checkpoints, step=step, place=place), ""
        except TfckptError as refusal:
            return None, clean(str(refusal))
    steps = {c.step for c in snapshot.checkpoints if c.step is not None and c.restorable}
    near = sorted(sorted(steps, key=lambda known: abs(known - step))[:_MOST_NEAR])
    if not near:
        return None, "There is no checkpoint that could be restored."
    return None, f"There is no checkpoint of step {step:,}; near are {_listed(near)}."


def _best_by(snapshot: RunSnapshot, metric: str, *, largest: bool) -> tuple[Checkpoint | None, str]:
    """Returns the newest of those whose metric is the smallest, or the largest."""
    ranked = [c for c in snapshot.checkpoints if c.restorable and is_number(c.metrics.get(metric))]
    if ranked:
        choose_one = max if largest else min
        return choose_one(ranked, key=lambda c: c.metrics[metric] or 0.0), ""
    known = {
        name for c in snapshot.checkpoints for name, value in c.metrics.items() if is_number(value)
    }
    names = clean(", ".join(sorted(known))) or "none"
    return (
        None,
        f"No checkpoint has the metric {clean(metric) or 'of no name'}; known are: {names}.",
    )


def plan_restore(snapshot: RunSnapshot, typed: str) -> RestorePlan:
    """Returns what a restore of `typed` would do, or why it cannot be done."""
    checkpoint, refusal = find_checkpoint(snapshot, typed)
    if checkpoint is None:
        return RestorePlan(None, refusal)
    if not checkpoint.restorable:
        problem = clean(checkpoint.problem) or f"it is {checkpoint.state.value}"
        return RestorePlan(checkpoint, f"It cannot be restored: {problem}.".replace("..", "."))
    if not snapshot.trainer_answers:
        return RestorePlan(checkpoint, "No trainer answers; a restore needs a live one.")
    step = snapshot.step or 0
    target = checkpoint.step or 0
    return RestorePlan(
        checkpoint,
        steps_given_up=max(0, step - target),
        steps_unsaved=unsaved_steps(snapshot),
        new_branch=None if _is_newest_of_branch(snapshot, checkpoint) else _next(snapshot),
    )


def unsaved_steps(snapshot: RunSnapshot) -> int:
    """Returns how many steps would be lost if the run ended now without saving."""
    step = snapshot.step
    if step is None or not snapshot.trainer_answers:
        return 0
    saved = [
        c.step
        for c in snapshot.checkpoints
        if c.branch == snapshot.branch and c.restorable and c.step is not None and c.step <= step
    ]
    if snapshot.head is not None and snapshot.head.step is not None:
        saved.append(min(step, snapshot.head.step))
    return step - max(saved, default=0)


def _is_newest_of_branch(snapshot: RunSnapshot, checkpoint: Checkpoint) -> bool:
    steps = [c.step or 0 for c in snapshot.checkpoints if c.branch == checkpoint.branch]
    return (checkpoint.step or 0) >= max(steps, default=0)


def _next(snapshot: RunSnapshot) -> int:
    return max([snapshot.branch, *(c.branch for c in snapshot.checkpoints)]) + 1


def _listed(steps: list[int]) -> str:
    words = [f"{step:,}" for step in steps]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
