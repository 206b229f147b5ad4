"""Commands for a live trainer: save, pause, resume; and how all such commands wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import msgspec

from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import (
    Command,
    CommandArguments,
    PauseArguments,
    ResumeArguments,
    SaveArguments,
)
from tfckpt_tui.cli.main import FiniteRange, RunArgument, on_open_run, prints
from tfckpt_tui.cli.output import CommandProgress, print_json, print_line
from tfckpt_tui.reports.control import CommandFacts, CommandReport
from tfckpt_tui.services.control.request import DEFAULT_TIMEOUT, FrontEnd, ask

TimeoutOption = click.option(
    "--timeout",
    type=FiniteRange(min=0.1),
    metavar="SECONDS",
    default=DEFAULT_TIMEOUT,
    show_default=True,
    help="How long to wait for the outcome.",
)


def waiting(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of commands that wait for their outcome."""
    return click.option(
        "--no-wait", is_flag=True, help="Return at once; see `tfckpt-tui journal` for the outcome."
    )(TimeoutOption(command))


@click.command()
@RunArgument
@waiting
@prints(CommandReport)
@on_open_run
def save(run: RunDirectory, no_wait: bool, timeout: float, as_json: bool) -> None:
    """Save a checkpoint now, at the same step on all workers."""
    send(run, SaveArguments(), no_wait, timeout, as_json)


@click.command()
@RunArgument
@waiting
@prints(CommandReport)
@on_open_run
def pause(run: RunDirectory, no_wait: bool, timeout: float, as_json: bool) -> None:
    """Pause training, after the same step on all workers.

    It stays paused if its workers are restarted or its job is requeued. A launch trains.
    """
    send(run, PauseArguments(), no_wait, timeout, as_json)


@click.command()
@RunArgument
@waiting
@prints(CommandReport)
@on_open_run
def resume(run: RunDirectory, no_wait: bool, timeout: float, as_json: bool) -> None:
    """Resume training after a pause."""
    send(run, ResumeArguments(), no_wait, timeout, as_json)


def send(
    run: RunDirectory,
    arguments: CommandArguments,
    no_wait: bool,
    timeout: float,
    as_json: bool,
    then: Callable[[Command], None] | None = None,
    has_answered: bool = False,
) -> None:
    """Sends a command to the trainer, and prints its outcome.

    Args:
        run: The run directory.
        arguments: The arguments of the command.
        no_wait: Whether to return at once.
        timeout: Seconds to wait for the outcome.
        as_json: Whether to print JSON.
        then: Called with the outcome before it is printed.
        has_answered: Whether the trainer answered just now.
    """
    command = ask(
        run,
        arguments,
        through=FrontEnd.COMMAND_LINE,
        wait=not no_wait,
        timeout=timeout,
        on_change=CommandProgress(),
        has_answered=has_answered,
    )
    if then is not None and not no_wait:
        then(command)
    if as_json:
        print_json(CommandReport(command=_facts(command)))
    elif no_wait:
        print_line(f"Requested: {command.id}")
    else:
        print_line(command.message)


def _facts(command: Command) -> CommandFacts:
    # One that was not carried out is an error, whose message has the advice.
    return msgspec.convert(command, CommandFacts, from_attributes=True)
