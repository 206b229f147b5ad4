"""Which processes may be writing to a directory: trainers with and without this library.

TensorFlow opens the files of a checkpoint only while it writes or reads them. Between two saves a
trainer shows only by other files that it writes, such as event files. So without evidence there
may still be a trainer. Processes of other machines are not visible, nor those of other users
unless this process runs as root.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from tfckpt_trainer.catalog.directory.checkpoint_files import CheckpointFiles, FileScanner, owner_of
from tfckpt_trainer.catalog.directory.other_formats import is_event_file
from tfckpt_trainer.catalog.directory.save_directories import TEMPORARY
from tfckpt_trainer.catalog.scan.states import CLOCK_SLACK_SECONDS, QUIET_SECONDS, quiet_seconds_of
from tfckpt_trainer.errors import DamagedFileError, TfckptError
from tfckpt_trainer.machine.open_files import open_files
from tfckpt_trainer.rundir.heartbeats.process_ids import is_pid_valid_here
from tfckpt_trainer.rundir.heartbeats.process_table import process_lives
from tfckpt_trainer.rundir.heartbeats.reading import read_workers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.rundir.records.run import SupervisorStatus
from tfckpt_trainer.rundir.records.worker import WorkerStatus
from tfckpt_trainer.rundir.storage.documents import load, load_if_exists
from tfckpt_trainer.rundir.storage.filesystems import is_network_file_system


class WritingProcess(NamedTuple):
    """A process of this machine that has a file of the directory open for writing.

    Attributes:
        command: Its command line.
        file: One of the files, relative to the directory.
    """

    pid: int
    name: str
    command: str
    file: str


class ForeignWriters(msgspec.Struct, frozen=True):
    """The evidence that a trainer without this library writes to a directory.

    Attributes:
        processes: Processes that write there now, other than this one and workers of this
            library.
        fresh_seconds: Seconds since a checkpoint file last changed; None if that is so long ago
            that no save can be under way.
        quiet_seconds: Seconds after its last change for which a file counts as fresh.
        open_checkpoints: Checkpoints with a file that another process has open, even for reading.
        fresh_checkpoints: Checkpoints that changed so recently that a save may be under way.
        unseen_processes: Number of processes whose open files may not be listed.
        other_machines: Whether processes of other machines may write there.
    """

    processes: tuple[WritingProcess, ...]
    fresh_seconds: float | None
    open_checkpoints: frozenset[str]
    unseen_processes: int = 0
    other_machines: bool = False
    fresh_checkpoints: frozenset[str] = frozenset()
    quiet_seconds: float = QUIET_SECONDS

    @property
    def wait_seconds(self) -> int:
        """After how many seconds no file counts as fresh, if none changes until then."""
        return max(1, math.ceil(self.quiet_seconds - (self.fresh_seconds or 0.0)))

    @property
    def in_use(self) -> frozenset[str]:
        """Checkpoints that a trainer may be reading or writing; a prune leaves them alone."""
        return self.open_checkpoints | self.fresh_checkpoints

    @property
    def is_likely(self) -> bool:
        """Whether there is evidence of a live trainer."""
        return bool(self.processes) or self.fresh_seconds is not None


class _Open(NamedTuple):
    """A file that a process has open; its path is relative to the directory."""

    pid: int
    file: str
    writes: bool


def foreign_writers(run: RunDirectory, now: float) -> ForeignWriters:
    """Collects the evidence; a few hundred processes take some milliseconds.

    Args:
        run: The directory.
        now: Seconds since the epoch.

    Raises:
        OSError: The directory cannot be read.
    """
    opened, unseen = _open_files(os.path.realpath(run.root))
    names = _checkpoints_of(opened)
    quiet = quiet_seconds_of(run.root)
    files = FileScanner(run.root, names | _perhaps_fresh(run.root, now, quiet)).scan()
    fresh = {
        name: age
        for name, checkpoint in files.items()
        if (age := _age(checkpoint, now)) <= quiet
        and _shows_save(checkpoint)
        and not _was_made_here(run, checkpoint)
    }
    return ForeignWriters(
        processes=_writers(run, opened, files),
        fresh_seconds=min(fresh.values(), default=None),
        open_checkpoints=frozenset(names & files.keys()),
        unseen_processes=unseen,
        other_machines=is_network_file_system(run.root),
        fresh_checkpoints=frozenset(fresh),
        quiet_seconds=quiet,
    )


def writing_processes(run: RunDirectory) -> tuple[WritingProcess, ...]:
    """Returns the processes that write to a directory now, as `ForeignWriters.processes`.

    Unlike `foreign_writers`, lists the directory only if a file of a checkpoint is open.

    Args:
        run: The directory.

    Raises:
        OSError: The directory cannot be read.
    """
    return _writers_among(run, _open_files(os.path.realpath(run.root))[0])


def training_processes(run: RunDirectory) -> tuple[WritingProcess, ...]:
    """Returns the processes that write checkpoints or event files there now, as trainers do.

    Others may have a log open, or what an editor keeps.

    Args:
        run: The directory.

    Raises:
        OSError: The directory cannot be read.
    """
    opened, _ = _open_files(os.path.realpath(run.root))
    kept = [one for one in opened if _checkpoint_of(one.file) or is_event_file(one.file)]
    return _writers_among(run, kept)


def _writers_among(run: RunDirectory, opened: Sequence[_Open]) -> tuple[WritingProcess, ...]:
    names = _checkpoints_of(opened) - {""}
    return _writers(run, opened, FileScanner(run.root, names).scan() if names else {})


def _writers(
    run: RunDirectory, opened: Iterable[_Open], files: Mapping[str, CheckpointFiles]
) -> tuple[WritingProcess, ...]:
    """Describes the processes of other programs among those that have files open for writing."""
    ours = {os.getpid(), *own_pids(run)}
    control = f"{run.control.name}/"
    commands = {f"{name}{TEMPORARY}/" for name, checkpoint in files.items() if checkpoint.writer}
    writers: dict[int, _Open] = {}
    for one in opened:
        # Files in `.tfckpt/` are written by this library or by processes that it launched.
        is_own = one.pid in ours or one.file.startswith((control, *commands))
        if one.writes and not is_own:
            writers.setdefault(one.pid, one)
    return tuple(map(_describe, writers.values()))


def _checkpoints_of(opened: Iterable[_Open]) -> set[str]:
    """Returns the checkpoints of files that other processes have open."""
    return {_checkpoint_of(one.file) for one in opened if one.pid != os.getpid()}


def is_trainer_gone(run: RunDirectory) -> bool:
    """Whether every process that trained here with this library has ended for certain.

    That is certain only of processes of this machine, in a directory that no other machine
    writes to. Without any heartbeat nothing is known.
    """
    if is_network_file_system(run.root):
        return False
    workers = read_workers(run)
    return bool(workers) and not any(
        not worker.namespace or not is_pid_valid_here(worker) or process_lives(worker.process)
        for worker in workers
    )


def _open_files(root: str) -> tuple[list[_Open], int]:
    """Returns the open files below `root`, and how many processes could not be checked."""
    import psutil

    files: list[_Open] = []
    unseen = 0
    for pid in psutil.pids():
        try:
            files += [
                _Open(pid, opened.path.removeprefix(f"{root}/"), opened.writes)
                for opened in open_files(pid, f"{root}/")
            ]
        except (FileNotFoundError, ProcessLookupError, psutil.NoSuchProcess):
            # It has ended.
            continue
        except (OSError, psutil.Error):
            unseen += 1
    return files, unseen


def own_pids(run: RunDirectory) -> Iterator[int]:
    """Yields the live processes of this library, by their heartbeats."""
    if run.status_directory.is_dir():
        for path in run.status_directory.glob("*.json"):
            try:
                if path == run.supervisor_status:
                    status: SupervisorStatus | WorkerStatus = load(path, SupervisorStatus)
                else:
                    status = load(path, WorkerStatus)
            except (DamagedFileError, OSError):
                continue
            if process_lives(status.process):
                yield status.pid


def _describe(opened: _Open) -> WritingProcess:
    import psutil

    name, command = "", ""
    try:
        process = psutil.Process(opened.pid)
        name, command = process.name(), " ".join(process.cmdline())
    except psutil.Error:
        # It has ended, or belongs to another user: its number is enough.
        pass
    return WritingProcess(opened.pid, name, command, opened.file)


def _perhaps_fresh(root: Path, now: float, quiet: float) -> set[str]:
    """Returns the checkpoints with a fresh file, or with one whose own time is not enough."""
    names = set()
    with os.scandir(root) as entries:
        for entry in entries:
            name = owner_of(entry.name)
            if not name or name in names:
                continue
            with suppress(FileNotFoundError):
                is_file = entry.is_file(follow_symlinks=False)
                if not is_file or abs(now - entry.stat(follow_symlinks=False).st_mtime) <= quiet:
                    names.add(name)
    return names


def _checkpoint_of(file: str) -> str:
    first, _, rest = file.partition("/")
    return first.removesuffix(TEMPORARY) if rest else owner_of(first)


def _shows_save(files: CheckpointFiles) -> bool:
    """Whether a save may have changed files: other programs have files of such names too."""
    return files.temporary_at is not None or files.has_index_and_data


def _was_made_here(run: RunDirectory, files: CheckpointFiles) -> bool:
    """Whether a command of this library made it or makes it, and nothing changed it since."""
    if files.writer:
        return True
    try:
        record = load_if_exists(run.record(files.name), CheckpointRecord)
    except (TfckptError, OSError):
        return False
    if record is None or record.derived is None or files.temporary_at is not None:
        return False
    latest = record.saved_at + CLOCK_SLACK_SECONDS
    return all(fact.modified_at <= latest for fact in files.facts)


def _age(files: CheckpointFiles, now: float) -> float:
    """Returns the seconds since a checkpoint last changed."""
    times = [fact.modified_at for fact in files.facts]
    if files.temporary_at is not None:
        times.append(files.temporary_at)
    # A time in the future comes from a clock that was set back, or from another machine.
    return min((abs(now - at) for at in times), default=math.inf)
