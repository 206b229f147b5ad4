"""Output of commands: data on standard output, messages on standard error, all cleaned."""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec

from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import cell_width, clean, cut, has_single_cells, pad
from tfckpt_tui.reports.base import Report

if TYPE_CHECKING:
    from tfckpt_trainer.rundir.records.command import Command

_CLEAR_LINE = "\r\x1b[K"
_PROGRESS_WIDTH = 78


def prepare_streams() -> None:
    """Makes printing never fail: because of a character, or of a stream that is closed.

    A job of cron may have closed streams. They become `/dev/null`: else, the first file that is
    opened would get what is printed.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8"))
    # Characters that the locale cannot encode are replaced.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def app_unavailable_reason() -> str:
    """Returns why the app cannot run here, and what to do instead; empty if it can."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return (
            "The app needs a terminal. Use `--detach` to launch without it, and "
            "`tfckpt-tui status RUN --watch` to follow the run as plain text."
        )
    if os.environ.get("TERM", "dumb") in {"dumb", "unknown"}:
        return (
            "This terminal (TERM=dumb) cannot show the app. Use `tfckpt-tui status RUN --watch` to "
            "follow the run as plain text."
        )
    return ""


def discard_output() -> None:
    """Discards further output, after the reader of standard output closed it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def print_before_acting(print_plan: Callable[[], None]) -> None:
    """Prints what a command is about to do; it does so even if nobody reads to the end."""
    try:
        print_plan()
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()


def print_json(report: Report, *, one_line: bool = False) -> None:
    """Prints a report as JSON.

    The output is ASCII, so any file name can be printed and no terminal interprets it.

    Args:
        report: The document.
        one_line: Whether to print one line per report, for several reports in a row.
    """
    if one_line:
        import json

        sys.stdout.write(json.dumps(msgspec.to_builtins(report)) + "\n")
    else:
        sys.stdout.writelines(_pieces(report))


def _pieces(report: Report) -> Iterator[str]:
    """Yields the lines of a document; of a long list, one item is in memory at a time."""
    config = report.__struct_config__
    fields: list[tuple[str | None, Any]] = [(config.tag_field, config.tag)]
    fields += [(name, getattr(report, name)) for name in report.__struct_fields__]
    start = "{"
    for name, value in fields:
        if value is msgspec.UNSET:
            continue
        yield f'{start}\n  "{name}": '
        start = ","
        if isinstance(value, Sequence) and not isinstance(value, str):
            yield from _list_pieces(value)
        else:
            yield _indented(value, 2)
    yield "\n}\n"


def _list_pieces(items: Sequence[object]) -> Iterator[str]:
    start = "["
    for item in items:
        yield f"{start}\n    {_indented(item, 4)}"
        start = ","
    yield "\n  ]" if start == "," else "[]"


def _indented(value: object, by: int) -> str:
    # Imported here: commands that print text start without it.
    import json

    plain = msgspec.to_builtins(value)
    try:
        # A third of the time of `json.dumps` with `indent`.
        text = msgspec.json.format(json.dumps(plain), indent=2)
    except msgspec.DecodeError:
        # NaN and infinity are no JSON.
        text = json.dumps(plain, indent=2)
    return text.replace("\n", "\n" + " " * by)


def print_line(text: str = "") -> None:
    """Prints one line of data."""
    sys.stdout.write(clean(text) + "\n")


def print_message(text: str) -> None:
    """Prints a message to standard error."""
    sys.stderr.write(clean(text) + "\n")


def print_warnings(warnings: Sequence[str]) -> None:
    """Prints what else the reader has to know about an action that is done."""
    for warning in warnings:
        print_message(f"Done, but: {warning}")


def print_error(text: str) -> None:
    """Prints an error to standard error; its further lines are indented.

    Any other end of a line is part of a name, and must not look as if the program said more.
    """
    first, *further = text.split("\n  ")
    sys.stderr.write(f"tfckpt-tui: {clean(first)}\n")
    sys.stderr.writelines(f"  {clean(line)}\n" for line in further)


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]], right: set[int]) -> None:
    """Prints aligned columns.

    Args:
        header: Headings.
        rows: Cells of each row.
        right: Positions of the columns that are aligned to the right, such as numbers.
    """
    widths, lines = [0] * len(header), []
    for row in chain([header], rows):
        cells = list(map(clean, row))
        # One text takes less memory than a list; no cell has a tab.
        line = "\t".join(cells)
        measure = len if has_single_cells(line) else cell_width
        widths = list(map(max, widths, map(measure, cells)))
        lines.append(line)
    signs = [">" if place in right else "<" for place in range(len(header))]
    # Pads the cells of most lines in a fifth of the time.
    form = "  ".join(f"{{:{sign}{width}}}" for sign, width in zip(signs, widths, strict=True))
    for line in lines:
        cells = line.split("\t")
        if has_single_cells(line):
            text = form.format(*cells)
        else:
            text = "  ".join(map(pad, cells, widths, signs))
        sys.stdout.write(text.rstrip() + "\n")


def print_markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table of Markdown, to be pasted into a report; its columns are aligned."""
    # Imported here: few commands write it.
    from tfckpt_tui.formats import markdown

    titles, *cells = ([clean(cell).replace("|", "\\|") for cell in row] for row in (header, *rows))
    for line in markdown.table(titles, cells):
        sys.stdout.write(line + "\n")


