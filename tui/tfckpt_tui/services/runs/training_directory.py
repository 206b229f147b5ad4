"""Finds the directory that a process trains into, by its open files and its arguments."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tfckpt_trainer.catalog.directory.checkpoint_files import owner_of
from tfckpt_trainer.catalog.directory.other_formats import find_neighbours, has_keras_file
from tfckpt_trainer.catalog.scan.states import CLOCK_SLACK_SECONDS
from tfckpt_trainer.errors import UsageError
from tfckpt_tui.formats.process_columns import HostProcess
from tfckpt_tui.services.runs.host_processes import directory_of_file
from tfckpt_tui.services.runs.process_watch import attached_processes

_CHECKPOINT_OPTIONS = {"model_dir", "train_dir", "output_dir", "checkpoint_dir"}
_LOG_OPTIONS = {"logdir", "log_dir"}
_OF_KERAS = {"train", "validation"}
"""Directories that the TensorBoard callback of Keras makes in its `log_dir`."""


class TrainingDirectory(NamedTuple):
    """Where a process trains.

    Attributes:
        root: The directory of its checkpoints; without one, that of its event files.
        logdir: The directory of its event files, if they are not below `root`.
    """

    root: Path
    logdir: Path | None


def find_training_directory(pid: int, now: float) -> TrainingDirectory:
    """Returns the directory that a process and its workers train into.

    Args:
        pid: The ID of the process.
        now: Seconds since the epoch.

    Raises:
        UsageError: There is no such process, or it names no directory, or several.
        RefusedError: It belongs to another user.
    """
    processes = attached_processes(pid, now)
    opened, named, logs = map(_outermost, _directories(processes))
    roots = opened or named or _with_checkpoints(logs, _began(processes)) or logs
    if not roots:
        raise UsageError(
            f"{processes[0].title} has no checkpoint or event file open, and its arguments name no "
            f"directory. Name the directory that it trains into: `tfckpt-tui attach DIR --pid "
            f"{pid}`."
        )
    if len(roots) > 1:
        commands = (f"tfckpt-tui attach {shlex.quote(str(root))} --pid {pid}" for root in roots)
        several = f"{processes[0].title} trains into one of several directories. Choose one:"
        raise UsageError("\n  ".join((several, *commands)))
    (root,) = roots
    beside = [log for log in logs if not log.is_relative_to(root)]
    return TrainingDirectory(root, beside[0] if len(beside) == 1 else None)


def check_training_directory(directory: Path, pid: int, now: float) -> None:
    """Refuses a directory if a process surely trains into another one.

    Args:
        directory: The directory that a user named.
        pid: The ID of the process.
        now: Seconds since the epoch.

    Raises:
        UsageError: There is no such process, or it has checkpoints open elsewhere, or it has event
            files open near checkpoints that it saved elsewhere.
        RefusedError: It belongs to another user.
    """
    processes = attached_processes(pid, now)
    opened, _, logs = map(_outermost, _directories(processes))
    roots = opened or _with_checkpoints(logs, _began(processes))
    named = Path(os.path.realpath(directory))
    near = [root for root in roots if root.is_relative_to(named) or named.is_relative_to(root)]
    if roots and not near:
        raise UsageError(
            f"{processes[0].title} trains into {roots[0]}, not into {directory}. Name no "
            f"directory, and its own is found: `tfckpt-tui attach --pid {pid}`."
        )


def _began(processes: Sequence[HostProcess]) -> float:
    return min(process.started_at for process in processes) - CLOCK_SLACK_SECONDS


def if_elsewhere(path: str, pid: int) -> str:
    """Returns what to do where a process has no checkpoint yet, and may save them elsewhere.

    Args:
        path: The directory that it writes to.
        pid: Its process ID.
    """
    return (
        f"If process {pid} saves in another directory than {path}, name that one: "
        f"`tfckpt-tui attach DIR --pid {pid}`."
    )


def _directories(processes: Iterable[HostProcess]) -> tuple[set[Path], set[Path], set[Path]]:
    """Returns the directories of open checkpoints, those of arguments, and those of event files."""
    opened: set[Path] = set()
    arguments: set[Path] = set()
    logs: set[Path] = set()
    for process in processes:
        for path in process.files:
            found = directory_of_file(path)
            if found is not None and found.is_event_file:
                logs.add(_log_directory(Path(found.directory)))
            elif found is not None:
                opened.add(Path(found.directory))
        for option, value in _options(process.command):
            named = Path(os.path.normpath(Path(process.directory, value)))
            if option in _CHECKPOINT_OPTIONS | _LOG_OPTIONS and named.is_dir():
                (logs if option in _LOG_OPTIONS else arguments).add(named)
    return opened, arguments, logs


def _with_checkpoints(logs: Iterable[Path], since: float) -> Sequence[Path]:
    """Returns directories near those of event files that have checkpoints of this process.

    Between two saves, a process has no checkpoint open. Scripts write event files into the
    directory of their checkpoints, below it, or beside it.

    Args:
        logs: The directories of event files.
        since: When the process began.
    """
    near: set[Path] = set()
    for log in logs:
        with suppress(OSError):
            beside = find_neighbours(log.parent).below
            near.update((log, log.parent, *(log.parent / name for name in beside)))
    return _outermost({place for place in near if _has_checkpoint(place, since)})


def _has_checkpoint(place: Path, since: float) -> bool:
    with suppress(OSError), os.scandir(place) as entries:
        return any(
            (owner_of(entry.name) or has_keras_file([entry.name]))
            and entry.stat().st_mtime >= since
            for entry in entries
        )
    return False


def _log_directory(place: Path) -> Path:
    return place.parent if place.name in _OF_KERAS else place


def _outermost(places: set[Path]) -> Sequence[Path]:
    """Returns the directories that are below no other, sorted."""
    return sorted(place for place in places if not places & set(place.parents))


def _options(command: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields the long options of a command with their values, as `--NAME=VALUE` or `--NAME VALUE`.

    Some programs write `-NAME` or dashes in it.
    """
    for place, word in enumerate(command):
        name, equals, value = word.partition("=")
        if name.startswith("-"):
            following = command[place + 1] if place + 1 < len(command) else ""
            value = value if equals else following
            if value:
                yield name.lstrip("-").replace("-", "_"), value
