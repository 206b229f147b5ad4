"""Which checkpoint a person means, and which row of them."""

from __future__ import annotations

from collections.abc import Sequence

from tfckpt_trainer.catalog.lineage import lineage
from tfckpt_trainer.catalog.scan.checkpoints import Checkpoint
from tfckpt_trainer.errors import UnknownCheckpointError, UsageError
from tfckpt_tui.services.verify import can_be_verified


def choose(checkpoints: Sequence[Checkpoint], text: str | None) -> Checkpoint:
    """Returns the checkpoint of this name, or of this step where no name is the same.

    Without a text it is the one that a start would go on from, else the newest.

    Raises:
        UsageError: There is none, or several have the step.
    """
    if not checkpoints:
        if text is not None:
            raise UnknownCheckpointError(f"There is no checkpoint {text}.", text)
        raise UsageError("There is no checkpoint.")
    if text is None:
        return next((c for c in checkpoints if c.is_head), checkpoints[0])
    named = next((c for c in checkpoints if c.name == text), None)
    if named is not None:
        return named
    of_step = [c for c in checkpoints if str(c.step) == text]
    if len(of_step) == 1:
        return of_step[0]
    if of_step:
        names = ", ".join(checkpoint.name for checkpoint in of_step)
        raise UsageError(f"Step {text} was saved as {names}; give one of these names.")
    newest = ", ".join(checkpoint.name for checkpoint in checkpoints[:5])
    raise UnknownCheckpointError(f"There is no checkpoint {text}; the newest are {newest}.", text)


def row_for_bisecting(
    checkpoints: Sequence[Checkpoint], first: str | None, last: str | None
) -> list[Checkpoint]:
    """Returns the checkpoints that led to `last`, oldest first, beginning with `first`.

    Those that cannot be restored are among them: that they cannot be checked has to be told.

    Args:
        checkpoints: All of a directory, newest first.
        first: Where the row begins; with the oldest by default.
        last: Where it ends; by default at the one that a start would go on from.

    Raises:
        UsageError: One is not there or being written, or the first did not lead to the last.
    """
    there = [checkpoint for checkpoint in checkpoints if can_be_verified(checkpoint)]
    end = _to_check(checkpoints, last) if last is not None else choose(there, None)
    known = {checkpoint.name: checkpoint for checkpoint in there}
    if end.record is not None:
        row = [name for name in reversed(lineage(checkpoints, end.name)) if name in known]
    else:
        place = there.index(end)
        row = [c.name for c in reversed(there[place:]) if c.branch == end.branch]
    if first is not None:
        begin = _to_check(checkpoints, first).name
        if begin not in row:
            raise UsageError(f"{begin} did not lead to {end.name}; choose two of one branch.")
        row = row[row.index(begin) :]
    return [known[name] for name in row]


def _to_check(checkpoints: Sequence[Checkpoint], text: str) -> Checkpoint:
    chosen = choose(checkpoints, text)
    if not can_be_verified(chosen):
        raise UsageError(f"{chosen.name} cannot be checked: {chosen.problem}")
    return chosen


def two_to_compare(
    checkpoints: Sequence[Checkpoint], marked: Sequence[Checkpoint], selected: Checkpoint | None
) -> tuple[Checkpoint, Checkpoint] | str:
    """Returns which two are to be compared, the older first, or why that is not clear.

    Args:
        checkpoints: All of a directory, newest first.
        marked: Those that a person marked.
        selected: The one under the cursor.
    """
    places = {checkpoint.name: place for place, checkpoint in enumerate(checkpoints)}
    pair = list(marked)
    if len(pair) > 2:
        return f"{len(pair)} checkpoints are marked; mark two of them."
    if len(pair) < 2 and selected is not None and selected not in pair:
        pair.append(selected)
    if len(pair) == 1:
        before = next((c for c in checkpoints if c.name == pair[0].parent), None)
        older = checkpoints[places[pair[0].name] + 1 :]
        other = before or next(iter(older), None)
        if other is None:
            return f"{pair[0].name} is the oldest; mark another one with space first."
        pair.append(other)
    if len(pair) < 2:
        return "Mark two checkpoints with space first."
    pair.sort(key=lambda checkpoint: -places[checkpoint.name])
    return pair[0], pair[1]
