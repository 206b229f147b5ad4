"""What is odd in a checkpoint directory, beyond the state of each checkpoint, and what to do.

`remarks` is a pure function of one look. What it says TensorFlow would do was tried with
TensorFlow 2.21 (`latest_checkpoint`, `CheckpointManager`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from tfckpt_trainer.bundle.state_file import StateFile
from tfckpt_trainer.catalog.checkpoints import Checkpoint, CheckpointState
from tfckpt_trainer.catalog.files import Files
from tfckpt_trainer.catalog.listing import FileFact
from tfckpt_trainer.catalog.states import CLOCK_SLACK_SECONDS, QUIET_SECONDS
from tfckpt_trainer.rundir.paths import parse_checkpoint_name

_STATE_TEMPORARY = re.compile(r"checkpoint\.tmp[0-9a-f]+")
_OF_A_SAVE = re.compile(r"\.(index|meta|data-\d+-of-\d+)(\.tempstate\d+)?$|\.tempstate\d+$")
_NAMED = 3
"""So many names are given in a remark on many."""


class Condition(StrEnum):
    """What can be said of TensorFlow's state file before what it says is looked at."""

    MISSING = "missing"
    EMPTY = "empty"
    DAMAGED = "damaged"
    UNREADABLE = "unreadable"
    """A link, or a file of another kind."""
    GOOD = "good"


@dataclass(frozen=True)
class Remark:
    """Something a person should know of.

    Attributes:
        kind: A short name for scripts.
        severity: A warning may cost a checkpoint or keep a trainer from starting; a note costs
            space at most.
        name: Of the file or the checkpoint; of the first of them if it is about several.
        message: What it is, what comes of it and what to do.
        bytes: What would become free, where it is about space.
    """

    kind: str
    severity: Literal["warning", "note"]
    name: str
    message: str
    bytes: int | None = None


@dataclass(frozen=True)
class Seen:
    """One look at a directory.

    Attributes:
        directory: Its real path.
        checkpoints: Newest first.
        files: Of each checkpoint.
        strays: Plain files of no checkpoint, by name; the state file is none of them.
        temporary_bytes: What lies in the `NAME_temp` of each checkpoint that has one.
        condition: Of the state file.
        state: What it says, where it is good.
        is_elsewhere: Whether what it names as the newest is there, in another directory.
    """

    directory: str
    checkpoints: Sequence[Checkpoint]
    files: Mapping[str, Files]
    strays: Mapping[str, FileFact] = field(default_factory=dict)
    temporary_bytes: Mapping[str, int] = field(default_factory=dict)
    condition: Condition = Condition.MISSING
    state: StateFile | None = None
    is_elsewhere: bool = False

    @property
    def restorable(self) -> list[Checkpoint]:
        """Those that can be restored, newest first."""
        return [checkpoint for checkpoint in self.checkpoints if checkpoint.restorable]


def remarks(seen: Seen, now: float, quiet_seconds: float = QUIET_SECONDS) -> tuple[Remark, ...]:
    """Returns what is odd, what matters most first.

    Args:
        seen: One look at the directory.
        now: Seconds since the epoch.
        quiet_seconds: After so long without a change nobody writes any more.
    """
    before = now - quiet_seconds
    found = [
        *_of_the_state_file(seen),
        *_of_what_it_lists(seen),
        *_of_two_prefixes(seen),
        *_of_one_step(seen),
        *_of_mixtures(seen),
        *_of_the_unlisted(seen),
        *_of_extra_data(seen),
        *_of_temporaries(seen, before),
        *_of_strays(seen, before),
    ]
    return tuple(sorted(found, key=lambda remark: remark.severity == "note"))


