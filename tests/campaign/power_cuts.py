"""Each set of changes that a power cut may take from a command: those that were not flushed.

A case is `COMMAND NUMBER`: the number is that of what may be left, in the order of the model.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from lost_changes import Tree, recorded, what_may_be_left

from .areas import Outcome
from .ledger import Ledger
from .storage_faults import COMMANDS, DELETED, CopiedRuns, what_a_person_finds


class PowerCuts(CopiedRuns):
    """A power cut at each point of a command, by a model of what a disk may lose."""

    name = "power"

    def __init__(self, place: Path) -> None:
        """Makes the run that each command begins with."""
        super().__init__(place)
        self._left: dict[str, Sequence[Tree]] = {}

    def cases(self, chance: Random) -> Iterator[str]:
        """Yields what may be left of each command, in an order by chance."""
        cases = [f"{command} {at}" for command in COMMANDS for at in range(len(self._of(command)))]
        chance.shuffle(cases)
        yield from cases

    def run(self, case: str, place: Path) -> Outcome:
        """Writes what is left of a run, and then does what a person does about it."""
        command, number = case.split()
        self._of(command)[int(number)].write(place / "run")
        ledger = Ledger(self._healthy).at(place / "run")
        may_go = DELETED.get(command, ())
        found = what_a_person_finds(COMMANDS[command][-1], place, ledger, may_go)
        return Outcome(1, tuple(found))

    def _of(self, command: str) -> Sequence[Tree]:
        """Returns what a power cut may leave of a command, each once."""
        if command not in self._left:
            left: dict[object, Tree] = {}

            @contextlib.contextmanager
            def watched(root: Path) -> Iterator[None]:
                first = Tree.of(root)
                with recorded(root) as changes:
                    yield
                left.update((tree.identity, tree) for _, tree in what_may_be_left(first, changes))

            self.calls_of(command, watched)
            self._left[command] = [*left.values()]
        return self._left[command]
