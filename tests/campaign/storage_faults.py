"""Faults at each call by which a command changes a run directory.

A case is `COMMAND FAULT NUMBER`: the fault comes at the call of that number. Afterwards another
process looks, takes back and repeats, as a person would.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from checkpoint_directory import CheckpointDirectory
from rundir_factory import RunFactory

from refusing_disk import CHANGES
from tfckpt_trainer.rundir.storage.disk import Disk, LocalDisk, using
from tfckpt_tui.cli.main import run

from .areas import Outcome
from .ledger import Ledger
from .processes import KILLED, in_child

RUN, OUT = "RUN", "OUT"

PRUNE = ["prune", RUN, "ckpt-100", "ckpt-200", "--yes"]
COMMANDS: dict[str, Sequence[Sequence[str]]] = {
    "prune": [PRUNE],
    "prune-by-rules": [["prune", RUN, "--keep-last", "2", "--yes"]],
    "prune-tensorflow": [["prune", RUN, "foreign-7", "--yes"]],
    "undo": [PRUNE, ["undo", RUN]],
    "empty": [PRUNE, ["trash", RUN, "empty", "--yes"]],
    "delete": [["prune", RUN, "ckpt-100", "--yes", "--delete"]],
    "pin": [["pin", RUN, "ckpt-100"]],
    "unpin": [["pin", RUN, "ckpt-100"], ["unpin", RUN, "ckpt-100"]],
    "average": [["average", RUN, "ckpt-100", "ckpt-200"]],
    "edit": [["edit", RUN, "ckpt-100", "--rename", "v", "w", "--yes"]],
    "extract": [["extract", RUN, "ckpt-100", "--output", f"{OUT}/t.npz"]],
    "copy": [["copy", RUN, "ckpt-100", "ckpt-200", OUT]],
    "next-start": [["restore", RUN, "--name", "ckpt-200", "--next-start"]],
    "guard": [["guards", RUN, "--add", "above loss 3: notify", "--yes"]],
    "report": [["report", RUN, "--output", f"{OUT}/r.html"]],
    "verify": [["verify", RUN]],
}
"""What is done; the fault comes in the last one of each."""

DELETED = {"empty": ("ckpt-100", "ckpt-200"), "delete": ("ckpt-100",)}
"""What a command is asked to delete for good."""

FAULTS = ("kill", "tear", "fail-once", "fail-on", "full", "denied")
_ERRORS = {
    "fail-once": errno.EIO,
    "fail-on": errno.EIO,
    "full": errno.ENOSPC,
    "denied": errno.EACCES,
}
_NEEDS_ROOM = {"open", "write", "make_directory", "rename"}


class FaultyDisk(LocalDisk):
    """Counts the calls that change it, and has a fault at one of them.

    Attributes:
        count: How many calls there were.
    """

    def __init__(self, fault: str = "", number: int = 0) -> None:
        self.count = 0
        self._fault, self._number = fault, number
        for name in CHANGES:
            setattr(self, name, self._watched(name, getattr(self, name)))

    def _watched(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any) -> Any:
            if name == "open" and not arguments[1] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                return call(*arguments)
            self.count += 1
            if self.count == self._number and self._fault == "tear" and name == "write":
                call(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2], *arguments[2:])
            if self.count == self._number and self._fault in {"kill", "tear"}:
                os._exit(KILLED)
            is_due = self.count == self._number
            is_due |= self._fault != "fail-once" and self.count > self._number > 0
            if self._fault == "full" and name not in _NEEDS_ROOM:
                is_due = False
            if self._fault in _ERRORS and is_due:
                raise OSError(_ERRORS[self._fault], os.strerror(_ERRORS[self._fault]))
            return call(*arguments)

        return watched


class StorageFaults:
    """Faults at each call of the storage, in each command."""

    name = "storage"

    def __init__(self, place: Path) -> None:
        """Makes the run that is copied for each case."""
        self._healthy = healthy_run(place / "healthy")
        self._counted = place / "counted"

    def cases(self, chance: Random) -> Iterator[str]:
        """Yields each fault at each call, in an order by chance."""
        cases = [
            f"{command} {fault} {number}"
            for command in COMMANDS
            for number in range(1, self._calls_of(command) + 1)
            for fault in FAULTS
        ]
        chance.shuffle(cases)
        yield from cases

    def run(self, case: str, place: Path) -> Outcome:
        """Runs a command with a fault, and then what a person does about it."""
        command, fault, number = case.split()
        root, may_go = place / "run", DELETED.get(command, ())
        shutil.copytree(self._healthy, root, symlinks=True)
        ledger = Ledger(root, ["notes.txt", "ckpt-100.meta"])
        *before, last = COMMANDS[command]
        for words in before:
            code, told = do(words, place)
            assert code == 0, told
        _, told = do(last, place, FaultyDisk(fault, int(number)))
        found = [told] if "Traceback" in told else []
        found += ledger.lost(may_go)
        return Outcome(1, (*found, *what_a_person_does(last, place, ledger, may_go)))

    def _calls_of(self, command: str) -> int:
        """How many calls change the disk in the last step of a command.

        It runs in this process: what it imports, the processes of the cases have already.
        """
        place = self._counted / command
        shutil.copytree(self._healthy, place / "run", symlinks=True)
        told, disk = io.StringIO(), FaultyDisk()
        with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
            *before, last = (in_place(words, place) for words in COMMANDS[command])
            codes = [run(words) for words in before]
            with using(disk):
                codes.append(run(last))
        assert not any(codes), f"{command} without a fault: {told.getvalue()}"
        return disk.count


def what_a_person_does(
    again: Sequence[str], place: Path, ledger: Ledger, may_go: Collection[str]
) -> list[str]:
    """Looks, takes back and repeats, each in another process; returns what is violated."""
    found = []
    for words in (["ls", RUN], ["undo", RUN], again, ["status", RUN]):
        code, told = do(words, place)
        if code not in range(5) or "Traceback" in told:
            found.append(f"then `{words[0]}` ended with {code}: {told}")
        found += [f"after `{words[0]}`: {one}" for one in ledger.lost(may_go)]
    return found + ledger.violations(may_go)


def healthy_run(root: Path) -> Path:
    """Makes a run that has ended, with a checkpoint of TensorFlow's own and files of others."""
    RunFactory(root).create()
    made = CheckpointDirectory(root, are_all_different=True)
    made.tensorflow("foreign-7", age=9000)
    for step in (100, 200, 300, 400):
        made.ours(step, workers=2, age=8000 - 10 * step)
    (root / "notes.txt").write_text("not a checkpoint")
    (root / "ckpt-100.meta").write_bytes(b"a graph of somebody")
    return root