def _of_the_state_file(seen: Seen) -> Iterator[Remark]:
    newest = next((checkpoint.name for checkpoint in seen.restorable), None)
    if newest is None:
        return
    cure = f'Write the line `model_checkpoint_path: "{newest}"` into it.'
    if seen.condition is Condition.EMPTY:
        effect = "a trainer that starts here stops with a ValueError"
    elif seen.condition is Condition.DAMAGED:
        effect = "TensorFlow ignores it: a trainer starts anew, and counts from 1"
    elif seen.condition is Condition.MISSING:
        effect = "a trainer that looks for the newest finds none: it starts anew, and counts from 1"
    else:
        return
    message = f"The state file `checkpoint` is {seen.condition}; {effect}. {cure}"
    yield Remark(f"state-file-{seen.condition}", "warning", "checkpoint", message)


def _of_what_it_lists(seen: Seen) -> Iterator[Remark]:
    if seen.state is None or seen.state.latest is None or seen.state.latest_name is None:
        return
    latest, name = seen.state.latest, seen.state.latest_name
    states = {checkpoint.name: checkpoint for checkpoint in seen.checkpoints}
    place = os.path.dirname(os.path.normpath(os.path.join(seen.directory, latest)))
    newest = next((checkpoint.name for checkpoint in seen.restorable), None)
    if place != seen.directory:
        yield _of_another_place(seen, latest, place, name in states)
    elif name not in states or not states[name].restorable:
        what = "is not there" if name not in states else f"is {states[name].state.value}"
        cure = (
            f'Write the line `model_checkpoint_path: "{newest}"` into it instead.'
            if newest is not None
            else "Nothing else here can be restored."
        )
        message = (
            f"The state file names {name} as the newest, which {what}; TensorFlow does not fall "
            f"back to another one: a trainer stops, or starts anew. {cure}"
        )
        yield Remark("latest-missing", "warning", name, message)
    gone = [other for other in seen.state.names if other not in states and other != name]
    if gone:
        message = (
            f"The state file lists {_these(gone)}, of which no file is there; a manager still "
            "counts each as one that it keeps, until it has rotated it out. Nothing is to be done."
        )
        yield Remark("listed-missing", "note", gone[0], message)


def _of_another_place(seen: Seen, latest: str, place: str, is_here: bool) -> Remark:
    name = os.path.basename(latest)
    if seen.is_elsewhere:
        effect = "and it is there: that one is restored, and not what is here"
    else:
        effect = "where it is not: a trainer stops, or starts anew"
    cure = (
        f'A {name} is here: write the line `model_checkpoint_path: "{name}"` into it.'
        if is_here
        else "Nothing of that name is here."
    )
    message = f"The state file names {name} in {place}, {effect}. {cure}"
    return Remark("other-place", "warning", name, message)


def _of_two_prefixes(seen: Seen) -> Iterator[Remark]:
    """Two managers on one directory share its state file, and lose what the other saved."""
    if seen.condition is Condition.MISSING:
        return
    first: dict[str, str] = {}
    for checkpoint in seen.checkpoints:
        said = parse_checkpoint_name(checkpoint.name)
        if said is not None and checkpoint.restorable:
            first.setdefault(said.prefix, checkpoint.name)
    if len(first) > 1:
        message = (
            f"{_these(list(first.values()))} have {len(first)} prefixes and one state file: a "
            "manager that starts here takes for its own what the other listed last, and deletes "
            "it in time. Give each a directory of its own."
        )
        yield Remark("two-prefixes", "warning", next(iter(first.values())), message)


def _of_one_step(seen: Seen) -> Iterator[Remark]:
    by_step: dict[tuple[int, int], list[str]] = {}
    for checkpoint in seen.restorable:
        if checkpoint.step is not None:
            by_step.setdefault((checkpoint.branch, checkpoint.step), []).append(checkpoint.name)
    doubled = {place: names for place, names in by_step.items() if len(names) > 1}
    if doubled:
        (_, step), names = next(iter(doubled.items()))
        rest = len(doubled) - 1
        more = (
            f", and {rest} more step{'s have' if rest > 1 else ' has'} several too" if rest else ""
        )
        message = (
            f"{_these(names)} are all of step {step}{more}. Name the checkpoint, not the step, to "
            "restore one; compare them to see whether they differ."
        )
        yield Remark("same-step", "note", names[0], message)


