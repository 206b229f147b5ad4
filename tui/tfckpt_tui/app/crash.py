"""The report of a crash of the app, and the screen that shows it."""

from __future__ import annotations

import os
import platform
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static

from tfckpt_trainer.errors import TfckptError, UsageError
from tfckpt_trainer.rundir.storage.files import make_directory, write_atomic
from tfckpt_trainer.user_directories import NO_HOME, state_directory
from tfckpt_tui.app.base_app import BaseApp
from tfckpt_tui.app.widgets.base.styled_text import Span, lines_to_content
from tfckpt_tui.formats.text import clean, clean_lines
from tfckpt_tui.settings.config import Config

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


class CrashApp(BaseApp[bool]):
    """Shows a crash; returns whether to open the app again."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r,enter", "leave(True)", "Open again", show=False),
        Binding("q,escape,ctrl+c", "leave(False)", "Leave", show=False, priority=True),
    ]

    def __init__(self, crash: Crash, config: Config) -> None:
        super().__init__(config)
        self._reported = crash

    def compose(self) -> ComposeResult:
        """Makes the text, which scrolls."""
        with VerticalScroll():
            yield Static(lines_to_content(_lines(self._reported)))

    def on_mount(self) -> None:
        """Focuses the text, so that the arrows scroll."""
        self.query_one(VerticalScroll).focus()

    def action_leave(self, again: bool) -> None:
        """Closes the app."""
        self.exit(again)


def _lines(crash: Crash) -> list[tuple[Span, ...]]:
    where: tuple[Span, ...] = (("The report could not be written; copy the text below.", ""),)
    if crash.report is not None:
        where = ((clean(str(crash.report)), "strong"),)
    return [
        (("The app failed. ", "bad"), ("Training continues: the run is not affected.", "strong")),
        (),
        ((crash.summary, "value"),),
        (),
        where,
        (("It contains no data of the run. Please send it, with what you did before.", "muted"),),
        (),
        (("r", "key"), ("  open the app again", "")),
        (("q", "key"), ("  leave; `tfckpt-tui status` and the other commands still work", "")),
        (),
        *(((text, "muted"),) for text in clean_lines(crash.trace)),
    ]
