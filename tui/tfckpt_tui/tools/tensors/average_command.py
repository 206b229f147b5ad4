"""The command `average`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import click

from tfckpt_trainer.bundle.analysis.contents import Variable
from tfckpt_trainer.bundle.index import index_path
from tfckpt_trainer.errors import ExitCode, UsageError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.words.counts import few_of
from tfckpt_tui.cli.completion.checkpoint_names import CHECKPOINT
from tfckpt_tui.cli.confirmation import explain_interrupt
from tfckpt_tui.cli.main import FiniteRange, RunArgument, ToolCommand, on_open_run, prints
from tfckpt_tui.cli.output import (
    ReadProgress,
    print_json,
    print_line,
    print_message,
    print_warnings,
)
from tfckpt_tui.formats import units
from tfckpt_tui.reports.new_files import AverageReport, AverageSource, NamedTensor
from tfckpt_tui.services.checkpoints.look_up import look_up_all, telling_what_became_of
from tfckpt_tui.services.control.request import FrontEnd
from tfckpt_tui.tools.tensors.average import AveragePlan, plan_average
from tfckpt_tui.tools.tensors.average import average as write_average

_MOST_NAMED = 3
"""Tensors that a message names."""


@click.command(cls=ToolCommand, heading="Work with tensors")
@RunArgument
@click.argument("names", type=CHECKPOINT, nargs=-1, required=True, metavar="CKPT...")
@click.option(
    "--weights",
    metavar="W,...",
    help="A weight for each checkpoint, in the order in which they are named. By default equal.",
)
@click.option(
    "--ema",
    type=FiniteRange(0, 1, min_open=True, max_open=True),
    metavar="DECAY",
    help="Exponential moving average with this decay, such as 0.999, starting with the oldest.",
)
@click.option("--name", metavar="NAME", help="The new checkpoint. By default average-STEP.")
@prints(AverageReport)
@on_open_run
def average(
    run: RunDirectory,
    names: tuple[str, ...],
    weights: str | None,
    ema: float | None,
    name: str | None,
    as_json: bool,
) -> int:
    """Average the variables of checkpoints into a new one (stochastic weight averaging).

    CKPT is a name or a step. Floating-point variables are averaged in double precision; all
    others are taken from the newest checkpoint. The new checkpoint is verified. A start resumes
    from it only after it was restored.
    """
    if weights is not None and ema is not None:
        raise click.UsageError("Give either --weights or --ema.")
    given = None if weights is None else _numbers(weights)
    chosen = look_up_all(run, names)
    with telling_what_became_of(run, names):
        plan = plan_average(run, chosen, given, decay=ema, name=name)
    meter, checking = ReadProgress("averaging"), ReadProgress("verifying")
    try:
        with (
            telling_what_became_of(run, names),
            explain_interrupt(index_path(run.root / plan.new.name)),
        ):
            record, warnings = write_average(
                run,
                plan,
                through=FrontEnd.COMMAND_LINE,
                on_read=meter.sum_to(plan.size),
                on_verified=checking,
            )
    finally:
        meter.close()
    if as_json:
        print_json(_report(plan, record, warnings))
    else:
        _print(run, plan, record, warnings)
    return int(ExitCode.DONE)


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(
            f"--weights {text} is not a list of numbers; write it as in --weights 1,2,1."
        ) from None


def _print(
    run: RunDirectory, plan: AveragePlan, record: CheckpointRecord, warnings: Sequence[str]
) -> None:
    count = units.count(len(plan.averaged), "variable")
    print_line(f"{record.name}: {count} averaged, {units.size(record.size)}, verified")
    for checkpoint, source in zip(plan.checkpoints, plan.sources, strict=True):
        print_line(f"  {source.weight:.6g}  {checkpoint.name}")
    if plan.new.notice:
        print_message(plan.new.notice)
    if plan.from_newest:
        print_message(f"Taken from {plan.newest.name}: {_named(plan.from_newest)}.")
    if record.per_worker is not None:
        print_message(f"Each worker's own state is that of {plan.newest.name}.")
    if plan.batch_statistics:
        names = _named(plan.batch_statistics)
        print_message(
            f"Batch normalization needs a pass over training data, which recomputes {names}."
        )
    print_message(
        "No retention rule deletes it. To delete it, run "
        f"`tfckpt-tui prune {run.shell_word} {shlex.quote(record.name)}`."
    )
    print_warnings(warnings)


def _named(variables: Sequence[Variable]) -> str:
    return few_of([variable.path for variable in variables], _MOST_NAMED)


def _report(plan: AveragePlan, record: CheckpointRecord, warnings: Sequence[str]) -> AverageReport:
    return AverageReport(
        checkpoint=record.name,
        step=record.step,
        branch=record.branch,
        bytes=record.size,
        sources=tuple(
            AverageSource(checkpoint.name, checkpoint.step, source.weight)
            for checkpoint, source in zip(plan.checkpoints, plan.sources, strict=True)
        ),
        tensors=tuple(
            NamedTensor(variable.entry.name, variable.path)
            for variable in (*plan.averaged, *plan.from_newest)
        ),
        averaged=_stored_names(plan.averaged),
        from_newest=_stored_names(plan.from_newest),
        batch_normalization=_stored_names(plan.batch_statistics),
        warning=" ".join(warnings),
    )


def _stored_names(variables: Sequence[Variable]) -> tuple[str, ...]:
    return tuple(variable.entry.name for variable in variables)
