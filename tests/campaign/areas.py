"""What an area of the campaign is."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple, Protocol


class Outcome(NamedTuple):
    """What came of a case.

    Attributes:
        injected: How many faults there were in it.
        violations: What was not as it must be, as sentences.
    """

    injected: int
    violations: tuple[str, ...] = ()


class Area(Protocol):
    """A kind of fault, and what it is injected into."""

    @property
    def name(self) -> str:
        """Its name."""

    def cases(self, chance: Random) -> Iterator[str]:
        """Yields cases in an order by chance. A case is text that tells all of it."""

    def run(self, case: str, place: Path) -> Outcome:
        """Runs a case.

        Args:
            case: The case.
            place: An empty directory.
        """


class Drawn:
    """The base of areas whose cases are numbers, from which all of a case is drawn.

    Attributes:
        is_left_out: Whether this machine cannot run them.
    """

    is_left_out = False

    def cases(self, chance: Random) -> Iterator[str]:
        """Yields numbers without end; none if it is left out."""
        while not self.is_left_out:
            yield str(chance.randrange(10**9))


def is_left_out(what: str, lacking: Sequence[str]) -> bool:
    """Says what is left out because this machine lacks something; returns whether it is."""
    if lacking:
        print(f"{what}: {'; '.join(lacking)}", file=sys.stderr)
    return bool(lacking)
