"""Reads what the system tells of processes of this host."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from tfckpt_trainer.catalog.directory.checkpoint_files import owner_of
from tfckpt_trainer.catalog.directory.other_formats import is_event_file
from tfckpt_trainer.catalog.directory.save_directories import TEMPORARY
from tfckpt_trainer.machine.nvidia import gpu_memory_by_process
from tfckpt_trainer.machine.open_files import OpenFile, open_files
from tfckpt_trainer.rundir.heartbeats.process_table import find_process
from tfckpt_tui.formats.process_columns import HostProcess

_MOST_WORDS = 200
_LONGEST_WORD = 4096
_MOST_FILES = 100
_STANDARD_OUTPUTS = (1, 2)
_DEVICES = ("/dev/console", "/dev/null", "/dev/pts/", "/dev/tty")
_WITH_VALUE = {"-W", "-X"}
"""Options of Python whose value is a word of its own."""


class TrainingFile(NamedTuple):
    """A checkpoint file or an event file.

    Attributes:
        directory: The directory that it belongs to.
        is_event_file: Whether it is an event file.
    """

    directory: str
    is_event_file: bool


class CpuTime(NamedTuple):
    """How much processor time a process had used at a moment."""

    started_at: float
    at: float
    seconds: float


def read_all(pids: Iterable[int], now: float, before: dict[int, CpuTime]) -> Iterator[HostProcess]:
    """Yields those of the processes that live, and that this user may see.

    Args:
        pids: Their process IDs.
        now: Seconds since the epoch.
        before: The processor times of the last look, which is updated.
    """
    gpu_memory: Mapping[int, int] | None = None
    for pid in pids:
        # The driver is asked once, and only if there is a process.
        gpu_memory = gpu_memory_by_process() if gpu_memory is None else gpu_memory
        with suppress(PermissionError):
            process = read_process(pid, now, before, gpu_memory)
            if process is not None:
                yield process


def read_process(
    pid: int,
    now: float,
    before: dict[int, CpuTime] | None = None,
    gpu_memory: Mapping[int, int] | None = None,
) -> HostProcess | None:
    """Returns what the system tells of a process; None if it has ended.

    Args:
        pid: Its process ID.
        now: Seconds since the epoch.
        before: The processor times of the last look, which is updated.
        gpu_memory: Bytes on GPUs by process; None asks the driver.

    Raises:
        PermissionError: This user may not see its files.
    """
    import psutil

    try:
        process = psutil.Process(pid)
        with process.oneshot():
            found = find_process(pid)
            if found is None or found.is_zombie:
                return None
            times = process.cpu_times()
            used = CpuTime(found.started_at, now, times.user + times.system)
            command = tuple(word[:_LONGEST_WORD] for word in process.cmdline()[:_MOST_WORDS])
            opened = list(open_files(pid))
            return HostProcess(
                pid=pid,
                started_at=found.started_at,
                after_boot=found.after_boot,
                script=_script_of(command),
                command=command,
                directory=process.cwd(),
                cpu_percent=_percent(used, {} if before is None else before, pid),
                memory_bytes=process.memory_info().rss,
                gpu_memory_bytes=(
                    gpu_memory_by_process() if gpu_memory is None else gpu_memory
                ).get(pid),
                files=_training_files(opened),
                logs=_logs(opened),
            )
    except psutil.AccessDenied as error:
        raise PermissionError(str(error)) from error
    except (FileNotFoundError, ProcessLookupError, psutil.NoSuchProcess):
        return None


def _percent(used: CpuTime, before: dict[int, CpuTime], pid: int) -> float:
    """Returns the percent of a core that a process used since the last look, or its start."""
    last, before[pid] = before.get(pid), used
    if last is None or last.started_at != used.started_at or last.at >= used.at:
        last = CpuTime(used.started_at, used.started_at, 0.0)
    seconds = used.at - last.at
    return 100 * (used.seconds - last.seconds) / seconds if seconds > 0 else 0.0


def _script_of(command: Sequence[str]) -> str:
    """Returns the script of a Python command, as `train.py` or `-m train`; empty if it has none."""
    if not os.path.basename(next(iter(command), "")).startswith("python"):
        return ""
    words = iter(command[1:])
    for word in words:
        if word == "-m":
            return f"-m {next(words, '')}"
        if word == "-c":
            return ""
        if word in _WITH_VALUE:
            next(words, "")
        elif not word.startswith("-"):
            return word
    return ""


def _training_files(opened: Iterable[OpenFile]) -> tuple[str, ...]:
    paths = {one.path for one in opened if directory_of_file(one.path) is not None}
    return tuple(sorted(paths)[:_MOST_FILES])


def directory_of_file(path: str) -> TrainingFile | None:
    """Returns the directory of a checkpoint file or event file, and which it is; None of others."""
    place, name = os.path.split(path)
    if is_event_file(name):
        return TrainingFile(place, is_event_file=True)
    if place.endswith(TEMPORARY):
        return TrainingFile(os.path.dirname(place), is_event_file=False)
    return TrainingFile(place, is_event_file=False) if owner_of(name) else None


def _logs(opened: Iterable[OpenFile]) -> tuple[str, ...]:
    """Returns the regular files among the standard outputs; each once, in their order."""
    paths = {
        one.descriptor: one.path
        for one in opened
        if one.descriptor in _STANDARD_OUTPUTS
        and not (one.is_deleted or one.path.startswith(_DEVICES))
    }
    return tuple(dict.fromkeys(paths[number] for number in sorted(paths)))