class ReadProgress:
    """Shows the progress of reading on a terminal: bytes, rate and time left."""

    _EVERY_SECONDS = 0.1

    def __init__(self, label: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._label = label
        self._clock = clock
        self._began = self._shown_at = clock()
        self._shown = sys.stderr.isatty()

    def announce(self) -> None:
        """Shows what begins, until there are bytes to show."""
        if self._shown:
            sys.stderr.write(_CLEAR_LINE + cut(clean(f"{self._label} …"), _PROGRESS_WIDTH))
            sys.stderr.flush()

    def __call__(self, done: int, total: int) -> None:
        """Shows `done` of `total` bytes, at most ten times a second."""
        now = self._clock()
        if not self._shown or now - self._shown_at < self._EVERY_SECONDS:
            return
        self._shown_at = now
        rate = done / max(now - self._began, 1e-6)
        left = units.duration((total - done) / rate) if rate else "unknown"
        text = f"{self._label}: {units.size(done)} of {units.size(total)}"
        text += f", {units.size(rate)}/s, {left} left"
        sys.stderr.write(_CLEAR_LINE + cut(clean(text), _PROGRESS_WIDTH))
        sys.stderr.flush()

    def sum_to(self, total: int) -> Callable[[int], None]:
        """Returns a function that takes the bytes done since its last call, and shows their sum."""
        done = 0

        def add(size: int) -> None:
            nonlocal done
            done += size
            self(done, total)

        return add

    def close(self) -> None:
        """Clears the line."""
        if self._shown:
            sys.stderr.write(_CLEAR_LINE)
            sys.stderr.flush()


class StepProgress:
    """Shows the progress of work in phases: one line on a terminal, else a line per phase."""

    def __init__(self) -> None:
        self._on_terminal = sys.stderr.isatty()
        self._phase = ""

    def __call__(self, text: str) -> None:
        """Shows what is being done; the phase is the text before the colon."""
        phase = text.partition(":")[0]
        if self._on_terminal:
            sys.stderr.write(_CLEAR_LINE + cut(clean(text), _PROGRESS_WIDTH))
            sys.stderr.flush()
        elif phase != self._phase:
            print_message(text)
        self._phase = phase

    def close(self) -> None:
        """Clears the line."""
        if self._on_terminal:
            sys.stderr.write(_CLEAR_LINE)
            sys.stderr.flush()


class CommandProgress:
    """Shows the progress of a command on a terminal."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()

    def __call__(self, command: Command) -> None:
        """Shows the current state of `command`."""
        if self._shown:
            seen = f" {len(command.seen_by)}/{command.worker_count}" if command.worker_count else ""
            text = f"{command.kind.value}: {command.state.value}{seen} {command.message}"
            sys.stderr.write(_CLEAR_LINE + cut(clean(text), _PROGRESS_WIDTH))
            sys.stderr.write(_CLEAR_LINE if command.state.is_final else "")
            sys.stderr.flush()
