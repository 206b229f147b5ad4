"""The power is cut while a command changes a run: by a model of a disk, and on real file systems.

A case is `COMMAND DISK NUMBER`. For the disk `model`, the number is that of a set of changes that
were not flushed, in the order of the model. On `xfs` and `ext4`, the power is cut before the call
of that number, or at the end; with `-log`, names reach the disk before, and contents do not.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from random import Random

from lost_changes import Tree, recorded, what_may_be_left

from child_processes import KILLED
from real_file_systems import POWER_CUT_NEEDS, own_mounts, power_cut_disk
from refusing_disk import Call, WatchedDisk
from requirements import missing

from .areas import Outcome, is_left_out
from .ledger import Ledger, facts_below
from .storage_faults import COMMANDS, DELETED, CopiedRuns, do, what_a_person_finds

MODEL, WITH_LOG = "model", "-log"
_NEED_NOT_LAST = re.compile(r"run/\.tfckpt/(trash\.json|verifications/.*)")
"""What is made again."""


class PowerCuts(CopiedRuns):
    """A power cut at each point of a command."""

    name = "power"

    def __init__(self, place: Path) -> None:
        """Makes the run that each command begins with, and looks which disks can be mounted."""
        super().__init__(place)
        self._known: dict[str, tuple[Sequence[Tree], int]] = {}
        self._kinds = []
        for kind, needs in POWER_CUT_NEEDS.items():
            lacking = missing("mount namespaces", *needs)
            if not is_left_out(f"power: left out {kind}", lacking):
                self._kinds += [kind, f"{kind}{WITH_LOG}"]
        if self._kinds:
            own_mounts()

    def cases(self, chance: Random) -> Iterator[str]:
        """Yields cases of the model and of real disks in turn, each in an order by chance."""
        modelled, real = list[str](), list[str]()
        for command in COMMANDS:
            left, calls = self._of(command)
            modelled += [f"{command} {MODEL} {at}" for at in range(len(left))]
            real += [f"{command} {kind} {at}" for kind in self._kinds for at in range(1, calls + 2)]
        for cases in (modelled, real):
            chance.shuffle(cases)
        yield from filter(None, chain.from_iterable(zip_longest(modelled, real)))

    def run(self, case: str, place: Path) -> Outcome:
        """Cuts the power, and then does what a person does about it."""
        command, disk, number = case.split()
        if disk != MODEL:
            return self._really_cut(command, disk, int(number), place)
        self._of(command)[0][int(number)].write(place / "run")
        ledger = Ledger(self._healthy).at(place / "run")
        may_go = DELETED.get(command, ())
        found = what_a_person_finds(COMMANDS[command][-1], place, ledger, may_go)
        return Outcome(1, tuple(found))

    def _really_cut(self, command: str, disk: str, number: int, place: Path) -> Outcome:
        may_go, last = DELETED.get(command, ()), COMMANDS[command][-1]
        kind = disk.removesuffix(WITH_LOG)
        with power_cut_disk(place / "disk", kind) as real:
            ledger, found = self.prepared(real.root, command), list[str]()
            (real.root / "out").mkdir(exist_ok=True)
            real.flush()

            def before(call: Call) -> None:
                if call.number == number:
                    real.cut_power(with_log=kind != disk)
                    os._exit(KILLED)

            code, told = do(last, real.root, WatchedDisk(before))
            done = content_below(real.root) if code == 0 else {}
            if code != KILLED:
                real.cut_power(with_log=kind != disk)
            real.restore_power()
            if code == 0:
                changed = {*done.items()} ^ {*content_below(real.root).items()}
                found = [f"{name} was not flushed" for name in {name for name, _ in changed}]
            elif code != KILLED:
                found = [f"it ended with {code}: {told}"]
            found += what_a_person_finds(last, real.root, ledger, may_go)
            return Outcome(1, tuple(found))

    def _of(self, command: str) -> tuple[Sequence[Tree], int]:
        """Returns what a power cut may leave of a command, and how many calls change the disk."""
        if command not in self._known:
            left: dict[object, Tree] = {}

            @contextlib.contextmanager
            def watched(root: Path) -> Iterator[None]:
                first = Tree.of(root)
                with recorded(root) as changes:
                    yield
                left.update((tree.identity, tree) for _, tree in what_may_be_left(first, changes))

            calls = self.calls_of(command, watched)
            self._known[command] = [*left.values()], calls
        return self._known[command]


def content_below(place: Path) -> dict[str, str]:
    """Returns the content of all that must last once a command has ended."""
    found = facts_below(place).items()
    return {name: one.content for name, one in found if not _NEED_NOT_LAST.fullmatch(name)}
