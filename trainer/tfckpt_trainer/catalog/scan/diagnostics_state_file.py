"""Diagnostics of TensorFlow's state file: what it names, and what is there.

To write an older name into it loses work: the next start goes on from the older checkpoint and
saves over the newer one. So that is advised only where the newer one was asked for by its name
and does not exist, nothing changes any more, and nothing here could be newer.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from tfckpt_trainer.bundle.state_file import state_line
from tfckpt_trainer.catalog.scan.checkpoints import Checkpoint, CheckpointState
from tfckpt_trainer.catalog.scan.seen import Condition, Diagnostic, Lookup, Seen, these

_LOST = {CheckpointState.CORRUPT, CheckpointState.ORPHANED, CheckpointState.TRASHED}
"""States of what no later look makes restorable."""

_EFFECTS = {
    Condition.EMPTY: "a trainer that starts here stops with a ValueError",
    Condition.DAMAGED: "TensorFlow ignores it: a trainer starts anew, and counts from 1",
    Condition.MISSING: "a trainer that looks for the newest finds none: it starts anew, and "
    "counts from 1",
}


@dataclass(frozen=True)
class StateFileDiagnostics:
    """What is wrong with the state file, and with what it lists.

    Attributes:
        seen: One look at the directory.
        now: Seconds since the epoch.
        quiet_seconds: After so long without a change nobody writes any more.
    """

    seen: Seen
    now: float
    quiet_seconds: float

    def find(self) -> Iterator[Diagnostic]:
        """Yields the diagnostics."""
        yield from self._of_the_file()
        state = self.seen.state
        if state is not None and state.latest and state.latest_name:
            yield from self._of_the_latest(state.latest, state.latest_name)
            yield from self._of_the_listed(state.latest_name)

    def _of_the_file(self) -> Iterator[Diagnostic]:
        seen, newest = self.seen, self._newest
        effect = _EFFECTS.get(seen.condition)
        if newest is None or effect is None:
            return
        if seen.condition is Condition.MISSING and seen.state_file is not Lookup.GONE:
            # It came after the listing was read, or the listing lags.
            return
        advice = self._advice_to_name(newest.name)
        message = f"The state file `checkpoint` is {seen.condition}; {effect}. {advice}"
        yield Diagnostic(f"state-file-{seen.condition}", "warning", "checkpoint", message)

    def _of_the_latest(self, latest: str, name: str) -> Iterator[Diagnostic]:
        seen = self.seen
        checkpoint = next((c for c in seen.checkpoints if c.name == name), None)
        place = os.path.dirname(os.path.normpath(os.path.join(seen.directory, latest)))
        if place != seen.directory:
            yield self._of_another_place(name, place, checkpoint)
        elif checkpoint is not None and checkpoint.state is not CheckpointState.WRITING:
            if not checkpoint.state.restorable:
                yield self._of_a_damaged_latest(checkpoint)
        elif checkpoint is None and name not in self._version_one:
            yield self._of_a_missing_latest(name)

    def _of_a_damaged_latest(self, checkpoint: Checkpoint) -> Diagnostic:
        name = checkpoint.name
        said = f"The state file names {name} as the newest, which is {checkpoint.state.value}"
        if checkpoint.state is CheckpointState.UNREADABLE:
            message = (
                f"{said} here: {checkpoint.problem} A trainer may be able to read it. Look at it "
                f"as the user who trains: `ls -lL {self.seen.path(name)}.*`."
            )
        else:
            message = (
                f"{said}: {checkpoint.problem} TensorFlow does not fall back to another one: a "
                f"trainer stops, or starts anew. {self._advice_instead()}"
            )
        return Diagnostic("latest-missing", "warning", name, message)

    def _of_a_missing_latest(self, name: str) -> Diagnostic:
        seen = self.seen
        said = f"The state file names {name} as the newest"
        if seen.latest_index is Lookup.THERE:
            message = (
                f"{said}, and {name}.index exists, but the listing of the directory does not show "
                "it: the listing is out of date. Look again later, and change nothing until then."
            )
            return Diagnostic("listing-stale", "note", name, message)
        if seen.latest_index is Lookup.UNKNOWN:
            message = (
                f"{said}, and the system does not tell whether it exists. Look at it as the user "
                f"who trains: `ls -l {seen.path(name)}.*`."
            )
        elif seen.latest_others:
            message = (
                f"{said}. It has no index, but {these(seen.latest_others)} may belong to it, in a "
                "format that this program does not know. Do not change the state file."
            )
        else:
            message = (
                f"{said}, which is not there; TensorFlow does not fall back to another one: a "
                f"trainer stops, or starts anew. {self._advice_instead()}"
            )
        return Diagnostic("latest-missing", "warning", name, message)

    def _of_another_place(self, name: str, place: str, here: Checkpoint | None) -> Diagnostic:
        if here is None:
            cure = "Nothing of that name is here."
        elif not here.state.restorable:
            cure = f"The {name} that is here is {here.state.value}: {here.problem}"
        else:
            cure = f"A {name} is here."
        is_here = here is not None and here.state.restorable
        lookup = self.seen.latest_index
        if lookup is Lookup.THERE:
            effect = "and it is there: that one is restored, and not what is here"
            if is_here:
                cure += f" To go on from this one, stop the trainer and run {self._command(name)}."
        elif lookup is Lookup.UNKNOWN:
            effect = "where this program cannot look; it may be there"
            if is_here:
                cure += " Look there as the user who trains before you change anything."
        else:
            effect = "where it is not: a trainer stops, or starts anew"
            if is_here:
                cure += (
                    f" If {place} is on a disk that is not mounted, mount it first. "
                    f"{self._advice_to_name(name)}"
                )
        message = f"The state file names {name} in {place}, {effect}. {cure}"
        return Diagnostic("other-place", "warning", name, message)

    def _of_the_listed(self, latest: str) -> Iterator[Diagnostic]:
        state, known = self.seen.state, {checkpoint.name for checkpoint in self.seen.checkpoints}
        known |= {latest, *self._version_one}
        gone = [name for name in state.names if name not in known] if state is not None else []
        if gone:
            message = (
                f"The state file lists {these(gone)}, which have no files. A manager still counts "
                "them among those that it keeps, until it drops them. No action is needed."
            )
            yield Diagnostic("listed-missing", "note", gone[0], message)

    @property
    def _newest(self) -> Checkpoint | None:
        return next(iter(self.seen.restorable), None)

    @property
    def _version_one(self) -> frozenset[str]:
        return frozenset(n for one in self.seen.version_one for n in (one.name, one.path))

    def _advice_instead(self) -> str:
        newest = self._newest
        if newest is None:
            return "Nothing else here can be restored."
        return self._advice_to_name(newest.name)

    def _advice_to_name(self, name: str) -> str:
        """Returns how to make `name` the newest, or what is to be found out before."""
        seen = self.seen
        if seen.version_one:
            return (
                f"{seen.version_one[0].name}, in TensorFlow's V1 format, may be newer than {name}: "
                "find out which is the newest before you name one."
            )
        doubtful = self._newer_than(name)
        if doubtful is not None:
            return (
                f"{doubtful.name} is newer than {name}, and {doubtful.state.value}: "
                f"{doubtful.problem} Find out first whether that one can be restored."
            )
        if not seen.is_settled(self.now, self.quiet_seconds):
            return "A save or a copy may be under way: look again in a minute, and change nothing."
        if seen.is_network:
            return (
                "This is a network file system, which may show an old state. Run "
                f"`ls -l {shlex.quote(seen.directory)}` on the machine that trains. If it shows "
                f"nothing newer than {name}, and no trainer runs: {self._command(name)}."
            )
        return f"If no trainer runs, name {name} as the newest: {self._command(name)}."

    def _newer_than(self, name: str) -> Checkpoint | None:
        """Returns a checkpoint that is newer and that may yet turn out to be whole."""
        for checkpoint in self.seen.checkpoints:
            if checkpoint.name == name:
                return None
            if not checkpoint.state.restorable and checkpoint.state not in _LOST:
                return checkpoint
        return None

    def _command(self, name: str) -> str:
        file = self.seen.path("checkpoint")
        write = f"printf '%s\\n' {shlex.quote(state_line(name))} > {file}"
        if self.seen.condition in {Condition.MISSING, Condition.EMPTY}:
            return f"`{write}`"
        return f"`cp -p {file} {self.seen.path('checkpoint.before')} && {write}`"
