"""Finds the first checkpoint of a row in which a check fails, by halving."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """What a check said of one checkpoint."""

    GOOD = "good"
    BAD = "bad"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Probe:
    """One check: of which checkpoint, what it said, and in words why."""

    name: str
    outcome: Outcome
    detail: str = ""


@dataclass(frozen=True)
class Bisection:
    """Where a row of checkpoints goes from good to bad.

    Attributes:
        probes: Every check, in the order in which they were made.
        last_good: The last known good one before the first bad; None if the row begins bad. Where
            none is bad, the last that could be checked; None if none could.
        first_bad: None if the last that could be checked is good: nothing before it was looked
            at then.
        undecided: Skipped ones between the two, or behind the last good one: the first bad may
            be any of them.
    """

    probes: tuple[Probe, ...]
    last_good: str | None
    first_bad: str | None
    undecided: tuple[str, ...] = ()


def bisect(
    names: Sequence[str],
    check: Callable[[str], Probe],
    on_probe: Callable[[Probe, int], None] = lambda probe, left: None,
) -> Bisection:
    """Checks the last, then the first, then halves what lies between.

    What fails once is taken to fail from there on. Where that is not so, the answer is still a
    good one followed by a bad one, but perhaps not the first such pair.

    Args:
        names: The row, oldest first.
        check: Looks at one of them.
        on_probe: Told each check, and how many checkpoints are still in question.
    """
    row = _Row(names, check, on_probe)
    last = row.last()
    if last is None:
        return row.result(-1, None)
    if row.known[last] is Outcome.GOOD:
        return row.result(last, None)
    good, bad = row.first(last)
    while True:
        middle = row.between(good, bad)
        if middle is None:
            return row.result(good, bad)
        outcome = row.ask(middle)
        good = middle if outcome is Outcome.GOOD else good
        bad = middle if outcome is Outcome.BAD else bad
        row.tell(bad - good - 1)


class _Row:
    def __init__(
        self,
        names: Sequence[str],
        check: Callable[[str], Probe],
        on_probe: Callable[[Probe, int], None],
    ) -> None:
        self._names = names
        self._check = check
        self._on_probe = on_probe
        self._probes: list[Probe] = []
        self.known: dict[int, Outcome] = {}

    def ask(self, place: int) -> Outcome:
        probe = self._check(self._names[place])
        self._probes.append(probe)
        self.known[place] = probe.outcome
        return probe.outcome

    def tell(self, left: int) -> None:
        """Hands on the last check, and how many are in question after it."""
        self._on_probe(self._probes[-1], left)

    def last(self) -> int | None:
        """Returns the last that could be checked."""
        for place in reversed(range(len(self._names))):
            outcome = self.ask(place)
            self.tell(0 if outcome is Outcome.GOOD else place)
            if outcome is not Outcome.SKIPPED:
                return place
        return None

    def first(self, last: int) -> tuple[int, int]:
        """Returns the first if it is good, and the first bad one that is known.

        What is before all stands for a good one where the row begins bad.
        """
        for place in range(last):
            outcome = self.ask(place)
            self.tell(0 if outcome is Outcome.BAD else last - place - 1)
            if outcome is not Outcome.SKIPPED:
                return (place, last) if outcome is Outcome.GOOD else (-1, place)
        return -1, last

    def between(self, good: int, bad: int) -> int | None:
        """Returns what to check next: the nearest to the middle that was not tried yet."""
        middle = (good + bad) / 2
        untried = [place for place in range(good + 1, bad) if place not in self.known]
        return min(untried, key=lambda place: abs(place - middle), default=None)

    def result(self, good: int, bad: int | None) -> Bisection:
        return Bisection(
            tuple(self._probes),
            self._names[good] if good >= 0 else None,
            self._names[bad] if bad is not None else None,
            tuple(self._names[good + 1 : bad]),
        )
