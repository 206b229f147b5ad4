"""The order of the checkpoints of a directory, newest first.

Records of this library give the order of saves. Without any, the list in TensorFlow's state file
does. Other checkpoints of the same prefix are ordered by step: a copy without times scrambles file
times, and no copy changes steps. Only if the state file contradicts the steps do times decide.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint, CheckpointState, is_derived
from tfckpt_trainer.rundir.paths import parse_numbered_name

_Line = tuple[str, int]
"""Prefix and branch: the checkpoints of one line have steps that grow."""


class Ordered(msgspec.Struct, frozen=True):
    """Checkpoints, newest first.

    Attributes:
        by_step: Those whose place follows from their step, because no record or list gives it.
    """

    checkpoints: list[Checkpoint]
    by_step: AbstractSet[str]


def in_order(
    checkpoints: Mapping[str, Checkpoint], listed: Mapping[str, int], latest: str = ""
) -> Ordered:
    """Sorts checkpoints newest first; a recorded order is never reversed by clock errors.

    Args:
        checkpoints: All checkpoints of a directory, by name.
        listed: The place of each checkpoint in TensorFlow's state file.
        latest: The newest one according to that file; empty if there is none, or if a restore
            named it.
    """
    places = _Places(checkpoints, listed)
    places.follow_records_and_list()
    by_step = places.follow_steps(latest)
    places.follow_sources()
    return Ordered(sorted(checkpoints.values(), key=places.key, reverse=True), by_step)


class _Places:
    """What the order of checkpoints follows from.

    Attributes:
        checkpoints: The checkpoints by name.
        listed: The place of each in the state file.
        times: The times that count instead of those of the saves, as something else gives the
            order. There are few: usually both agree.
        places: The places of unlisted ones, if they follow a listed one.
    """

    def __init__(self, checkpoints: Mapping[str, Checkpoint], listed: Mapping[str, int]) -> None:
        self.checkpoints = checkpoints
        self.listed = listed
        self.times = dict[str, float]()
        self.places = dict[str, int]()
        self.has_records = any(
            c.sequence is not None and not is_derived(c) for c in checkpoints.values()
        )

    def key(self, checkpoint: Checkpoint) -> tuple[bool, float, int, int, int, bool, str]:
        """Returns the sort key; the newest has the largest."""
        name = checkpoint.name
        return (
            checkpoint.state is CheckpointState.WRITING,
            self.times.get(name, checkpoint.saved_at),
            self._sequence(checkpoint),
            self._place(name),
            -1 if checkpoint.step is None else checkpoint.step,
            not is_derived(checkpoint),
            name,
        )

    def follow_records_and_list(self) -> None:
        """Corrects the times of checkpoints whose order is recorded or listed."""
        recorded = [
            (c.sequence, is_derived(c), c.name)
            for c in self.checkpoints.values()
            if c.sequence is not None
        ]
        recorded.sort()
        listed = [
            name
            for name in self.listed
            if name in self.checkpoints and self.checkpoints[name].sequence is None
        ]
        for known_order in ([name for *_, name in recorded], listed):
            latest = float("-inf")
            for name in known_order:
                time = self._time(name)
                if time > latest and not is_derived(self.checkpoints[name]):
                    latest = time
                elif time != latest > float("-inf"):
                    self.times[name] = latest

    def follow_steps(self, latest: str) -> AbstractSet[str]:
        """Corrects the times of checkpoints that are ordered by step; returns their names."""
        if self.has_records:
            return frozenset()
        followed: set[str] = set()
        for line in self._lines().values():
            if self._agrees(line, latest):
                self._follow_line(line)
                followed.update(name for name in line if name not in self.listed)
        return followed

    def follow_sources(self) -> None:
        """Puts each checkpoint that was made from others beside the newest of these."""
        derived = [c for c in self.checkpoints.values() if is_derived(c)]
        for checkpoint in sorted(derived, key=lambda c: c.saved_at):
            made = checkpoint.derived
            names = [s.name for s in made.sources if s.name in self.checkpoints] if made else []
            sources = [name for name in names if name != checkpoint.name]
            if sources:
                newest = max(sources, key=lambda name: self.key(self.checkpoints[name]))
                self.times[checkpoint.name] = self._time(newest)
                self.places[checkpoint.name] = self._place(newest)

    def _time(self, name: str) -> float:
        time = self.times.get(name)
        return self.checkpoints[name].saved_at if time is None else time

    def _place(self, name: str) -> int:
        place = self.places.get(name)
        return self.listed.get(name, -1) if place is None else place

    def _move_to(self, name: str, time: float) -> None:
        if time != self._time(name):
            self.times[name] = time

    def _sequence(self, checkpoint: Checkpoint) -> int:
        if checkpoint.sequence is None or not self.has_records:
            return -1
        return checkpoint.sequence

    def _lines(self) -> dict[_Line, list[str]]:
        """Returns the names of each line, by growing step."""
        lines: dict[_Line, list[tuple[int, str]]] = defaultdict(list)
        for name, checkpoint in self.checkpoints.items():
            said = parse_numbered_name(name)
            if said is not None and checkpoint.packed is None and not checkpoint.links:
                lines[said.prefix, said.branch].append((said.step, name))
        return {line: [name for _, name in sorted(entries)] for line, entries in lines.items()}

    def _agrees(self, line: Sequence[str], latest: str) -> bool:
        """Whether the state file does not contradict the steps of a line."""
        places = [self.listed[name] for name in line if name in self.listed]
        return places == sorted(places) and (latest not in line or latest == line[-1])

    def _follow_line(self, line: Sequence[str]) -> None:
        """Moves unlisted checkpoints between the others of their line; listed ones stay."""
        later = float("inf")
        for name in reversed(line):
            if name not in self.listed:
                self._move_to(name, min(self._time(name), later))
            later = self._time(name)
        earlier, place = float("-inf"), -1
        for name in line:
            if name not in self.listed:
                self._move_to(name, max(self._time(name), earlier))
                if place >= 0:
                    self.places[name] = place
            earlier, place = self._time(name), self._place(name)


class OrderGuess(msgspec.Struct, frozen=True):
    """Two checkpoints of which nothing tells the order; their names decide."""

    kept: Checkpoint
    going: Checkpoint

    @property
    def words(self) -> str:
        """What was found, as sentences."""
        return (
            f"Nothing tells whether {self.kept.name} or {self.going.name} is newer: their file "
            "times are equal, and no record, list or step orders them."
        )


def find_order_guess(kept: Iterable[Checkpoint], going: Sequence[Checkpoint]) -> OrderGuess | None:
    """Returns two checkpoints that a prune parts by a guess; None if it guesses nothing.

    Args:
        kept: The checkpoints that stay.
        going: The checkpoints that go.
    """
    times = {checkpoint.saved_at for checkpoint in going if checkpoint.restorable}
    by_time: dict[float, dict[object, Checkpoint]] = defaultdict(dict)
    for checkpoint in kept:
        # A stranger's takes no part in the order.
        if checkpoint.saved_at not in times or checkpoint.stranger:
            continue
        # The state file says that it is the newest.
        is_known = checkpoint.is_head and checkpoint.listed
        if checkpoint.restorable and not (is_known or checkpoint.pinned or is_derived(checkpoint)):
            by_time[checkpoint.saved_at].setdefault(_known_order(checkpoint), checkpoint)
    for checkpoint in going:
        if checkpoint.restorable and checkpoint.saved_at in by_time:
            order = _known_order(checkpoint)
            for other, beside in by_time[checkpoint.saved_at].items():
                if other != order:
                    return OrderGuess(beside, checkpoint)
    return None


def _known_order(checkpoint: Checkpoint) -> object:
    """Returns what orders a checkpoint among others for which this is equal."""
    if checkpoint.sequence is not None:
        return "records"
    if checkpoint.listed:
        return "list"
    said = parse_numbered_name(checkpoint.name)
    return (said.prefix, said.branch) if said is not None else (checkpoint.name,)


class OrderDoubt(msgspec.Struct, frozen=True):
    """Two checkpoints whose steps and file times disagree.

    Attributes:
        higher: Has the higher step, and counts as newer.
        later: Was written later, according to its file time.
    """

    higher: Checkpoint
    later: Checkpoint

    @property
    def words(self) -> str:
        """What was found, and how the checkpoints are ordered, as sentences."""
        return (
            f"{self.later.name} was written after {self.higher.name} and has a smaller step. "
            "Nothing but steps and file times tells their order, and the steps count. A copy "
            "often gives files new times."
        )

    @property
    def reservation(self) -> str:
        """When the order by step is wrong, as the beginning of a sentence."""
        return f"If training went back and then saved {self.later.name}"


def find_order_doubt(checkpoints: Sequence[Checkpoint]) -> OrderDoubt | None:
    """Returns the newest two checkpoints whose steps and file times disagree, if there are any.

    Args:
        checkpoints: Newest first, as `Catalog.scan` returns them.
    """
    lines: dict[_Line, list[Checkpoint]] = defaultdict(list)
    for checkpoint in checkpoints:
        if checkpoint.is_placed_by_step and checkpoint.restorable and not checkpoint.stranger:
            said = parse_numbered_name(checkpoint.name)
            if said is not None:
                lines[said.prefix, said.branch].append(checkpoint)
    doubts = (_doubt_in(line) for line in lines.values())
    return next((doubt for doubt in doubts if doubt is not None), None)


def _doubt_in(line: Sequence[Checkpoint]) -> OrderDoubt | None:
    """Returns the newest checkpoint of a line that was not written last, with the one that was."""
    doubt = None
    latest = line[-1]
    for higher in reversed(line[:-1]):
        if latest.saved_at > higher.saved_at:
            doubt = OrderDoubt(higher, latest)
        else:
            latest = higher
    return doubt
