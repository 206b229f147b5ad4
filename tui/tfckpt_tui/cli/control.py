"""Commands that ask a live trainer: save, restore, pause, resume, stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import click
import msgspec

from tfckpt_trainer.errors import LaunchError, NoTrainerError, RefusedError, TfckptError
from tfckpt_trainer.rundir.command_queue import requester
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import Command, CommandKind, CommandState
from tfckpt_tui.cli.main import JsonOption, RunArgument, on_open_run
from tfckpt_tui.cli.output import CommandProgress, print_json, print_line, print_message
from tfckpt_tui.formats import units
from tfckpt_tui.services.report import list_checkpoints
from tfckpt_tui.services.request import DEFAULT_TIMEOUT, ask
from tfckpt_tui.services.restore import plan_restore

THROUGH = "command line"

FORCE_SECONDS = 60.0

END_SECONDS = 5.0
"""How long `stop` waits at least for the end of the processes, once the run has stopped."""


TimeoutOption = click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    default=DEFAULT_TIMEOUT,
    show_default=True,
    help="How long to wait for the outcome.",
)


def waiting(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of a command that waits for its outcome."""
    return click.option(
        "--no-wait", is_flag=True, help="Return at once; the journal tells the outcome."
    )(TimeoutOption(command))


@click.command()
@RunArgument
@waiting
@JsonOption
@on_open_run
def save(run: RunDirectory, no_wait: bool, timeout: float, as_json: bool) -> None:
    """Save a checkpoint now, on all workers at the same step."""
    _ask(run, CommandKind.SAVE, {}, no_wait, timeout, as_json)


@click.command()
@RunArgument
@click.option("--step", type=click.IntRange(min=0), help="Go back to the checkpoint of this step.")
@click.option("--name", metavar="CKPT", help="Go back to the checkpoint of this name.")
@click.option(
    "--partial",
    is_flag=True,
    help="Restore what fits, where the model was changed since; it says what was left out.",
)
@waiting
@JsonOption
@on_open_run
def restore(
    run: RunDirectory,
    step: int | None,
    name: str | None,
    partial: bool,
    no_wait: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Go back to a checkpoint in place; no process restarts, nothing saved is lost."""
    if (step is None) == (name is None):
        raise click.UsageError("Give either --step or --name.")
    plan = plan_restore(run, list_checkpoints(run), step=step, name=name)
    chosen = plan.checkpoint.name
    if plan.given_up:
        branch = "" if plan.starts_branch is None else f"; branch {plan.starts_branch} begins"
        steps = units.count(plan.given_up, "step")
        print_message(f"Going back to {chosen} gives up {steps}{branch}.")
    arguments = {"name": chosen, **({"partial": True} if partial else {})}
    _ask(run, CommandKind.RESTORE, arguments, no_wait, timeout, as_json)


@click.command()
@RunArgument
@waiting
@JsonOption
@on_open_run
def pause(run: RunDirectory, no_wait: bool, timeout: float, as_json: bool) -> None:
    """Pause training on all workers after the same step."""
    _ask(run, CommandKind.PAUSE, {}, no_wait, timeout, as_json)


@click.command()
@RunArgument
@waiting
@JsonOption
@on_open_run
def resume(run: RunDirectory, no_wait: bool, timeout: float, as_json: bool) -> None:
    """Go on after a pause."""
    _ask(run, CommandKind.RESUME, {}, no_wait, timeout, as_json)


@click.command()
@RunArgument
@click.option("--save/--no-save", "with_save", default=True, help="Save before stopping (default).")
@click.option("--force", is_flag=True, help="End the processes if the trainer does not answer.")
@waiting
@JsonOption
@on_open_run
def stop(
    run: RunDirectory,
    with_save: bool,
    force: bool,
    no_wait: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Stop the run on all workers, and wait until a new launch is possible."""
    deadline = time.monotonic() + timeout

    def await_end(stopped: Command) -> None:
        _await_end(run, stopped, max(END_SECONDS, deadline - time.monotonic()))

    try:
        arguments = {"save": with_save}
        _ask(run, CommandKind.STOP, arguments, no_wait, timeout, as_json, then=await_end)
    except RefusedError:
        raise
    except TfckptError as error:
        if not force:
            raise
        _force(run, str(error), as_json)


def _ask(
    run: RunDirectory,
    kind: CommandKind,
    arguments: dict[str, Any],
    no_wait: bool,
    timeout: float,
    as_json: bool,
    then: Callable[[Command], None] | None = None,
) -> None:
    """Asks the trainer, and shows the outcome.

    Args:
        run: The run directory.
        kind: What to do.
        arguments: As `Command.arguments` says.
        no_wait: Whether to return at once.
        timeout: Seconds to wait for the outcome.
        as_json: Whether to print JSON.
        then: Called with the outcome before it is shown.
    """
    command = ask(
        run,
        kind,
        arguments,
        through=THROUGH,
        wait=not no_wait,
        timeout=timeout,
        on_change=CommandProgress(),
    )
    if then is not None and not no_wait:
        then(command)
    if as_json:
        print_json({"command": _as_data(command)})
    elif no_wait:
        print_line(f"Asked for: {command.id}")
    else:
        print_line(command.message)


def _await_end(run: RunDirectory, stopped: Command, timeout: float) -> None:
    """Waits until all processes of a stopped run are gone."""
    from tfckpt_trainer.launch.stop import wait_for_end

    show = CommandProgress()

    def waits_for(alive: Sequence[str]) -> None:
        message = f"Waits for the end of {', '.join(alive)}."
        show(msgspec.structs.replace(stopped, state=CommandState.WORKING, message=message))

    try:
        wait_for_end(run, timeout, waits_for)
    except LaunchError as error:
        raise TfckptError(f"{stopped.message} {error}") from error
    finally:
        show(stopped)


def _as_data(command: Command) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(command)
    for internal in ("schema", "unknown"):
        fields.pop(internal)
    return fields


def _force(run: RunDirectory, reason: str, as_json: bool) -> None:
    from tfckpt_trainer.launch.stop import stop_supervisor

    began = time.monotonic()
    print_message(f"{reason} Ending its processes.")
    warnings: list[str] = []
    by = requester(THROUGH)
    if not stop_supervisor(run, FORCE_SECONDS, by=by, on_warning=warnings.append):
        raise NoTrainerError(f"Nothing runs in {run.root}; there is nothing to stop.")
    message = f"Ended all processes of the run in {time.monotonic() - began:.1f} s."
    if as_json:
        print_json({"stopped": True, "message": message, "warnings": warnings})
    else:
        print_line(message)
    for warning in warnings:
        print_message(f"Done, but: {warning}")
