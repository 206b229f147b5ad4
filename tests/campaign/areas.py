"""What an area of the campaign is."""

from __future__ import annotations

from collections.abc import Iterator
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
    """The base of areas whose cases are numbers, from which all of a case is drawn."""

    def cases(self, chance: Random) -> Iterator[str]:
        """Yields numbers without end."""
        while True:
            yield str(chance.randrange(10**9))
