"""Commands in progress, one line each; failures and verdicts until the user dismisses them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from rich.cells import cell_len
from textual.screen import Screen

from tfckpt_trainer.rundir.records.command import Command, CommandKind, CommandState
from tfckpt_tui.app.protocols import ActionApp, key_of, run_app_of
from tfckpt_tui.app.run_progress import RunProgress
from tfckpt_tui.app.widgets.base.dashboard_layout import most_progress_lines
from tfckpt_tui.app.widgets.base.icons import COMMAND
from tfckpt_tui.app.widgets.base.pane import Pane
from tfckpt_tui.app.widgets.base.styled_text import Span, StyledLine, line
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.background_verifier import VerificationProgress

_MAX_LINES = 8


class Progress(Pane):
    """As many lines as needed; none if there is nothing to show."""

    boxed = False
    can_dismiss = True
    """Whether the screen dismisses failures and verdicts with esc."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._reading: VerificationProgress | None = None

    def show_reading(self, reading: VerificationProgress | None) -> bool:
        """Shows the progress of a verification; returns whether it changed."""
        changed = reading != self._reading
        if changed:
            self._reading = reading
            self.repaint()
        return changed

    def line_count(self, width: int) -> int:
        """Returns the number of lines in a screen of `width` columns."""
        return len(self._lines(width - 2))

    def body(self, width: int, height: int) -> Sequence[StyledLine]:
        """Returns failures, commands in progress, and commands that just ended."""
        del height
        return self._lines(width)

    def _lines(self, width: int) -> list[StyledLine]:
        progress = run_app_of(self).progress
        lines = self._unread_lines(progress, width)
        if lines and self.can_dismiss:
            hint = ("  esc", "key"), (" dismiss", "label")
            room = width - StyledLine(hint).width
            if lines[-1].width <= room:
                lines[-1] = StyledLine((*lines[-1].fitted(room).spans, *hint))
            else:
                lines.append(StyledLine(hint))
        if self._reading is not None:
            lines.append(reading_line(self._reading, key_of(self, "verify")))
        if progress.snapshot is not None:
            at = progress.snapshot.at
            for command in progress.shown_commands():
                lines += _wrapped(self._command_spans(command, at), width)
        return lines[:_MAX_LINES]

    def _unread_lines(self, progress: RunProgress, width: int) -> list[StyledLine]:
        lines: list[StyledLine] = []
        for what, message in progress.failures:
            lines += _failure_of(what, message, width)
        for command in progress.failed_commands():
            what = f"{_name_of(command)} {command.state.value}"
            lines += _failure_of(what, self._message(command), width)
        for command in progress.verdicts():
            if command.result.get("exact"):
                lines += _wrapped(self._command_spans(command, command.requested_at), width)
            else:
                lines += _failure_of(_name_of(command), self._message(command), width)
        return lines

    def _message(self, command: Command) -> str:
        """Returns the message of a command, and what to do next."""
        advice = command.advice
        in_app = advice.in_app(partial(key_of, self)) if advice is not None else ""
        return clean(f"{command.message} {in_app}".strip())

    def _command_spans(self, command: Command, at: float) -> list[Span]:
        sign = COMMAND[command.state]
        spans: list[Span] = [
            (f"{sign.glyph} ", sign.style),
            (_name_of(command), "strong"),
            (": ", "muted"),
            (command.state.value, sign.style),
        ]
        if command.step is not None and command.state is CommandState.AGREED:
            spans.append((f" for step {command.step:,}", "value"))
        if command.worker_count and not command.state.is_final:
            whole = units.count(command.worker_count, "worker")
            told = f"known to {len(command.seen_by)} of {whole}"
            spans += [(" · ", "faint"), (told, "value")]
        spans += _bytes_done(command)
        if command.message:
            spans += [(" · ", "faint"), (self._message(command), "muted")]
        if not command.state.is_final:
            seconds = units.duration(max(0.0, at - command.requested_at))
            spans += [(" · ", "faint"), (seconds, "muted")]
        return spans


class ProgressBar(Progress):
    """The progress on a page or a dialog, above its keys, as high as it needs to be."""

    def on_mount(self) -> None:
        """Shows what is in progress, also for the toasts of a screen that opens now."""
        self.update()

    def on_resize(self) -> None:
        """Fits the height to the new size."""
        self.update()

    def update(self) -> None:
        """Shows the newest state of all commands."""
        screen = self.screen.size
        needed = min(self.line_count(screen.width), most_progress_lines(screen.height))
        self.display = needed > 0
        self.styles.height = needed
        raise_toasts(self.screen, needed)
        self.repaint()


class DialogProgress(ProgressBar):
    """The progress under a dialog, where the dashboard shows it too.

    Esc closes the dialog, so failures and verdicts wait until it is closed.
    """

    can_dismiss = False

    def _unread_lines(self, progress: RunProgress, width: int) -> list[StyledLine]:
        return []


def progress_below(screen: Screen[Any]) -> Iterable[DialogProgress]:
    """Returns the progress of a dialog; none in an app without actions."""
    return (DialogProgress(id="progress"),) if isinstance(screen.app, ActionApp) else ()


def raise_toasts(screen: Screen[Any], lines: int) -> None:
    """Lets the toasts of a screen begin above its keys and so many lines of progress."""
    for toasts in screen.query("ToastRack"):
        toasts.styles.margin = (0, 0, 1 + lines, 0)


def reading_line(reading: VerificationProgress, cancel_key: str) -> StyledLine:
    """Returns progress, rate and remaining time of a verification."""
    part = reading.done / reading.total if reading.total else 0.0
    spans: list[Span] = [
        ("◕ ", "busy"),
        (f"verify {clean(reading.name)}", "strong"),
        (": ", "muted"),
    ]
    spans += [(f"{part:.0%}", "value"), (f" of {units.size(reading.total)}", "value")]
    if reading.rate:
        left = units.duration((reading.total - reading.done) / reading.rate)
        spans += [(" · ", "faint"), (f"{units.size(reading.rate)}/s", "value")]
        spans += [(" · ", "faint"), (f"{left} left", "muted")]
    return line(*spans, (" · ", "faint"), (cancel_key, "key"), (" cancels", "label"))


def _bytes_done(command: Command) -> list[Span]:
    done, total = command.result.get("bytes_done"), command.result.get("bytes_total")
    if not isinstance(done, int) or not isinstance(total, int) or command.state.is_final:
        return []
    return [(" · ", "faint"), (f"{units.size(done)} of {units.size(total)}", "value")]


def _name_of(command: Command) -> str:
    name = command.arguments.get("name")
    if command.kind is CommandKind.RESTORE and isinstance(name, str):
        return f"restore {clean(name)}"
    return command.kind.value


def _failure_of(what: str, message: str, width: int) -> list[StyledLine]:
    return _wrapped([("✗ ", "bad"), (f"{what}: ", "bad"), (message, "value")], width)


def _wrapped(spans: Sequence[Span], width: int) -> list[StyledLine]:
    """Returns as many lines as the words need; those after the first one are indented."""
    lines: list[list[Span]] = [[]]
    used = 0
    for text, style in spans:
        for word in re.findall(r"\S+ *| +", text):
            if used > 2 and used + cell_len(word.rstrip()) > width:
                lines.append([("  ", "")])
                used = 2
            lines[-1].append((word, style))
            used += cell_len(word)
    return [StyledLine(tuple(spans)) for spans in lines]
