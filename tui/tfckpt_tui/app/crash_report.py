"""What is left of a crash of the app: a report in a file, and in words for the person."""

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
from tfckpt_trainer.rundir.files import make_directory, write_atomic
from tfckpt_trainer.user_directories import NO_HOME, state_directory
from tfckpt_tui.formats.text import clean

_PACKAGES = ("tfckpt-tui", "textual", "rich", "watchdog")


@dataclass(frozen=True)
class Crash:
    """An error that nobody foresaw.

    Attributes:
        summary: Its type and message, safe to show.
        trace: Where it happened, without the values of variables: these may be private.
        report: The file that has it all; None where it could not be written.
    """

    summary: str
    trace: str
    report: Path | None


def take_down(error: BaseException) -> Crash:
    """Writes a report of an error into the state directory."""
    summary = clean(f"{type(error).__name__}: {error}")
    trace = "".join(traceback.format_exception(error))
    facts = [f"{name} {version(name)}" for name in _PACKAGES]
    facts += [f"Python {platform.python_version()}", platform.platform()]
    facts += [f"TERM={os.environ.get('TERM', '')}", time.strftime("%Y-%m-%d %H:%M:%S")]
    report = None
    # What can be told without a file is told all the same.
    with suppress(OSError, TfckptError):
        directory = state_directory()
        if directory is None:
            raise UsageError(NO_HOME)
        path = directory / time.strftime("crash-%Y%m%d-%H%M%S.txt")
        make_directory(path.parent)
        write_atomic(path, ("\n".join(facts) + "\n\n" + trace).encode("utf-8", "replace"))
        report = path
    return Crash(summary, trace, report)
