"""Which runs of a list are looked at now.

On a local disk, each one after its pause. A server answers all who list runs, so on network disks
the pauses grow with the number of runs, and those that have ended are looked at in turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

import msgspec

LIVE_OPERATIONS = 45.0
"""Operations a second at the server for all runs that go on."""

ENDED_OPERATIONS = 36.0
"""The same for all that have ended."""

LONGEST_SECONDS = 15.0
"""Longest pause between two looks at a run that goes on."""

MOST_SAVED_SECONDS = 10.0
"""For so long, operations for ended runs that were not needed add up."""

_OPERATIONS = 24.0
_OPERATIONS_OF_WORKER = 6.0
"""What a look at a run that goes on takes, and at the heartbeat of a worker."""

_OPERATIONS_OF_ENDED = 6.0
"""What a look at one takes that has ended and did not change."""


class Looked(msgspec.Struct, frozen=True):
    """A look at a run.

    Attributes:
        at: When it was, by the clock of the turns.
        pause: Seconds until the next one on a local disk; the least on a network disk.
        is_network: Whether the run is on a network disk.
        goes_on: Whether it has live processes.
        workers: How many heartbeats were read.
    """

    at: float
    pause: float
    is_network: bool
    goes_on: bool
    workers: int


class ListTurns:
    """Chooses the runs that are due."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Makes it.

        Args:
            clock: Returns seconds; never goes back.
        """
        self._clock = clock
        self._looked: dict[Path, Looked] = {}
        self._chose_at = clock()
        self._saved = 0.0

    def note(self, root: Path, looked: Looked) -> None:
        """Is told of a look at a run."""
        self._looked[root] = looked

    def forget(self, root: Path) -> None:
        """Is told that a run is no longer in the list."""
        self._looked.pop(root, None)

    def choose(self, roots: Sequence[Path], awaited: AbstractSet[Path]) -> list[Path]:
        """Returns the runs that are looked at now.

        Args:
            roots: Runs that were looked at before.
            awaited: Those among them whose batch jobs wait or run.
        """
        now = self._clock()
        live, ended, due = [], [], []
        for root in roots:
            looked = self._looked[root]
            if not looked.is_network:
                if now >= looked.at + looked.pause:
                    due.append(root)
            elif looked.goes_on or root in awaited:
                live.append(root)
            elif now >= looked.at + looked.pause:
                ended.append(root)
        return [*due, *self._live(live, now), *self._in_turn(ended, now)]

    def _live(self, roots: Sequence[Path], now: float) -> list[Path]:
        workers = sum(self._looked[root].workers for root in roots)
        operations = len(roots) * _OPERATIONS + workers * _OPERATIONS_OF_WORKER
        pause = min(LONGEST_SECONDS, operations / LIVE_OPERATIONS)
        return [root for root in roots if now >= self._looked[root].at + pause]

    def _in_turn(self, roots: Sequence[Path], now: float) -> list[Path]:
        """Returns as many as there are operations for, those first that wait the longest."""
        seconds = now - self._chose_at
        self._chose_at = now
        most = ENDED_OPERATIONS * MOST_SAVED_SECONDS
        self._saved = min(most, self._saved + ENDED_OPERATIONS * seconds)
        count = min(len(roots), int(self._saved / _OPERATIONS_OF_ENDED))
        self._saved -= count * _OPERATIONS_OF_ENDED
        return sorted(roots, key=lambda root: self._looked[root].at)[:count]
