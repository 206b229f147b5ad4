"""Diagnostics of TensorFlow's state file: the checkpoints it names against those that exist.

Writing an older name into the state file loses work: the next start continues from the older
checkpoint and overwrites the newer one. So the advice to do that is given only if the named
checkpoint does not exist when asked for by its name, nothing changes any more, and no checkpoint
here could be newer.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator

import msgspec

from tfckpt_trainer.bundle.links import NOT_FETCHED
from tfckpt_trainer.bundle.state_file import StateFileCondition, state_line
from tfckpt_trainer.catalog.directory.checkpoint_files import place_of
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint, CheckpointState, is_derived
from tfckpt_trainer.catalog.scan.observation import (
    Diagnostic,
    Observation,
    Presence,
)
from tfckpt_trainer.catalog.scan.order import find_order_doubt
from tfckpt_trainer.words.counts import join_names

_LOST = {CheckpointState.CORRUPT, CheckpointState.ORPHANED, CheckpointState.TRASHED}
"""States that a later scan never turns into a restorable one."""

_EFFECTS = {
    StateFileCondition.EMPTY: "is empty; a trainer that starts here stops with a ValueError",
    StateFileCondition.INCOMPLETE: "names no newest checkpoint; a trainer that starts here stops "
    "with a ValueError",
    StateFileCondition.UNDECODABLE: "is not UTF-8; a trainer that starts here stops with a "
    "UnicodeDecodeError",
    StateFileCondition.DAMAGED: "is damaged; TensorFlow ignores it: a trainer starts from "
    "scratch, at step 1",
    StateFileCondition.DIRECTORY: "is a directory; TensorFlow ignores it: a trainer starts from "
    "scratch, at step 1, and its saves fail",
    StateFileCondition.IRREGULAR: "is a pipe, socket or device; a trainer that starts here may "
    "wait for it for ever",
    StateFileCondition.OVERSIZED: "is larger than 16 MiB, which tfckpt-tui does not read; "
    "TensorFlow may",
    StateFileCondition.OF_OTHERS: "belongs to another user, who added it to a directory with the "
    "sticky bit; its order does not count here, but TensorFlow reads it",
    StateFileCondition.MISSING: "is missing; a trainer that looks for the newest checkpoint finds "
    "none: it starts from scratch, at step 1",
}

_NO_TEXT = frozenset(
    {
        StateFileCondition.DIRECTORY,
        StateFileCondition.IRREGULAR,
    }
)

_MISSING_BESIDE_RECORDS = (
    "tfckpt_trainer continues from its own records, and other programs find no checkpoint"
)

_WITHOUT_LIBRARY = "a trainer without tfckpt_trainer stops, or starts from scratch"

_NO_FALLBACK = f"TensorFlow does not fall back to another checkpoint: {_WITHOUT_LIBRARY}."


class StateFileDiagnostics(msgspec.Struct, frozen=True):
    """Checks the state file and the checkpoints that it lists.

    Attributes:
        observed: One observation of the directory.
        now: Seconds since the epoch.
        quiet_seconds: Seconds without a change after which no save is under way.
    """

    observed: Observation
    now: float
    quiet_seconds: float

    def find(self) -> Iterator[Diagnostic]:
        """Yields the diagnostics."""
        yield from self._unusable_file()
        state = self.observed.state
        if state is not None and state.latest and state.latest_name:
            yield from self._latest(state.latest, state.latest_name)
            yield from self._listed_without_files(state.latest_name)

    def _unusable_file(self) -> Iterator[Diagnostic]:
        observed, newest = self.observed, self._newest
        effect = _EFFECTS.get(observed.condition)
        if newest is None or effect is None:
            return
        if observed.condition is StateFileCondition.MISSING and (
            observed.is_saved_model or observed.state_file is not Presence.ABSENT
        ):
            # A SavedModel has none. Elsewhere it was written after the listing was read, or the
            # listing lags.
            return
        if observed.condition is StateFileCondition.MISSING and newest.packed is not None:
            effect = f"is missing; {_MISSING_BESIDE_RECORDS}"
        if observed.condition is StateFileCondition.OVERSIZED:
            # What it names is not known, and may be there.
            advice = f"Look at it: `head -c 500 {observed.path('checkpoint')}`."
        else:
            advice = self._advice_to_name(newest)
        message = f"The state file `checkpoint` {effect}. {advice}"
        yield Diagnostic(f"state-file-{observed.condition}", "warning", "checkpoint", message)

    def _latest(self, latest: str, name: str) -> Iterator[Diagnostic]:
        observed = self.observed
        checkpoint = next((c for c in observed.checkpoints if c.name == name), None)
        place = os.path.dirname(os.path.normpath(os.path.join(observed.directory, latest)))
        if place != observed.directory:
            yield self._latest_elsewhere(name, place, checkpoint)
        elif checkpoint is not None and checkpoint.state is not CheckpointState.WRITING:
            if not checkpoint.state.restorable:
                yield self._damaged_latest(checkpoint)
        elif checkpoint is None and name not in self._version_one:
            yield self._missing_latest(name)

    def _damaged_latest(self, checkpoint: Checkpoint) -> Diagnostic:
        name = checkpoint.name
        what = f"The state file names {name} as the newest, which is {checkpoint.state.value}"
        if checkpoint.state is CheckpointState.UNSUPPORTED or NOT_FETCHED in checkpoint.problem:
            message = f"{what}: {checkpoint.problem}"
        elif checkpoint.state is CheckpointState.UNREADABLE:
            message = (
                f"{what} here: {checkpoint.problem} A trainer may be able to read it. Check as "
                f"the user who trains: `ls -lL {self.observed.path(name)}.*`."
            )
        else:
            message = f"{what}: {checkpoint.problem} {_NO_FALLBACK} {self._advice_instead()}"
        return Diagnostic("latest-unusable", "warning", name, message)

    def _missing_latest(self, name: str) -> Diagnostic:
        observed = self.observed
        what = f"The state file names {name} as the newest"
        if observed.latest_index is Presence.PRESENT:
            message = (
                f"{what}, and {name}.index exists, but the listing of the directory does not show "
                "it: the listing is out of date. Look again later, and change nothing until then."
            )
            return Diagnostic("listing-stale", "note", name, message)
        if observed.latest_index is Presence.UNKNOWN:
            message = (
                f"{what}, and the system does not say whether it exists. Check as the user who "
                f"trains: `ls -l {observed.path(name)}.*`."
            )
        elif observed.latest_others:
            message = (
                f"{what}. It has no index, but {join_names(observed.latest_others)} may belong to "
                "it, in a format that this program does not know. Do not change the state file."
            )
        else:
            message = f"{what}, which is not there. {_NO_FALLBACK} {self._advice_instead()}"
        return Diagnostic("latest-missing", "warning", name, message)

    def _latest_elsewhere(self, name: str, place: str, here: Checkpoint | None) -> Diagnostic:
        if here is None:
            advice = "No checkpoint of that name is here."
        elif not here.state.restorable:
            advice = f"The {name} that is here is {here.state.value}: {here.problem}"
        else:
            advice = f"A {name} is here."
        usable = here if here is not None and here.state.restorable else None
        index = self.observed.latest_index
        if index is Presence.PRESENT:
            effect = "and it is there: that one is restored, and not one that is here"
            if usable is not None:
                advice += (
                    " To continue from this one, stop the trainer and run "
                    f"{self._name_command(name)}."
                )
        elif index is Presence.UNKNOWN:
            effect = "where this program cannot look; it may be there"
            if usable is not None:
                advice += " Look there as the user who trains before you change anything."
        else:
            effect = f"where it does not exist: {_WITHOUT_LIBRARY}"
            if usable is not None:
                advice += (
                    f" If {place} is on a disk that is not mounted, mount it first. "
                    f"{self._advice_to_name(usable)}"
                )
        message = f"The state file names {name} in {place}, {effect}. {advice}"
        return Diagnostic("other-place", "warning", name, message)

    def _listed_without_files(self, latest: str) -> Iterator[Diagnostic]:
        state, names_here = (
            self.observed.state,
            {checkpoint.name for checkpoint in self.observed.checkpoints},
        )
        names_here |= {latest, *self._version_one}
        gone = [name for name in state.names if name not in names_here] if state is not None else []
        if gone:
            message = (
                f"The state file lists {join_names(gone)}, which have no files. A manager counts "
                "them among those that it keeps, until it drops them. No action is needed."
            )
            yield Diagnostic("listed-missing", "note", gone[0], message)

    @property
    def _newest(self) -> Checkpoint | None:
        return self.observed.newest

    @property
    def _version_one(self) -> frozenset[str]:
        return frozenset(
            n
            for checkpoint in self.observed.version_one
            for n in (checkpoint.name, checkpoint.path)
        )

    def _advice_instead(self) -> str:
        newest = self._newest
        if newest is None:
            return "No other checkpoint here can be restored."
        return self._advice_to_name(newest)

    def _advice_to_name(self, checkpoint: Checkpoint) -> str:
        """Returns how to make a checkpoint the newest, or what to find out before that."""
        observed, name = self.observed, checkpoint.name
        if observed.version_one:
            return (
                f"{observed.version_one[0].name}, in TensorFlow's V1 format, may be newer than "
                f"{name}: find out which is the newest before you name one."
            )
        doubtful = self._newer_than(name)
        if doubtful is not None:
            return (
                f"{doubtful.name} is newer than {name}, and {doubtful.state.value}: "
                f"{doubtful.problem} Find out first whether that one can be restored."
            )
        data = self._data_newer_than(checkpoint)
        if data:
            return (
                f"{data} is newer than {name}, and has no index: find out first whether it is part "
                "of a newer checkpoint."
            )
        if not observed.is_settled(self.now, self.quiet_seconds):
            return "A save or a copy may be under way: look again in a minute, and change nothing."
        if observed.is_network:
            return (
                "This is a network file system, which may show an old state. Run "
                f"`ls -l {shlex.quote(observed.directory)}` on the machine that trains. If it "
                f"shows nothing newer than {name}, and no trainer runs: "
                f"{self._name_command(name)}."
            )
        named = f"name {name} as the newest: {self._name_command(name)}."
        doubt = find_order_doubt(observed.checkpoints)
        if doubt is not None and doubt.higher.name == name:
            return (
                f"{name} has the highest step, but {doubt.later.name} was written later. If "
                f"training did not go back to save {doubt.later.name}, and no trainer runs, {named}"
            )
        return f"If no trainer runs, {named}"

    def _newer_than(self, name: str) -> Checkpoint | None:
        """Returns a newer checkpoint that may still turn out to be restorable."""
        for checkpoint in self.observed.checkpoints:
            if checkpoint.name == name:
                return None
            if is_derived(checkpoint):
                continue
            if not checkpoint.state.restorable and checkpoint.state not in _LOST:
                return checkpoint
        return None

    def _data_newer_than(self, checkpoint: Checkpoint) -> str:
        """Returns a data file without an index that is newer; empty if none is."""
        files, at = self.observed.unowned.values(), checkpoint.saved_at
        newer = [fact for fact in files if fact.modified_at > at and place_of(fact.name)]
        return max(newer, key=lambda fact: fact.modified_ns).name if newer else ""

    def _name_command(self, name: str) -> str:
        file = self.observed.path("checkpoint")
        write = f"printf '%s\\n' {shlex.quote(state_line(name))} > {file}"
        if self.observed.condition in {StateFileCondition.MISSING, StateFileCondition.EMPTY}:
            return f"`{write}`"
        # The redirection alone would write into a pipe, and cannot into a directory.
        keep = "mv" if self.observed.condition in _NO_TEXT else "cp -p"
        return f"`{keep} {file} {self.observed.path('checkpoint.before')} && {write}`"
