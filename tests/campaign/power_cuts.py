"""Each set of changes that a power cut may take from a command: those that were not flushed.

A case is `COMMAND NUMBER`: the number is that of what may be left, in the order of the model.
"""

from __future__ import annotations

import contextlib
import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

from lost_changes import Tree, recorded, what_may_be_left

from tfckpt_tui.cli.main import run

from .areas import Outcome
from .ledger import Ledger
from .storage_faults import COMMANDS, DELETED, healthy_run, in_place, what_a_person_does


class PowerCuts:
    """A power cut at each point of a command, by a model of what a disk may lose."""

    name = "power"

    def __init__(self, place: Path) -> None:
        """Makes the run that each command begins with."""
        self._healthy, self._place = healthy_run(place / "healthy"), place
        self._left: dict[str, list[Tree]] = {}

    def cases(self, chance: Random) -> Iterator[str]:
        """Yields what may be left of each command, in an order by chance."""
        cases = [f"{command} {at}" for command in COMMANDS for at in range(len(self._of(command)))]
        chance.shuffle(cases)
        yield from cases

    def run(self, case: str, place: Path) -> Outcome:
        """Writes what is left of a run, and then does what a person does about it."""
        command, number = case.split()
        may_go, root = DELETED.get(command, ()), place / "run"
        ledger = Ledger(self._healthy)
        self._of(command)[int(number)].write(root)
        ledger = ledger.at(root)
        found = ledger.lost(may_go)
        return Outcome(
            1, (*found, *what_a_person_does(COMMANDS[command][-1], place, ledger, may_go))
        )

    def _of(self, command: str) -> list[Tree]:
        """Returns what a power cut may leave of a command, each once."""
        if command not in self._left:
            place = self._place / command
            shutil.copytree(self._healthy, place / "run", symlinks=True)
            *before, last = (in_place(words, place) for words in COMMANDS[command])
            with (
                contextlib.redirect_stdout(io.StringIO()),
                contextlib.redirect_stderr(io.StringIO()),
            ):
                for words in before:
                    run(words)
                first = Tree.of(place / "run")
                with recorded(place / "run") as changes:
                    run(last)
            left = {tree.identity: tree for _, tree in what_may_be_left(first, changes)}
            self._left[command] = [*left.values()]
        return self._left[command]
