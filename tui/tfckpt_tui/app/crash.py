"""The report of a crash of the app."""

from __future__ import annotations

import os
import platform
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from tfckpt_trainer.errors import TfckptError, UsageError
from tfckpt_trainer.machine.user_directories import NO_HOME, state_directory
from tfckpt_trainer.rundir.storage.files import make_directory, write_atomic
from tfckpt_tui.formats.text import clean

_PACKAGES = ("tfckpt-tui", "textual", "rich", "watchdog")


@dataclass(frozen=True)
class Crash:
    """An unexpected error.

    Attributes:
        summary: Its type and message, safe to show.
        trace: The stack trace without values of variables, which may be private.
        report: The file with the report; None if it could not be written.
    """

    summary: str
    trace: str
    report: Path | None


def report_crash(error: BaseException) -> Crash:
    """Writes a report of an error into the state directory."""
    summary = clean(f"{type(error).__name__}: {error}")
    trace = "".join(traceback.format_exception(error))
    facts = [f"{name} {version(name)}" for name in _PACKAGES]
    facts += [f"Python {platform.python_version()}", platform.platform()]
    facts += [f"TERM={os.environ.get('TERM', '')}", time.strftime("%Y-%m-%d %H:%M:%S")]
    report = None
    # The screen shows the crash even if the file cannot be written.
    with suppress(OSError, TfckptError):
        directory = state_directory()
        if directory is None:
            raise UsageError(NO_HOME)
        path = directory / time.strftime("crash-%Y%m%d-%H%M%S.txt")
        make_directory(path.parent)
        write_atomic(path, ("\n".join(facts) + "\n\n" + trace).encode("utf-8", "replace"))
        report = path
    return Crash(summary, trace, report)
