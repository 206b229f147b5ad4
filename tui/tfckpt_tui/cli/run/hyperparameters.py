"""Show the hyperparameters of a run, and change them while it trains."""

from __future__ import annotations

import time

import click

from tfckpt_trainer.errors import TfckptError, UsageError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.hyperparameter import problem_of_values
from tfckpt_tui.cli.completion.names_in_run import HyperparameterName
from tfckpt_tui.cli.main import RunArgument, on_open_run, prints
from tfckpt_tui.cli.output import print_json, print_message, print_table
from tfckpt_tui.cli.run.control import send, waiting
from tfckpt_tui.formats.hyperparameters import COLUMNS, parse_assignments
from tfckpt_tui.formats.list_columns import table_of
from tfckpt_tui.reports.control import CommandReport
from tfckpt_tui.reports.hyperparameters import HyperparametersReport
from tfckpt_tui.services.control.request import require_trainer
from tfckpt_tui.services.runs.hyperparameters import facts_of, read_hyperparameters


@click.command()
@RunArgument
@click.argument("names", nargs=-1, metavar="[NAME]...", type=HyperparameterName())
@prints(HyperparametersReport)
@on_open_run
def get(run: RunDirectory, names: tuple[str, ...], as_json: bool) -> None:
    """Show the hyperparameters of a run, who changed them last, and what they can be.

    Without a trainer, they are those of the checkpoint that the next start continues from.
    """
    reading = read_hyperparameters(run)
    if reading.why_none:
        raise TfckptError(reading.why_none)
    unknown = [name for name in names if name not in reading.values]
    if unknown:
        raise UsageError(problem_of_values({unknown[0]: 0}, dict(reading.values)))
    values = [reading.values[name] for name in names or reading.values]
    if as_json:
        facts = tuple(map(facts_of, values))
        print_json(HyperparametersReport(checkpoint=reading.checkpoint, hyperparameters=facts))
        return
    print_table(*table_of(COLUMNS, values, time.time()))
    if reading.checkpoint is not None:
        print_message(f"No trainer answers. The values are those of {reading.checkpoint}.")


@click.command("set")
@RunArgument
@click.argument(
    "assignments", nargs=-1, required=True, metavar="NAME=VALUE...", type=HyperparameterName("=")
)
@click.option(
    "--at-step", type=click.IntRange(min=0), metavar="N", help="Change them after step N."
)
@click.option(
    "--over",
    type=click.IntRange(min=1),
    metavar="STEPS",
    help="Change them in equal parts over so many steps.",
)
@click.option(
    "--until-step",
    type=click.IntRange(min=1),
    metavar="N",
    help="Replace a learning rate schedule; it goes on after step N.",
)
@waiting
@prints(CommandReport)
@on_open_run
def set(  # noqa: A001
    run: RunDirectory,
    assignments: tuple[str, ...],
    at_step: int | None,
    over: int | None,
    until_step: int | None,
    no_wait: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Change hyperparameters on all workers after the same step, or on none.

    Each checkpoint holds the values; a restore brings them back.
    """
    values, known = parse_assignments(assignments), read_hyperparameters(run)
    if not known.is_live:
        require_trainer(run)
    arguments = known.change(values, at_step=at_step, over=over or 0, until_step=until_step)
    send(run, arguments, no_wait, timeout, as_json, has_answered=known.is_live)
