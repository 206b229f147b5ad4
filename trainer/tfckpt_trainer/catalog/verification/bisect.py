"""Finds the first checkpoint for which a check fails, by bisection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class ProbeOutcome(StrEnum):
    """The result of a check of one checkpoint."""

    GOOD = "good"
    BAD = "bad"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Probe:
    """The check of one checkpoint.

    Attributes:
        name: A checkpoint that was checked, in the order of the checks.
        outcome: The result.
        detail: What was found.
    """

    name: str
    outcome: ProbeOutcome
    detail: str = ""


@dataclass(frozen=True)
class Bisection:
    """Where a sequence of checkpoints changes from good to bad.

    Attributes:
        probes: All checks, in order.
        last_good: The last good checkpoint before the first bad one; None if the first is bad. If
            none is bad, the last one that could be checked; None if none could.
        first_bad: The first bad checkpoint; None if the last one that could be checked is good.
        undecided: Skipped checkpoints after `last_good` and before `first_bad`. Any of them may
            be the first bad one.
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
    """Checks the last checkpoint, then the first, then bisects those in between.

    It assumes that all checkpoints after a bad one are bad. Otherwise the result is still a good
    checkpoint followed by a bad one, but there may be an earlier such pair.

    Args:
        names: The checkpoints, oldest first.
        check: Checks one of them.
        on_probe: Called after each check with the number of checkpoints still in question.
    """
    search = _Search(names, check, on_probe)
    last = search.last()
    if last is None:
        return search.result(-1, None)
    if search.known[last] is ProbeOutcome.GOOD:
        return search.result(last, None)
    good, bad = search.first(last)
    while True:
        middle = search.between(good, bad)
        if middle is None:
            return search.result(good, bad)
        outcome = search.ask(middle)
        good = middle if outcome is ProbeOutcome.GOOD else good
        bad = middle if outcome is ProbeOutcome.BAD else bad
        search.tell(bad - good - 1)


class _Search:
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
        self.known: dict[int, ProbeOutcome] = {}

    def ask(self, place: int) -> ProbeOutcome:
        probe = self._check(self._names[place])
        self._probes.append(probe)
        self.known[place] = probe.outcome
        return probe.outcome

    def tell(self, left: int) -> None:
        """Reports the last check and how many checkpoints are still in question."""
        self._on_probe(self._probes[-1], left)

    def last(self) -> int | None:
        """Returns the last checkpoint that could be checked."""
        for place in reversed(range(len(self._names))):
            outcome = self.ask(place)
            self.tell(0 if outcome is ProbeOutcome.GOOD else place)
            if outcome is not ProbeOutcome.SKIPPED:
                return place
        return None

    def first(self, last: int) -> tuple[int, int]:
        """Returns the first checkpoint if it is good, and the first known bad one.

        If the first one is bad, the good one is at -1.
        """
        for place in range(last):
            outcome = self.ask(place)
            self.tell(0 if outcome is ProbeOutcome.BAD else last - place - 1)
            if outcome is not ProbeOutcome.SKIPPED:
                return (place, last) if outcome is ProbeOutcome.GOOD else (-1, place)
        return -1, last

    def between(self, good: int, bad: int) -> int | None:
        """Returns the unchecked one nearest to the middle; None if there is none."""
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
