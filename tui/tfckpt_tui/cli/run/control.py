"""Commands for a live trainer: save, restore, pause, resume, stop."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from typing import Any

import click
import msgspec

from tfckpt_trainer.errors import LaunchError, NoTrainerError, RefusedError, TfckptError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import (
    Command,
    CommandArguments,
    CommandState,
    PauseArguments,
    RestoreArguments,
    ResumeArguments,
    SaveArguments,
    StopArguments,
)
from tfckpt_tui.cli.completion.checkpoint_names import CHECKPOINT
from tfckpt_tui.cli.completion.names_in_run import HyperparameterName
from tfckpt_tui.cli.main import RunArgument, on_open_run, prints
from tfckpt_tui.cli.output import (
    CommandProgress,
    print_json,
    print_line,
    print_message,
    print_warnings,
)
from tfckpt_tui.formats.hyperparameters import parse_assignments
from tfckpt_tui.reports.control import (
    CommandFacts,
    CommandReport,
    ForcedStopReport,
    NextStartReport,
)
from tfckpt_tui.services.control.force_stop import force_stop, plan_force_stop
from tfckpt_tui.services.control.job_control import cancel_waiting_job, find_waiting_job
from tfckpt_tui.services.control.request import (
    DEFAULT_TIMEOUT,
    FrontEnd,
    NothingRunsError,
    ask,
    require_trainer,
)
from tfckpt_tui.services.control.restore import (
    ChosenStart,
    choose_start,
    describe_plan,
    mismatch_warnings,
    plan_restore_of,
    preview_restore,
)
from tfckpt_tui.services.runs.hyperparameters import read_hyperparameters
from tfckpt_tui.services.runs.launch_form import launch_command

END_SECONDS = 5.0
"""Seconds that `stop` waits for the processes to end, at least."""

TimeoutOption = click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
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
@click.option("--step", type=click.IntRange(min=0), help="Restore the checkpoint with this step.")
@click.option(
    "--name", type=CHECKPOINT, metavar="CKPT", help="Restore the checkpoint with this name."
)
@click.option(
    "--partial",
    is_flag=True,
    help="Restore only the variables that match the model, and list the others.",
)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="NAME=VALUE",
    type=HyperparameterName("="),
    help="Then change a hyperparameter. Give it once for each.",
)
@click.option(
    "--next-start",
    is_flag=True,
    help="For a run that has ended: let its next start continue from the checkpoint.",
)
@waiting
@prints(CommandReport, NextStartReport)
@on_open_run
def restore(
    run: RunDirectory,
    step: int | None,
    name: str | None,
    partial: bool,
    assignments: tuple[str, ...],
    next_start: bool,
    no_wait: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Restore a checkpoint in place. No process restarts, and all checkpoints are kept.

    If the run has ended, choose the checkpoint with --next-start, and launch the run.
    """
    if (step is None) == (name is None):
        raise click.UsageError("Give either --step or --name.")
    values = parse_assignments(assignments)
    if next_start:
        if partial or no_wait:
            raise click.UsageError("--partial and --no-wait need a trainer; not with --next-start.")
        chosen = choose_start(run, name, step=step, values=values, through=FrontEnd.COMMAND_LINE)
        _print_start(run, chosen, as_json)
        return
    try:
        require_trainer(run)
    except NothingRunsError as error:
        target = plan_restore_of(run, step=step, name=name).target.name
        place, quoted = run.shell_word, shlex.quote(target)
        raise NoTrainerError(
            f"No trainer answers in {run.root}. To start from {target}, run `tfckpt-tui restore "
            f"{place} --name {quoted} --next-start`, and then `{launch_command(run)}`."
        ) from error
    if values:
        read_hyperparameters(run).require_possible(values)
    plan, effects = preview_restore(run, step=step, name=name)
    for sentence in (describe_plan(plan), *effects.sentences):
        print_message(sentence)
    arguments = RestoreArguments(name=plan.target.name, partial=partial, values=values)
    send(run, arguments, no_wait, timeout, as_json, has_answered=True)


