"""Asks before a command acts, and tells after ctrl+c whether it did."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from tfckpt_trainer.errors import ExitCode, RefusedError, TfckptError
from tfckpt_tui.cli.output import print_message


def confirm(question: str) -> None:
    """Asks for a yes.

    Raises:
        RefusedError: The answer is no, or there is no terminal.
        TfckptError: It was interrupted.
    """
    if not sys.stdin.isatty():
        raise RefusedError("Nothing was done: there is no terminal to ask on. Give --yes.")
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort:
        # The cursor stands behind the question.
        click.echo(err=True)
        error = TfckptError("Interrupted; nothing was done.")
        error.exit_code = ExitCode.INTERRUPTED
        raise error from None
    if not agreed:
        raise RefusedError("Nothing was done.")


@contextmanager
def explain_interrupt(path: Path) -> Iterator[None]:
    """Replaces Ctrl+C by an error that says whether a new file was written.

    Args:
        path: The file; for a checkpoint its index, which is written last.

    Raises:
        TfckptError: The command was interrupted.
    """
    existed = os.path.lexists(path)
    try:
        yield
    except KeyboardInterrupt:
        is_written = not existed and os.path.lexists(path)
        error = TfckptError(f"Interrupted; {path if is_written else 'nothing'} was written.")
        error.exit_code = ExitCode.INTERRUPTED
        raise error from None


@contextmanager
def telling_interrupt(what: str) -> Iterator[None]:
    """Says what an interrupt of an action leaves, and where to see it.

    Args:
        what: A sentence, or several.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        print_message(f"Interrupted. {what}")
        raise