def _of_mixtures(seen: Seen) -> Iterator[Remark]:
    """TensorFlow writes the index last; a copy may have turned the times round."""
    mixed = []
    for checkpoint in seen.checkpoints:
        files = seen.files.get(checkpoint.name)
        index = files.index if files is not None else None
        if checkpoint.state is CheckpointState.COMPLETE and files is not None and index is not None:
            latest = index.modified_at + CLOCK_SLACK_SECONDS
            if any(fact.modified_at > latest for fact in files.shards.values()):
                mixed.append(checkpoint.name)
    if mixed:
        message = (
            f"The data of {_these(mixed)} is newer than the index: it was copied, or it is of "
            "another save, which TensorFlow finds out only while it restores. Verify it."
        )
        yield Remark("data-newer", "warning", mixed[0], message)


def _of_the_unlisted(seen: Seen) -> Iterator[Remark]:
    if seen.state is None:
        return
    unlisted = [c for c in seen.restorable if not c.listed and c.record is None]
    if unlisted:
        message = (
            f"{_these([c.name for c in unlisted])} can be restored and the state file does not "
            "list them: a manager kept them for good (keep_checkpoint_every_n_hours), or forgot "
            "them, or another one saved them. No manager deletes them; prune them by name."
        )
        size = sum(checkpoint.size for checkpoint in unlisted)
        yield Remark("unlisted", "note", unlisted[0].name, message, size)


def _of_extra_data(seen: Seen) -> Iterator[Remark]:
    for checkpoint in seen.restorable:
        files = seen.files.get(checkpoint.name)
        places = files.shards if files is not None else {}
        extra = [f for (_, count), f in places.items() if count != checkpoint.shards]
        if extra:
            message = (
                f"{_these([fact.name for fact in extra])} are not of {checkpoint.name}, which has "
                f"{checkpoint.shards} data files: an earlier save of that name in other parts was "
                "cut off. Delete them."
            )
            size = sum(fact.size for fact in extra)
            yield Remark("extra-data", "note", extra[0].name, message, size)


def _of_temporaries(seen: Seen, before: float) -> Iterator[Remark]:
    for checkpoint in seen.restorable:
        files = seen.files.get(checkpoint.name)
        if files is None or files.temporary_at is None or files.temporary_at > before:
            continue
        name = f"{checkpoint.name}_temp"
        message = (
            f"{name} is left of a save that was killed; {checkpoint.name} does not need it, and "
            "TensorFlow never removes it. Delete it."
        )
        yield Remark(
            "leftover-temp", "note", name, message, seen.temporary_bytes.get(checkpoint.name, 0)
        )


def _of_strays(seen: Seen, before: float) -> Iterator[Remark]:
    kinds = {"state-file-temp": _STATE_TEMPORARY.fullmatch, "stray": _OF_A_SAVE.search}
    causes = {
        "state-file-temp": "left of saves that were killed while they wrote the state file",
        "stray": "named like parts of a checkpoint and belong to none",
    }
    for kind, matches in kinds.items():
        facts = [
            fact
            for name, fact in sorted(seen.strays.items())
            if matches(name) and fact.modified_at <= before
        ]
        if facts:
            names = [fact.name for fact in facts]
            be = "are" if len(names) > 1 else "is"
            message = f"{_these(names)} {be} {causes[kind]}. Nothing reads them: delete them."
            yield Remark(kind, "note", names[0], message, sum(fact.size for fact in facts))


def _these(names: Sequence[str]) -> str:
    shown = list(names[:_NAMED])
    if len(names) > _NAMED:
        return f"{', '.join(shown)} and {len(names) - _NAMED} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else shown[0]