@click.command()
@RunArgument
@waiting
@prints(CommandReport)
@on_open_run
def pause(run: RunDirectory, no_wait: bool, timeout: float, as_json: bool) -> None:
    """Pause training, after the same step on all workers."""
    send(run, PauseArguments(), no_wait, timeout, as_json)


@click.command()
@RunArgument
@waiting
@prints(CommandReport)
@on_open_run
def resume(run: RunDirectory, no_wait: bool, timeout: float, as_json: bool) -> None:
    """Resume training after a pause."""
    send(run, ResumeArguments(), no_wait, timeout, as_json)


@click.command()
@RunArgument
@click.option(
    "--save/--no-save", "with_save", default=True, help="Save a checkpoint first (default)."
)
@click.option("--force", is_flag=True, help="End the processes if the trainer does not answer.")
@waiting
@prints(CommandReport, ForcedStopReport)
@on_open_run
def stop(
    run: RunDirectory,
    with_save: bool,
    force: bool,
    no_wait: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Stop the run on all workers, and wait until it can be launched again.

    If the batch job of the run waits in the queue of a cluster, cancels the job.
    """
    if find_waiting_job(run) is not None:
        _cancel(run, as_json)
        return
    deadline = time.monotonic() + timeout

    def await_end(stopped: Command) -> None:
        _await_end(run, stopped, max(END_SECONDS, deadline - time.monotonic()))

    try:
        if force:
            # Without a trainer, force does not wait for the supervisor.
            require_trainer(run)
        arguments = StopArguments(save=with_save)
        send(run, arguments, no_wait, timeout, as_json, then=await_end)
    except RefusedError:
        raise
    except TfckptError as error:
        if not force:
            raise
        _force(run, str(error), as_json)


def _print_start(run: RunDirectory, chosen: ChosenStart, as_json: bool) -> None:
    """Prints the checkpoint that the next start continues from, and how to start."""
    name, message = chosen.target.name, chosen.message
    start, warnings = launch_command(run), mismatch_warnings(run, chosen)
    if as_json:
        print_json(
            NextStartReport(
                checkpoint=name,
                message=message,
                launch=start,
                warnings=tuple(warnings),
                values=chosen.values,
            )
        )
    else:
        print_line(message)
        print_warnings(warnings)
        print_message(f"Start it with `{start}`.")


def _cancel(run: RunDirectory, as_json: bool) -> None:
    message = cancel_waiting_job(run, through=FrontEnd.COMMAND_LINE)
    if as_json:
        print_json(ForcedStopReport(stopped=True, message=message, warnings=()))
    else:
        print_line(message)


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


def _await_end(run: RunDirectory, stopped: Command, timeout: float) -> None:
    """Waits until all processes of a stopped run have ended."""
    from tfckpt_trainer.launch.supervision.stop import wait_for_end

    show = CommandProgress()

    def waits_for(alive: Sequence[str]) -> None:
        message = f"Waiting for {', '.join(alive)} to end."
        show(msgspec.structs.replace(stopped, state=CommandState.WORKING, message=message))

    try:
        wait_for_end(run, timeout, waits_for)
    except LaunchError as error:
        raise TfckptError(f"{stopped.message} {error}") from error
    finally:
        show(stopped)


def _facts(command: Command) -> CommandFacts:
    # One that was not carried out is an error, whose message has the advice.
    return msgspec.convert(command, CommandFacts, from_attributes=True)


def _force(run: RunDirectory, reason: str, as_json: bool) -> None:
    plan = plan_force_stop(run)
    what = "Cancelling its batch job" if plan.job is not None else "Ending its processes"
    print_message(f"{reason} {what}.")
    message, warnings = force_stop(run, plan, through=FrontEnd.COMMAND_LINE)
    if as_json:
        print_json(ForcedStopReport(stopped=True, message=message, warnings=tuple(warnings)))
    else:
        print_line(message)
    for warning in warnings:
        print_message(f"Done, but: {warning}")
