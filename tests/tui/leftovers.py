"""Finds processes that a test left behind."""

from __future__ import annotations

from pathlib import Path

import psutil


def processes_naming(directory: Path) -> list[psutil.Process]:
    """Processes with the path of a directory in their command."""
    return [process for process in psutil.process_iter() if str(directory) in _words(process)]


def _words(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
