"""The logs of launched processes: one bounded file each, with a line before each start."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from tfckpt_trainer.errors import DamagedFileError, describe_error
from tfckpt_trainer.launch.options import program_name
from tfckpt_trainer.rundir.event_log import note_event
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import SUPERVISOR, EventKind
from tfckpt_trainer.rundir.storage.files import (
    IrregularFileError,
    open_or_move_aside,
    open_plain,
    open_shared,
    rename,
)
from tfckpt_trainer.rundir.storage.parent_directory import LinkedDirectoryError, LinkedFileError
from tfckpt_trainer.words.clean_text import as_seen

LOG_LIMIT = 32 << 20
"""Size in bytes above which the next start rotates a log; one old log is kept."""

TAIL_BYTES = 16 << 10
"""Bytes that are read from the end of a log to find its last lines."""

ERROR_LINES = 60
"""How many last lines of a log are searched for an error: the end of a traceback."""

LINE_LIMIT = 300
"""How many characters of a line are shown."""

_FLAGS = os.O_RDWR | os.O_APPEND

_IN_THE_WAY = (
    DamagedFileError,
    FileNotFoundError,
    IrregularFileError,
    IsADirectoryError,
    LinkedDirectoryError,
    LinkedFileError,
    NotADirectoryError,
    PermissionError,
)
"""The errors of what others put into a directory; a disk that refuses all has others."""

_SEPARATOR = re.compile(r"^--- \d{4}-\d\d-\d\d \d\d:\d\d:\d\d start \d+: .*$", re.MULTILINE)
_NOISE = re.compile(
    r"[IW]\d{4} \d\d:\d\d:\d|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IW] "
    r"|WARNING: All log messages before absl::InitializeLog|To enable the following instructions:"
)
"""How lines begin that TensorFlow prints below the level of an error."""


def open_log(path: Path, attempt: int, command: Sequence[str]) -> BinaryIO:
    """Opens a log for appending, and writes the line before a new start.

    A log larger than `LOG_LIMIT` is rotated first.

    Raises:
        OSError: It cannot be opened.
    """
    with suppress(FileNotFoundError):
        _rotate(path)
    return _begin(open_shared(path, _FLAGS), attempt, command)


def open_run_log(run: RunDirectory, path: Path, attempt: int, command: Sequence[str]) -> BinaryIO:
    """Opens the log of a process of a run as `open_log` does, whatever lies in its place.

    A log must not prevent a start. What lies there and cannot be written is moved aside. If that
    is refused, the output goes to a new file beside it, or nowhere. The event log says so.

    Raises:
        OSError: The disk is full, or refuses all writes.
    """
    # A log that cannot be rotated grows on.
    with suppress(OSError):
        _rotate(path)
    descriptor, told = _open_anyhow(path)
    if told:
        note_event(run, EventKind.NOTE, told, by=SUPERVISOR)
    return _begin(descriptor, attempt, command)


def _open_anyhow(path: Path) -> tuple[int, str]:
    """Opens a log, or a file in its place; returns its descriptor and what happened, if at all."""
    try:
        return open_or_move_aside(path, _FLAGS)
    except _IN_THE_WAY as error:
        problem = f"{path} cannot be written: {describe_error(error).rstrip('.')}."
    beside = path.with_name(f"{path.name}.{uuid4().hex[:8]}")
    try:
        return open_shared(beside, _FLAGS), f"{problem} The output goes to {beside.name}."
    except _IN_THE_WAY:
        return os.open(os.devnull, os.O_RDWR), f"{problem} The output is not kept."


def _rotate(path: Path) -> None:
    if path.lstat().st_size > LOG_LIMIT:
        rename(path, path.with_name(f"{path.name}.1"))


def _begin(descriptor: int, attempt: int, command: Sequence[str]) -> BinaryIO:
    """Writes the line before a new start into an open log."""
    log = os.fdopen(descriptor, "ab", buffering=0)
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    line = f"--- {stamp} start {attempt}: {program_name(command)}".replace("\n", " ")
    # A full disk must not prevent the start: only this line is missing then.
    with suppress(OSError):
        log.write(_missing_newline(log) + line.encode("utf-8", "replace") + b"\n")
    return log


def last_lines(path: Path, count: int = 8, *, noise: bool = True) -> list[str]:
    """Returns the last lines since the newest start, safe to print on a terminal.

    Empty lines are left out. A log that cannot be read has none.

    Args:
        path: The log.
        count: How many lines at most.
        noise: Whether to keep what TensorFlow prints below the level of an error.
    """
    try:
        with open_plain(path) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - TAIL_BYTES))
            text = file.read(TAIL_BYTES).decode("utf-8", "replace")
    except (OSError, DamagedFileError):
        return []
    latest = _SEPARATOR.split(text)[-1]
    lines = [_plain(line) for line in latest.split("\n")]
    kept = [line for line in lines if line.strip() and (noise or not _NOISE.match(line))]
    return kept[-count:]


def _plain(line: str) -> str:
    shown = as_seen(line).rstrip()
    return shown if len(shown) <= LINE_LIMIT else f"{shown[:LINE_LIMIT]}…"


def _missing_newline(log: BinaryIO) -> bytes:
    """Returns a newline if the last line has none, because a worker was killed."""
    size = os.fstat(log.fileno()).st_size
    return b"\n" if size and os.pread(log.fileno(), 1, size - 1) != b"\n" else b""