def do(words: Sequence[str], place: Path, disk: Disk | None = None) -> tuple[int, str]:
    """Runs a command in another process; returns its status and what it says."""
    arguments = in_place(words, place)

    def act() -> int:
        with using(disk or LocalDisk()):
            return run(arguments)

    told = place / "told"
    told.unlink(missing_ok=True)
    code = in_child(act, told)
    return code, told.read_text(encoding="utf-8") if told.exists() else ""


class DrawnRuns:
    """The base of areas whose cases are numbers: each draws what happens to a copy of a run."""

    def __init__(self, place: Path) -> None:
        """Makes the run that is copied for each case."""
        self._healthy = healthy_run(place / "healthy")

    def cases(self, chance: Random) -> Iterator[str]:
        """Yields numbers without end."""
        while True:
            yield str(chance.randrange(10**9))

    def copied(self, place: Path) -> Path:
        """Copies the run; returns its directory."""
        shutil.copytree(self._healthy, place / "run", symlinks=True)
        return place / "run"


def may_go_by(command: str, words: Sequence[str], ledger: Ledger) -> set[str]:
    """Returns the checkpoints that a step of a command is asked to delete for good."""
    emptied = ledger.in_trash() if words[0] == "trash" else set()
    return {*DELETED.get(command, ()), *emptied}


def in_place(words: Sequence[str], place: Path) -> list[str]:
    """Puts directories in place of their names."""
    places = {RUN: place / "run", OUT: place / "out"}
    (place / "out").mkdir(parents=True, exist_ok=True)
    parted = [word.partition("/") for word in words]
    return [f"{places.get(name, name)}{slash}{rest}" for name, slash, rest in parted]
