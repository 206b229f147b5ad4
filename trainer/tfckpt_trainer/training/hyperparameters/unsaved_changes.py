"""Changes of hyperparameters that were confirmed, and that no checkpoint of the run holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.guards import Guard
from tfckpt_trainer.guards.actions import Notify, Save, Scale, Set
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.rundir.records.event import CHANGE, NEXT_START, EventEntry, EventKind
from tfckpt_trainer.rundir.records.hyperparameter import ConfirmedChange, Hyperparameter, number

_REPEATABLE = (Notify, Save, Scale, Set)
"""Actions of guards that need not be carried out again, if the changes are."""


class UnsavedChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What a start finds in the event log.

    Attributes:
        changes: To be made again, in the order of their steps.
        left_out: Why others are not, a sentence each.
    """

    changes: list[ConfirmedChange] = []
    left_out: list[str] = []


def find_unsaved_changes(
    entries: Iterable[EventEntry],
    record: CheckpointRecord | None,
    seen: dict[str, Hyperparameter],
    *,
    step: int,
) -> UnsavedChanges:
    """Returns the changes that training made or planned after the state that a start restored.

    A restore that somebody asked for leaves earlier ones behind.

    Args:
        entries: The event log, oldest first.
        record: The record of the restored checkpoint; None if there is none.
        seen: The hyperparameters of this process, by name.
        step: The step of the restored checkpoint; 0 if none was restored.
    """
    saved = {one.name: one for one in record.hyperparameters} if record is not None else {}
    changes: list[ConfirmedChange] = []
    left_out: list[str] = []
    for change in _after_the_checkpoint(_in_force(entries), saved, step):
        problem = _why_not(change, seen)
        if problem:
            left_out.append(f"{change.words} is not made again: {problem}")
        else:
            changes.append(change)
    return UnsavedChanges(
        changes=sorted(changes, key=lambda change: change.step), left_out=left_out
    )


def _in_force(entries: Iterable[EventEntry]) -> list[ConfirmedChange]:
    """Returns all changes since the last restore that somebody asked for."""
    changes: list[ConfirmedChange] = []
    has_saved, rule = False, ""
    for entry in entries:
        is_chosen = entry.kind is EventKind.RESTORE or NEXT_START in entry.details
        # Without a checkpoint after a save: somebody took them away, to train from the beginning.
        is_first = entry.kind is EventKind.START and entry.step == 0 and entry.checkpoint is None
        if is_chosen or (is_first and has_saved):
            changes, has_saved = [], False
        elif entry.kind is EventKind.SAVE:
            has_saved = True
        elif entry.kind is EventKind.GUARD:
            rule = str(entry.details.get("rule"))
        elif entry.kind is EventKind.SET and CHANGE in entry.details:
            change = _parsed(entry, rule)
            if change is not None:
                if changes and changes[-1].step > change.step:
                    changes = [_without(one, change) for one in changes]
                changes.append(change)
    return changes


def _parsed(entry: EventEntry, rule: str) -> ConfirmedChange | None:
    try:
        change = msgspec.convert(entry.details[CHANGE], ConfirmedChange)
    except msgspec.ValidationError:
        return None
    is_of_guard = entry.by.startswith("Guard ")
    return msgspec.structs.replace(change, by=entry.by, rule=rule if is_of_guard else "")


def _without(earlier: ConfirmedChange, later: ConfirmedChange) -> ConfirmedChange:
    """Returns what is left of a change of later steps, once training has gone back before it."""
    if earlier.step <= later.step:
        return earlier
    left = {name: to for name, to in earlier.values.items() if name not in later.values}
    return msgspec.structs.replace(earlier, values=left)


def _after_the_checkpoint(
    changes: Sequence[ConfirmedChange], saved: dict[str, Hyperparameter], step: int
) -> list[ConfirmedChange]:
    at_its_step = [change for change in changes if change.step == step]
    held = [number for number, one in enumerate(at_its_step, 1) if one.is_held_by(saved)]
    lost = at_its_step[max(held, default=0) :]
    later = [change for change in changes if change.step > step]
    return [change for change in (*lost, *later) if change.values]


def _why_not(change: ConfirmedChange, seen: dict[str, Hyperparameter]) -> str:
    """Returns why a change is not made again, as a sentence; empty if it is."""
    for name, began in change.script_values.items():
        if name in seen and number(seen[name].script_value) != began:
            value = number(seen[name].script_value)
            return f"The script now begins with {name} {value}, not {began}."
    if change.rule and not _only_changes_values(change.rule):
        return f"The guard {change.rule!r} acts again if its condition begins to hold."
    return ""


def _only_changes_values(rule: str) -> bool:
    try:
        guard = Guard.parse(rule)
    except UsageError:
        # An action may be the script's own.
        return False
    return all(isinstance(action, _REPEATABLE) for action in guard.actions)
