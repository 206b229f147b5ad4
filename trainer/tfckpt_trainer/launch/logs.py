"""The logs of processes we start: one file each, bounded, with a line between attempts."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

LOG_LIMIT = 32 << 20
"""Bytes after which a log is put aside at the next start; one earlier log is kept."""

TAIL_BYTES = 8192


def open_log(path: Path, attempt: int, command: Sequence[str]) -> BinaryIO:
    """Opens a log for appending and writes the line that begins a new attempt."""
    if path.exists() and path.stat().st_size > LOG_LIMIT:
        os.replace(path, path.with_name(f"{path.name}.1"))
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)
    log = os.fdopen(descriptor, "ab", buffering=0)
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    log.write(f"--- {stamp} start {attempt}: {shlex.join(command)}\n".encode())
    return log


def last_lines(path: Path, count: int = 8) -> list[str]:
    """Returns the last lines of a log, without those that begin an attempt or are empty."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return []
    latest = text.rpartition("\n--- ")[2]
    lines = [line.rstrip() for line in latest.splitlines()[1:] if line.strip()]
    return lines[-count:]
