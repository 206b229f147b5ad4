"""The command `restore`."""

from __future__ import annotations

import shlex

import click

from tfckpt_trainer.errors import NothingRunsError, NoTrainerError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import RestoreArguments
from tfckpt_tui.cli.completion.checkpoint_names import CHECKPOINT
from tfckpt_tui.cli.completion.names_in_run import HyperparameterName
from tfckpt_tui.cli.confirmation import telling_interrupt
from tfckpt_tui.cli.main import RunArgument, on_open_run, prints
from tfckpt_tui.cli.output import print_json, print_line, print_message, print_warnings
from tfckpt_tui.cli.run.control import send, waiting
from tfckpt_tui.formats.hyperparameters import parse_assignments
from tfckpt_tui.reports.control import CommandReport, NextStartReport
from tfckpt_tui.services.control.request import FrontEnd, require_trainer
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


@click.command()
@RunArgument
@click.option(
    "--step",
    type=click.IntRange(min=0),
    help="Restore the checkpoint with this step; of several, the one that training came from.",
)
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
@click.option(
    "--yes", is_flag=True, expose_value=False, help="For scripts: this command asks nothing."
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
        see = f"`tfckpt-tui ls {run.shell_word}` marks the checkpoint of the next start with ←."
        with telling_interrupt(see):
            chosen = choose_start(
                run, name, step=step, values=values, through=FrontEnd.COMMAND_LINE
            )
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
