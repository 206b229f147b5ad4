"""Whether somebody writes in a directory who does not use our library, as well as can be known.

TensorFlow opens the files of a checkpoint only while it writes or reads it, so a trainer between
two saves shows by what else it writes there, such as event files, or not at all: no evidence is
no proof. Processes of other machines, and of other users unless we are root, are not seen.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil

from tfckpt_trainer.catalog.scan.checkpoint_files import Files, look, owner_of
from tfckpt_trainer.catalog.scan.states import quiet_seconds_of
from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.rundir.documents import load
from tfckpt_trainer.rundir.filesystems import is_network_file_system
from tfckpt_trainer.rundir.health import process_lives, read_workers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.processes import is_seen_from_here
from tfckpt_trainer.rundir.records.run import SupervisorStatus
from tfckpt_trainer.rundir.records.worker import WorkerStatus

_PROC = Path("/proc")
_DELETED = " (deleted)"
_TEMPORARY = "_temp"


class WritingProcess(NamedTuple):
    """A process of this machine that has a file of the directory open to write.

    Attributes:
        command: How it was started.
        file: One of those that it writes, relative to the directory.
    """

    pid: int
    name: str
    command: str
    file: str


@dataclass(frozen=True)
class Foreign:
    """The evidence that somebody else writes in a directory.

    Attributes:
        processes: That write there now; neither this one nor the workers of our library.
        fresh_seconds: How long ago a file of a checkpoint was last changed, by whomever; None
            where all has been quiet for so long that no save can be under way.
        open_checkpoints: Those of which any other process has a file open, be it to read.
        fresh_checkpoints: Those that changed so lately that a save of them may be under way.
        unseen_processes: Of how many processes the open files may not be looked at.
        other_machines: Whether processes of other machines may write there.
    """

    processes: tuple[WritingProcess, ...]
    fresh_seconds: float | None
    open_checkpoints: frozenset[str]
    unseen_processes: int = 0
    other_machines: bool = False
    fresh_checkpoints: frozenset[str] = frozenset()

    @property
    def in_use(self) -> frozenset[str]:
        """What it may be reading or writing: these are not touched."""
        return self.open_checkpoints | self.fresh_checkpoints

    @property
    def is_likely(self) -> bool:
        """Whether anything speaks for a live trainer."""
        return bool(self.processes) or self.fresh_seconds is not None


class _Open(NamedTuple):
    """A file below the directory that a process has open, relative to it."""

    pid: int
    file: str
    writes: bool


def foreign_writers(run: RunDirectory, now: float) -> Foreign:
    """Looks for evidence; it takes some milliseconds for a few hundred processes.

    Args:
        run: The directory.
        now: Seconds since the epoch.

    Raises:
        OSError: The directory cannot be read.
    """
    root = os.path.realpath(run.root)
    found, unseen = _open_files(root)
    ours = {os.getpid(), *_our_pids(run)}
    control = f"{run.control.name}/"
    writers: dict[int, _Open] = {}
    for opened in found:
        # What lies in our own directory is written by our library, or by what we launched.
        if opened.writes and opened.pid not in ours and not opened.file.startswith(control):
            writers.setdefault(opened.pid, opened)
    files = look(run.root)
    names = {_checkpoint_of(opened.file) for opened in found if opened.pid != os.getpid()}
    quiet = quiet_seconds_of(run.root)
    fresh = {name: age for name, found in files.items() if (age := _age(found, now)) <= quiet}
    return Foreign(
        processes=tuple(_describe(opened) for opened in writers.values()),
        fresh_seconds=min(fresh.values(), default=None),
        open_checkpoints=frozenset(names & files.keys()),
        unseen_processes=unseen,
        other_machines=is_network_file_system(run.root),
        fresh_checkpoints=frozenset(fresh),
    )


def trainer_is_gone(run: RunDirectory) -> bool:
    """Whether every process that trained here with this library has ended for certain.

    That is certain only of processes of this machine, in a directory that no other machine
    writes to. Without any heartbeat nothing is known.
    """
    if is_network_file_system(run.root):
        return False
    workers = read_workers(run)
    return bool(workers) and not any(
        not worker.namespace
        or not is_seen_from_here(worker)
        or process_lives(worker.pid, worker.process_started_at)
        for worker in workers
    )


def _open_files(root: str) -> tuple[list[_Open], int]:
    """Returns what is open below `root`, and of how many processes that could not be seen."""
    found: list[_Open] = []
    unseen = 0
    for pid in psutil.pids():
        try:
            found += _of_process(pid, root) if _PROC.is_dir() else _of_process_elsewhere(pid, root)
        except (FileNotFoundError, ProcessLookupError, psutil.NoSuchProcess):
            # It ended meanwhile.
            continue
        except (OSError, psutil.Error):
            unseen += 1
    return found, unseen


def _of_process(pid: int, root: str) -> Iterator[_Open]:
    """Reads `/proc`, and touches no file that is open: one on a dead server would hang us."""
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            path = os.readlink(f"/proc/{pid}/fd/{number}")
            if path.startswith(f"{root}/"):
                file = path.removeprefix(f"{root}/").removesuffix(_DELETED)
                yield _Open(pid, file, _writes(f"/proc/{pid}/fdinfo/{number}"))
        except FileNotFoundError:
            # It was closed meanwhile.
            continue


def _writes(info: str) -> bool:
    with open(info, "rb") as file:
        for line in file:
            if line.startswith(b"flags:"):
                return int(line.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
    return False


def _of_process_elsewhere(pid: int, root: str) -> Iterator[_Open]:
    for opened in psutil.Process(pid).open_files():
        if opened.path.startswith(f"{root}/"):
            # Only Linux tells how it was opened.
            mode = getattr(opened, "mode", "r+")
            yield _Open(pid, opened.path.removeprefix(f"{root}/"), mode != "r")


def _our_pids(run: RunDirectory) -> Iterator[int]:
    """Yields the processes of our library; who they are does not matter where they are gone."""
    if run.status_directory.is_dir():
        for path in run.status_directory.glob("*.json"):
            try:
                if path == run.supervisor_status:
                    status: SupervisorStatus | WorkerStatus = load(path, SupervisorStatus)
                else:
                    status = load(path, WorkerStatus)
            except (DamagedFileError, OSError):
                continue
            if process_lives(status.pid, status.process_started_at):
                yield status.pid


def _describe(opened: _Open) -> WritingProcess:
    name, command = "", ""
    try:
        process = psutil.Process(opened.pid)
        name, command = process.name(), " ".join(process.cmdline())
    except psutil.Error:
        # It ended, or is another user's: its number is evidence enough.
        pass
    return WritingProcess(opened.pid, name, command, opened.file)


def _checkpoint_of(file: str) -> str:
    first, _, rest = file.partition("/")
    return first.removesuffix(_TEMPORARY) if rest else owner_of(first)


def _age(files: Files, now: float) -> float:
    """Returns how long ago a checkpoint was last changed."""
    times = [fact.modified_at for fact in files.facts]
    if files.temporary_at is not None:
        times.append(files.temporary_at)
    # A time in the future is that of a clock that was set back, or of another machine's.
    return min((abs(now - at) for at in times), default=math.inf)
