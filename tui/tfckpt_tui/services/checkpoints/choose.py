"""Find the checkpoints that a command or a dialog refers to."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from tfckpt_trainer.catalog.directory.checkpoints import (
    Checkpoint,
    is_derived,
    is_trained,
)
from tfckpt_trainer.catalog.retention.rules import is_number
from tfckpt_trainer.catalog.scan.lineage import BranchStep, lineage_at, lineage_of
from tfckpt_trainer.errors import RefusedError, UnknownCheckpointError, UsageError
from tfckpt_trainer.rundir.paths import parse_checkpoint_name
from tfckpt_tui.formats.text import clean
from tfckpt_tui.services.checkpoints.verify import can_be_verified

_MOST_NAMED = 5
"""Checkpoints that one error message names."""

_MOST_NEAR = 4
"""Steps that one error message names."""


def find_checkpoint(checkpoints: Sequence[Checkpoint], text: str | None) -> Checkpoint:
    """Returns the checkpoint with this name, otherwise the one with this step.

    Without a text, returns the checkpoint from which a start continues, otherwise the newest.

    Args:
        checkpoints: All checkpoints of a directory, newest first.
        text: A name or a step.

    Raises:
        UsageError: There is none, or several have the step.
    """
    if not checkpoints:
        if text is not None:
            raise UnknownCheckpointError(f"There is no checkpoint {text}.", text)
        raise UsageError("There is no checkpoint.")
    if text is None:
        return next((c for c in checkpoints if c.is_head), checkpoints[0])
    named = _named(checkpoints, text)
    if named is not None:
        return named
    with_step = _trained_first([c for c in checkpoints if str(c.step) == text])
    if len(with_step) == 1:
        return with_step[0]
    if with_step:
        names = ", ".join(checkpoint.name for checkpoint in with_step)
        raise UsageError(f"Several checkpoints have step {text}: {names}. Give one of these names.")
    raise _not_found(checkpoints, text)


def find_by_name(checkpoints: Sequence[Checkpoint], name: str) -> Checkpoint:
    """Returns the checkpoint with this name.

    Raises:
        UsageError: There is none.
    """
    checkpoint = _named(checkpoints, name)
    if checkpoint is None:
        raise _not_found(checkpoints, name)
    return checkpoint


def find_by_step(
    checkpoints: Sequence[Checkpoint], step: int, position: BranchStep | None
) -> Checkpoint:
    """Returns the checkpoint with this step.

    If several branches have the step, returns the one that is an ancestor of the current position.

    Args:
        checkpoints: All checkpoints of a directory, newest first.
        step: The step.
        position: Where training is. By default, the checkpoint from which a start continues.

    Raises:
        UsageError: There is none.
        RefusedError: Several branches have the step, and ancestry does not decide.
    """
    matches = _trained_first([c for c in checkpoints if c.step == step])
    if not matches:
        near = _near(checkpoints, step)
        raise UnknownCheckpointError(
            f"No checkpoint has step {step:,}; near are: {near}.", str(step)
        )
    if len(matches) > 1:
        ancestors = frozenset(lineage_at(checkpoints, position).names)
        passed = [c for c in matches if c.name in ancestors]
        if len(passed) != 1:
            names = ", ".join(c.name for c in matches)
            raise RefusedError(
                f"Several checkpoints have step {step:,}: {names}. Give one of these names "
                "instead of the step."
            )
        matches = passed
    return matches[0]


def find_typed(
    checkpoints: Sequence[Checkpoint], typed: str, position: BranchStep | None
) -> Checkpoint:
    """Returns the checkpoint for what was typed: a name, a step, or `min loss` or `max loss`.

    Args:
        checkpoints: All checkpoints of a directory, newest first.
        typed: The text.
        position: Where training is; see `find_by_step`.

    Raises:
        UsageError: There is none.
        RefusedError: Several branches have the step, and ancestry does not decide.
    """
    typed = typed.strip()
    if not typed:
        raise UsageError("Type a step, a checkpoint name, or a metric as in: min loss.")
    named = _named(checkpoints, typed)
    if named is not None:
        return named
    extreme, _, metric = typed.partition(" ")
    if extreme in {"min", "max"}:
        return _best_by(checkpoints, metric.strip(), largest=extreme == "max")
    digits = typed.replace(",", "").replace("_", "")
    if digits.isascii() and digits.isdigit():
        return find_by_step(checkpoints, int(digits), position)
    raise _not_found(checkpoints, typed)


def checkpoints_to_bisect(
    checkpoints: Sequence[Checkpoint], first: str | None, last: str | None
) -> list[Checkpoint]:
    """Returns `last` and its ancestors, oldest first, from `first` on.

    Checkpoints that cannot be restored are included, so that the result can name them.

    Args:
        checkpoints: All checkpoints of a directory, newest first.
        first: Name or step of the first one. By default, the oldest ancestor.
        last: Name or step of the last one. By default, the one from which a start continues.

    Raises:
        UsageError: One does not exist or is being written, or the first is not an ancestor.
    """
    complete = [checkpoint for checkpoint in checkpoints if can_be_verified(checkpoint)]
    end = _verifiable(checkpoints, last) if last is not None else find_checkpoint(complete, None)
    by_name = {checkpoint.name: checkpoint for checkpoint in complete}
    names = lineage_of(checkpoints, end.name).names
    lineage = [by_name[name] for name in reversed(names) if name in by_name]
    if first is not None:
        begin = _verifiable(checkpoints, first)
        if begin not in lineage:
            raise UsageError(f"{begin.name} is not an ancestor of {end.name}. Choose an ancestor.")
        lineage = lineage[lineage.index(begin) :]
    return lineage


def pair_to_compare(
    checkpoints: Sequence[Checkpoint], marked: Sequence[Checkpoint], selected: Checkpoint | None
) -> tuple[Checkpoint, Checkpoint] | str:
    """Returns the two checkpoints to compare, the older one first, or why they are not clear.

    Args:
        checkpoints: All checkpoints of a directory, newest first.
        marked: The marked ones.
        selected: The one under the cursor.
    """
    rows = {checkpoint.name: row for row, checkpoint in enumerate(checkpoints)}
    pair = list(marked)
    if len(pair) > 2:
        return f"{len(pair)} checkpoints are marked; mark two of them."
    if len(pair) < 2 and selected is not None and selected not in pair:
        pair.append(selected)
    if len(pair) == 1:
        names = lineage_of(checkpoints, pair[0].name).names[1:]
        ancestors = (checkpoints[rows[name]] for name in names)
        older = (c for c in checkpoints[rows[pair[0].name] + 1 :] if is_trained(c))
        other = next((c for c in chain(ancestors, older) if can_be_verified(c)), None)
        if other is None:
            return f"{pair[0].name} is the oldest; mark another one with space first."
        pair.append(other)
    if len(pair) < 2:
        return "Mark two checkpoints with space first."
    pair.sort(key=lambda checkpoint: -rows[checkpoint.name])
    return pair[0], pair[1]


def _named(checkpoints: Sequence[Checkpoint], text: str) -> Checkpoint | None:
    """Returns the checkpoint with this name, or the only one whose name is shown so."""
    named = next((c for c in checkpoints if c.name == text), None)
    if named is not None:
        return named
    shown = [c for c in checkpoints if clean(c.name) == text]
    return shown[0] if len(shown) == 1 else None


def _trained_first(checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
    """Leaves out checkpoints of a step that are hardly meant, unless there are no others.

    These are killed saves, checkpoints made from others, and those whose number may be an epoch.
    """
    found = [c for c in checkpoints if can_be_verified(c)] or list(checkpoints)
    found = [c for c in found if not is_derived(c)] or found
    return [c for c in found if c.packed is not None or parse_checkpoint_name(c.name)] or found


def _best_by(checkpoints: Sequence[Checkpoint], metric: str, *, largest: bool) -> Checkpoint:
    """Returns the checkpoint with the smallest or largest metric; of equal ones, the newest."""
    ranked = [c for c in checkpoints if c.restorable and is_number(c.metrics.get(metric))]
    if ranked:
        best = max if largest else min
        return best(ranked, key=lambda c: c.metrics[metric] or 0.0)
    metrics = {name for c in checkpoints for name, value in c.metrics.items() if is_number(value)}
    raise UsageError(
        f"No checkpoint has the metric {metric or '(no name given)'}; the metrics are: "
        f"{', '.join(sorted(metrics)) or 'none'}."
    )


def _verifiable(checkpoints: Sequence[Checkpoint], text: str) -> Checkpoint:
    checkpoint = find_checkpoint(checkpoints, text)
    if not can_be_verified(checkpoint):
        raise UsageError(f"{checkpoint.name} cannot be checked: {checkpoint.problem}")
    return checkpoint


def _not_found(checkpoints: Sequence[Checkpoint], text: str) -> UnknownCheckpointError:
    newest = ", ".join(checkpoint.name for checkpoint in checkpoints[:_MOST_NAMED]) or "none"
    return UnknownCheckpointError(f"There is no checkpoint {text}; the newest are: {newest}.", text)


def _near(checkpoints: Sequence[Checkpoint], step: int) -> str:
    steps = {c.step for c in checkpoints if c.step is not None and c.restorable}
    nearest = sorted(steps, key=lambda candidate: abs(candidate - step))[:_MOST_NEAR]
    return ", ".join(f"{candidate:,}" for candidate in sorted(nearest)) or "none"
