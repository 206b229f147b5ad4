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
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random

from checkpoint_directory import CheckpointDirectory
from rundir_factory import RunFactory

from child_processes import KILLED, in_child
from refusing_disk import Call, WatchedDisk
from tfckpt_trainer.catalog.directory.trash import RETENTION
from tfckpt_trainer.catalog.retention.prune import move_to_trash
from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.storage.disk import Disk, LocalDisk, using
from tfckpt_trainer.rundir.storage.locks import locked
from tfckpt_tui.cli.main import run

from .areas import Drawn, Outcome
from .ledger import Ledger

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
    RETENTION: [[RETENTION, RUN]],
}
"""What is done; the fault comes in the last one of each."""

DELETED = {"empty": ("ckpt-100", "ckpt-200"), "delete": ("ckpt-100",)}
"""What a command is asked to delete for good."""

OF_OTHERS = ("notes.txt", "ckpt-100.meta")
"""Files of other people beside the checkpoints."""

FAULTS = ("kill", "tear", "fail-once", "fail-on", "full", "denied")
_ERRORS = {
    "fail-once": errno.EIO,
    "fail-on": errno.EIO,
    "full": errno.ENOSPC,
    "denied": errno.EACCES,
}
_NEEDS_ROOM = {"open", "write", "make_directory", "rename"}


def faulty(fault: str, number: int) -> WatchedDisk:
    """Returns a disk with a fault at the call of a number, and after it if the fault lasts."""

    def before(call: Call) -> None:
        if call.number == number and fault in {"kill", "tear"}:
            if fault == "tear" and call.name == "write":
                descriptor, data, *at = call.arguments
                LocalDisk().write(descriptor, bytes(data)[: len(data) // 2], *at)
            os._exit(KILLED)
        is_due = call.number == number or (fault != "fail-once" and call.number > number)
        if fault == "full" and call.name not in _NEEDS_ROOM:
            is_due = False
        if fault in _ERRORS and is_due:
            raise OSError(_ERRORS[fault], os.strerror(_ERRORS[fault]))

    return WatchedDisk(before)


class CopiedRuns:
    """The base of areas that do something to a copy of a run in each case."""

    def __init__(self, place: Path) -> None:
        """Makes the run that is copied."""
        self._healthy, self._place = healthy_run(place / "healthy"), place

    def copied(self, place: Path) -> Path:
        """Copies the run; returns its directory."""
        shutil.copytree(self._healthy, place / "run", symlinks=True)
        return place / "run"

    def prepared(self, place: Path, *commands: str) -> Ledger:
        """Copies the run, and does all but the last step of commands."""
        ledger = Ledger(self.copied(place), OF_OTHERS)
        for words in dict.fromkeys(tuple(w) for c in commands for w in COMMANDS[c][:-1]):
            # Of two commands, one may take what the other one needs.
            assert not badly_ended(words, *do(words, place))
        return ledger

    def calls_of(
        self,
        command: str,
        watched: Callable[[Path], AbstractContextManager[object]] = contextlib.nullcontext,
    ) -> int:
        """Returns how many calls change the disk in the last step of a command.

        It runs in this process: what it imports, the processes of the cases have already.

        Args:
            command: One of `COMMANDS`.
            watched: The step runs in this context of the run directory.
        """
        place, told, disk = self._place / command, io.StringIO(), WatchedDisk()
        root = self.copied(place)
        *before, last = COMMANDS[command]
        with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
            codes = [on_disk(words, place) for words in before]
            with watched(root):
                codes.append(on_disk(last, place, disk))
        assert not any(codes), f"{command} without a fault: {told.getvalue()}"
        return disk.count


class StorageFaults(CopiedRuns):
    """Faults at each call of the storage, in each command."""

    name = "storage"

    def cases(self, chance: Random) -> Iterator[str]:
        """Yields each fault at each call, in an order by chance."""
        cases = [
            f"{command} {fault} {number}"
            for command in COMMANDS
            for number in range(1, self.calls_of(command) + 1)
            for fault in FAULTS
        ]
        chance.shuffle(cases)
        yield from cases

    def run(self, case: str, place: Path) -> Outcome:
        """Runs a command with a fault, and then what a person does about it."""
        command, fault, number = case.split()
        may_go, last = DELETED.get(command, ()), COMMANDS[command][-1]
        ledger = self.prepared(place, command)
        _, told = do(last, place, faulty(fault, int(number)))
        found = [told] if "Traceback" in told else []
        return Outcome(1, (*found, *what_a_person_finds(last, place, ledger, may_go)))


def what_a_person_finds(
    again: Sequence[str], place: Path, ledger: Ledger, may_go: Collection[str]
) -> list[str]:
    """Looks, takes back and repeats, each in another process; returns what is violated."""
    found = ledger.lost(may_go)
    for words in (["ls", RUN], ["undo", RUN], again, ["status", RUN]):
        found += [f"then {one}" for one in badly_ended(words, *do(words, place))]
        found += [f"after `{words[0]}`: {one}" for one in ledger.lost(may_go)]
    return found + ledger.violations(may_go)


def badly_ended(words: Sequence[str], code: int, told: str) -> list[str]:
    """Returns how a command ended, if none must end so."""
    is_bad = code not in range(5) or "Traceback" in told
    return [f"`{words[0]}` ended with {code}: {told}"] if is_bad else []


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
    return in_child(lambda: on_disk(words, place, disk))


def on_disk(words: Sequence[str], place: Path, disk: Disk | None = None) -> int:
    """Runs a command in this process, on the local disk or another one; returns its status."""
    arguments = in_place(words, place)
    with using(disk or LocalDisk()):
        return prune_as_trainer(Path(arguments[1])) if words[0] == RETENTION else run(arguments)


def prune_as_trainer(root: Path) -> int:
    """Prunes as a trainer does after a save, which needs no TensorFlow."""
    run, names, now = RunDirectory(root), ("ckpt-100", "ckpt-200"), time.time()
    try:
        with locked(run.trainer_lock, 1.0, "training"):
            move_to_trash(run, names, by=RETENTION, now=now, update_state_file=True, timeout=1.0)
    except (TfckptError, OSError) as error:
        print(error)
        return 1
    return 0


class DrawnRuns(CopiedRuns, Drawn):
    """The base of areas whose cases are numbers: each draws what happens to a copy of a run."""


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
