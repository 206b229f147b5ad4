"""Runs a command of the user in a process group of its own, and passes on what it prints."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.priority import lower_priority
from tfckpt_trainer.rundir.heartbeats.process_table import find_process

LONGEST_LINE = 1 << 16
"""Bytes of the last line of standard output that are kept."""

_READ_BYTES = 1 << 16
_POLL_SECONDS = 0.1
_DRAIN_SECONDS = 1.0
"""How long to read what descendants of a command that has ended still print."""

_GRACE_SECONDS = 3.0
"""How long a cancelled command may take to end before it is killed."""


class Captured(msgspec.Struct, frozen=True):
    """How a command ended.

    Attributes:
        exit_code: Its exit status; negative, the number of the signal that ended it.
        last_line: The last line of its standard output that is not empty.
        was_cancelled: Whether it was ended on request.
    """

    exit_code: int
    last_line: bytes
    was_cancelled: bool


def run_captured(
    words: Sequence[str],
    directory: Path,
    on_output: Callable[[bytes], None],
    cancelled: Callable[[], bool],
) -> Captured:
    """Runs a command, without a shell and without input, and waits until it ends.

    Whatever ends the wait, no process of its group is left.

    Args:
        words: The program and its arguments.
        directory: Where it is run.
        on_output: Called with each part of what it prints, on either stream.
        cancelled: Whether to end it.

    Raises:
        TfckptError: It cannot be started.
    """
    try:
        process = subprocess.Popen(
            words,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise TfckptError(f"{words[0]} cannot be run in {directory}: {why}.") from error
    lower_priority(group=process.pid)
    with process:
        try:
            tail, was_cancelled = _read(process, on_output, cancelled)
        finally:
            _end_group(process)
    lines = [line for line in tail.splitlines() if line.strip()]
    return Captured(process.returncode, lines[-1] if lines else b"", was_cancelled)


def _read(
    process: subprocess.Popen[bytes],
    on_output: Callable[[bytes], None],
    cancelled: Callable[[], bool],
) -> tuple[bytes, bool]:
    """Returns the end of standard output, and whether the command was cancelled before its end."""
    tail, ended_at = b"", None
    with selectors.DefaultSelector() as selector:
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                selector.register(stream, selectors.EVENT_READ)
        while selector.get_map() or not _has_ended(process):
            for key, _ in selector.select(_POLL_SECONDS):
                data = os.read(key.fd, _READ_BYTES)
                if not data:
                    selector.unregister(key.fileobj)
                    continue
                on_output(data)
                if key.fileobj is process.stdout:
                    tail = (tail + data)[-LONGEST_LINE:]
            if not selector.get_map():
                time.sleep(_POLL_SECONDS / 10)
            if ended_at is None and _has_ended(process):
                ended_at = time.monotonic()
            if ended_at is not None and time.monotonic() - ended_at > _DRAIN_SECONDS:
                break
            if ended_at is None and cancelled():
                return tail, True
    return tail, False


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has exited; it is not waited for, so that the group keeps its number."""
    found = find_process(process.pid)
    return found is None or found.is_zombie


def _end_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if not _has_ended(process):
            os.killpg(process.pid, signal.SIGTERM)
            deadline = time.monotonic() + _GRACE_SECONDS
            while not _has_ended(process) and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS / 10)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
