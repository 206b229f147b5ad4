"""Faults at the file calls of a trainer, also at those that TensorFlow makes itself.

A case is a number. It makes how the trainer saves, in which of its first two starts the fault
comes, at which call, and what it is. The last start is without faults.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from random import Random
from subprocess import TimeoutExpired
from unittest.mock import patch

from file_calls import KILL, NONE, TEAR, Fault, build, lacking
from tensorflow_processes import python_with_tensorflow, run_with_tensorflow

from .areas import Drawn, Outcome, is_left_out
from .live_ledger import LiveLedger
from .live_workers import HERE, SAVING
from .storage_faults import RUN, badly_ended, do

STARTS, STEPS_OF_A_START = 3, 20
MOST_SECONDS = 120
CHANGE_FAULTS = (KILL, TEAR, errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EACCES)
READ_FAULTS = (KILL, errno.EIO)
LASTING = (1, 1, 10, 100)
"""How many calls fail one after the other."""
Options = tuple[str, ...]
Counts = tuple[int, int]
"""How many calls of a process changed the disk, and how many read from it."""


class TrainerFaults(Drawn):
    """Faults at each file call of a trainer."""

    name = "trainer"

    def __init__(self, place: Path) -> None:
        """Starts the process that trainers are forked from."""
        self._place, self._counts = place, dict[Options, Sequence[Counts]]()
        self.is_left_out = is_left_out("trainer: left out", lacking())
        if self.is_left_out:
            return
        with patch.dict(os.environ, LD_PRELOAD=str(build(place))):
            python_with_tensorflow()

    def run(self, case: str, place: Path) -> Outcome:
        """Trains with a fault and then without, and judges what is there."""
        chance = Random(case)
        options = ("--save-every", chance.choice(("4", "7")), *chance.choice(SAVING))
        options += chance.choice(((), ("--keep-last", "2")))
        faulty, is_put_back = chance.randrange(STARTS - 1), chance.random() < 0.5
        fault = drawn(chance, self._counts_of(options)[faulty])
        trained, counts = Trained(place, options), list[Counts | None]()
        for at in range(STARTS):
            if at == 1 and is_put_back:
                trained.put_back(chance)
            counts.append(trained.start(fault if at == faulty else NONE))
        found = trained.judged()
        # One that was killed tells no count; another one may have made fewer calls.
        count = counts[faulty]
        was_injected = count is None or count[fault.of_reads] >= fault.first
        story = f"{' '.join(options)}: start {faulty}: {fault}{', put back' * is_put_back}"
        return Outcome(int(was_injected), (story, *found) if found else ())

    def _counts_of(self, options: Options) -> Sequence[Counts]:
        """Returns how many calls each start makes that has no fault."""
        if options not in self._counts:
            place = self._place / str(len(self._counts))
            place.mkdir()
            trained = Trained(place, options)
            counts = [trained.start(NONE) for _ in range(STARTS - 1)]
            assert not trained.found, trained.found
            self._counts[options] = [count for count in counts if count is not None]
        return self._counts[options]


def drawn(chance: Random, counts: Counts) -> Fault:
    """Returns a fault at one of so many calls that change the disk, or that read."""
    of_reads = chance.random() < 0.25
    what = chance.choice(READ_FAULTS if of_reads else CHANGE_FAULTS)
    first = chance.randint(1, counts[of_reads])
    return Fault(what, first, first + chance.choice(LASTING) - 1, of_reads)


class Trained:
    """A run that is started several times.

    Attributes:
        found: What was not as it must be.
    """

    def __init__(self, place: Path, options: Options) -> None:
        """Begins with an empty run."""
        self._place, self._root, self._options = place, place / "run", options
        self._root.mkdir()
        self._ledger, self._starts, self._is_put_back = LiveLedger(self._root), 0, False
        self.found: list[str] = []

    def start(self, fault: Fault) -> Counts | None:
        """Trains for some more steps; returns its counts, or None if it was killed.

        It ends before if it is killed, or where an error leaves it no other way.
        """
        self._starts += 1
        try:
            ended = run_with_tensorflow(
                HERE / "faulty_training.py",
                *map(int, fault),
                *("--strategy", "one-device", "--start", self._starts, *self._options),
                *("--total-steps", STEPS_OF_A_START * self._starts),
                timeout=MOST_SECONDS,
                TFCKPT_RUN_DIR=str(self._root),
                TFCKPT_ATTEMPT="0",
            )
        except TimeoutExpired:
            self.found.append(f"start {self._starts} does not end")
            return None
        may_end = (0,) if fault == NONE else (0, -9) if fault.what in (KILL, TEAR) else (0, 1)
        if ended.returncode not in may_end:
            told = f"{ended.stdout[-300:]} {ended.stderr[-2000:]}"
            self.found.append(f"start {self._starts} ended with {ended.returncode}: {told}")
        self._ledger.note()
        if not self._is_put_back and (names := self._ledger.newest()):
            self._ledger.line = names[0]
        counts = re.search(r"^calls (\d+) (\d+)$", ended.stdout, re.MULTILINE)
        return (int(counts[1]), int(counts[2])) if counts else None

    def put_back(self, chance: Random) -> None:
        """Has the next start begin with a checkpoint by chance."""
        if not (names := self._ledger.newest()):
            return
        name, self._is_put_back = chance.choice(names), True
        words = ["restore", RUN, "--name", name, "--next-start", "--yes"]
        code, told = do(words, self._place)
        self.found += badly_ended(words, code, told)
        self._ledger.acknowledge(("restore", "--name", name), code, {})

    def judged(self) -> list[str]:
        """Returns what is violated at the end."""
        read = run_with_tensorflow(HERE / "live_reading.py", self._root, timeout=MOST_SECONDS)
        assert read.returncode == 0, read.stderr
        last = self._ledger.latest()
        return [*self.found, *self._ledger.judge(json.loads(read.stdout), last, replicas=1)]
