"""Two commands at the same time: one is halted at a call that changes the disk, another one runs.

A case is `FIRST SECOND NUMBER END`. The first is halted before the call of that number until the
second has ended, or sleeps because it waits for a lock. Then the first `goes-on` or `dies`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

from child_processes import KILLED, interleaved

from .areas import Outcome
from .storage_faults import COMMANDS, DELETED, CopiedRuns, badly_ended, on_disk, what_a_person_finds

GOES_ON, DIES = "goes-on", "dies"


class CommandPairs(CopiedRuns):
    """Each two commands, with a switch at each call of the first."""

    name = "pairs"

    def cases(self, chance: Random) -> Iterator[str]:
        """Yields each switch, in an order by chance."""
        cases = [
            f"{first} {second} {number} {end}"
            for first in COMMANDS
            for number in range(1, self.calls_of(first) + 1)
            for second in COMMANDS
            for end in (GOES_ON, DIES)
        ]
        chance.shuffle(cases)
        yield from cases

    def run(self, case: str, place: Path) -> Outcome:
        """Runs both, and then does what a person does about it."""
        first, second, number, end = case.split()
        ledger = self.prepared(place, first, second)
        words, others = COMMANDS[first][-1], COMMANDS[second][-1]
        (code, told), ended = interleaved(
            lambda disk: on_disk(words, place, disk),
            lambda: on_disk(others, place),
            int(number),
            dies=end == DIES,
        )
        found = [] if (code, end) == (KILLED, DIES) else badly_ended(words, code, told)
        found += badly_ended(others, *ended)
        may_go = {*DELETED.get(first, ()), *DELETED.get(second, ())}
        if "empty" in (first, second):
            # It takes what the other one has moved to the trash meanwhile.
            may_go.add("foreign-7")
        return Outcome(1, (*found, *what_a_person_finds(words, place, ledger, may_go)))
