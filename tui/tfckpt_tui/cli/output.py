"""What commands print: data on standard output, words on standard error, nothing raw."""

from __future__ import annotations

import io
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from tfckpt_trainer.rundir.documents import SCHEMA
from tfckpt_trainer.rundir.records.command import Command
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean

_CLEAR_LINE = "\r\x1b[K"


def prepare_streams() -> None:
    """Makes sure that a character which the locale lacks is no reason to fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def why_no_app() -> str:
    """Returns why the app cannot be drawn here, and what to do instead; empty if it can."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return (
            "The app needs a terminal. Use `--detach` to start without it, and "
            "`tfckpt-tui status RUN --watch` to follow the run as plain text."
        )
    if os.environ.get("TERM", "dumb") in {"dumb", "unknown"}:
        return (
            "This terminal (TERM=dumb) cannot show the app; follow the run as plain text with "
            "`tfckpt-tui status RUN --watch`."
        )
    return ""


def drop_output() -> None:
    """Lets nothing more be written to standard output: its reader has left."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def print_json(report: dict[str, Any], *, one_line: bool = False) -> None:
    """Prints a report as JSON, with the version of its schema.

    All of it is ASCII, so that a name of any bytes can be told and no terminal acts on it.

    Args:
        report: Plain data.
        one_line: For reports that follow one another, each on a line of its own.
    """
    data = json.dumps({"schema": SCHEMA, **report}, indent=None if one_line else 2)
    sys.stdout.write(data + "\n")


def print_line(text: str = "") -> None:
    """Prints one line of data."""
    sys.stdout.write(clean(text) + "\n")


def print_words(text: str) -> None:
    """Tells a person something, beside the data."""
    sys.stderr.write(clean(text) + "\n")


def print_warnings(warnings: Sequence[str]) -> None:
    """Prints what else the reader has to know about an action that is done."""
    for warning in warnings:
        print_words(f"Done, but: {warning}")


def print_error(text: str) -> None:
    """Tells a person what went wrong; lines of a longer message stay apart."""
    for number, part in enumerate(text.splitlines() or [""]):
        sys.stderr.write(("tfckpt-tui: " if number == 0 else "") + clean(part) + "\n")


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], right: set[int]) -> None:
    """Prints aligned columns.

    Args:
        header: Their names.
        rows: The cells.
        right: Which columns are numbers, aligned to the right.
    """
    cells = [[clean(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [list(header), *cells]) for i in range(len(header))]
    for row in [list(header), *cells]:
        parts = [
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        sys.stdout.write("  ".join(parts).rstrip() + "\n")


class Meter:
    """Shows on a terminal how far reading is, how fast, and what is left; else nothing."""

    _EVERY_SECONDS = 0.1

    def __init__(self, label: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._label = label
        self._clock = clock
        self._began = self._shown_at = clock()
        self._shown = sys.stderr.isatty()

    def __call__(self, done: int, total: int) -> None:
        """Shows `done` of `total` bytes, some times a second."""
        now = self._clock()
        if not self._shown or now - self._shown_at < self._EVERY_SECONDS:
            return
        self._shown_at = now
        rate = done / max(now - self._began, 1e-6)
        left = units.duration((total - done) / rate) if rate else "unknown"
        text = f"{self._label}: {units.size(done)} of {units.size(total)}"
        text += f", {units.size(rate)}/s, {left} left"
        sys.stderr.write(_CLEAR_LINE + clean(text)[:78])
        sys.stderr.flush()

    def close(self) -> None:
        """Takes the line away."""
        if self._shown:
            sys.stderr.write(_CLEAR_LINE)
            sys.stderr.flush()


class Progress:
    """Shows on a terminal what becomes of a command; says nothing where there is none."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()

    def __call__(self, command: Command) -> None:
        """Shows the newest state of `command` in place of the one before."""
        if self._shown:
            seen = f" {len(command.seen_by)}/{command.worker_count}" if command.worker_count else ""
            text = f"{command.kind.value}: {command.state.value}{seen} {command.message}"
            sys.stderr.write(_CLEAR_LINE + clean(text)[:78])
            sys.stderr.write(_CLEAR_LINE if command.state.is_final else "")
            sys.stderr.flush()
