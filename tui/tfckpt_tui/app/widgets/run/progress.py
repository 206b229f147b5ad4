"""Commands in progress, one line each, and failures until the user dismisses them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len

from tfckpt_trainer.rundir.records.command import Command, CommandKind, CommandState
from tfckpt_tui.app.widgets.base.icons import COMMAND
from tfckpt_tui.app.widgets.base.pane import Pane
from tfckpt_tui.app.widgets.base.styled_text import Line, Span, line
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.background_verifier import VerificationProgress
from tfckpt_tui.monitor.snapshot import RunSnapshot

_MAX_LINES = 8
_DONE_SECONDS = 8.0


class Progress(Pane):
    """As many lines as needed; none if there is nothing to show."""

    boxed = False

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._dismissed: set[str] = set()
        self._failures: list[tuple[str, str]] = []
        self._reading: VerificationProgress | None = None

    @property
    def has_failures(self) -> bool:
        """Whether failures are shown."""
        return bool(self._failures) or bool(self._failed_commands())

    def report_failure(self, what: str, message: str) -> None:
        """Shows that an action of the app failed; both texts are safe to show."""
        self._failures.append((what, message))
        self.repaint()

    def show_reading(self, reading: VerificationProgress | None) -> bool:
        """Shows the progress of a verification; returns whether it changed."""
        changed = reading != self._reading
        if changed:
            self._reading = reading
            self.repaint()
        return changed

    def dismiss_failures(self) -> None:
        """Removes all failures."""
        self._failures.clear()
        self._dismissed |= {command.id for command in self._failed_commands()}
        self.repaint()

    def line_count(self, width: int) -> int:
        """Returns the number of lines in a screen of `width` columns."""
        return len(self._lines(width - 2))

    def body(self, width: int, height: int) -> Sequence[Line]:
        """Returns failures, commands in progress, and commands that just ended."""
        del height
        return self._lines(width)

    def _lines(self, width: int) -> list[Line]:
        lines: list[Line] = []
        for what, message in self._failures:
            lines += _wrapped(what, message, width)
        for command in self._failed_commands():
            lines += _wrapped(
                f"{_name_of(command)} {command.state.value}", clean(command.message), width
            )
        if lines:
            hint = ("  esc", "key"), (" dismiss", "label")
            room = width - Line(hint).width
            if lines[-1].width <= room:
                lines[-1] = Line((*lines[-1].fitted(room).spans, *hint))
            else:
                lines.append(Line(hint))
        if self._reading is not None:
            lines.append(reading_line(self._reading, "v"))
        snapshot = self.snapshot
        if snapshot is not None:
            lines += [_command_line(command, snapshot) for command in snapshot.pending]
            lines += [_command_line(command, snapshot) for command in snapshot.working]
            lines += [
                _command_line(command, snapshot)
                for command in _done_and_valid(snapshot.finished)
                if snapshot.at - _ended_at(command) < _DONE_SECONDS
            ]
        return lines[:_MAX_LINES]

    def _failed_commands(self) -> list[Command]:
        finished = self.snapshot.finished if self.snapshot else ()
        return [
            command
            for command in finished
            if command.state is not CommandState.DONE and command.id not in self._dismissed
        ]


def _done_and_valid(finished: Iterable[Command]) -> list[Command]:
    """Returns the commands that were carried out, without prunes that were undone since."""
    done = [command for command in finished if command.state is CommandState.DONE]
    undone = {c.result.get("trash") for c in done if c.kind is CommandKind.UNDO} - {None}
    return [
        command
        for command in done
        if command.kind is not CommandKind.PRUNE or command.result.get("trash") not in undone
    ]


def reading_line(reading: VerificationProgress, cancel_key: str) -> Line:
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


def _command_line(command: Command, snapshot: RunSnapshot) -> Line:
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
        told = f"{len(command.seen_by)} of {command.worker_count} workers know"
        spans += [(" · ", "faint"), (told, "value")]
    spans += _bytes_done(command)
    if command.message:
        spans += [(" · ", "faint"), (clean(command.message), "muted")]
    if not command.state.is_final:
        seconds = units.duration(max(0.0, snapshot.at - command.requested_at))
        spans += [(" · ", "faint"), (seconds, "muted")]
    return line(*spans)


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


def _ended_at(command: Command) -> float:
    return command.history[-1].at if command.history else command.requested_at


def _wrapped(what: str, message: str, width: int) -> list[Line]:
    """Returns the lines of a failure."""
    lines: list[Line] = []
    spans: list[Span] = [("✗ ", "bad"), (f"{what}: ", "bad")]
    used = Line(tuple(spans)).width
    for word in message.split(" "):
        size = cell_len(word)
        if used + size + 1 > width and used > 2:
            lines.append(Line(tuple(spans)))
            spans, used = [("  ", "")], 2
        spans.append((word + " ", "value"))
        used += size + 1
    lines.append(Line(tuple(spans)))
    return lines
