"""The command `check`: options, output and exit codes."""

from __future__ import annotations

import os

import click

from tfckpt_trainer.cluster.tasks import tasks
from tfckpt_trainer.errors import ExitCode, describe_error
from tfckpt_tui.cli.main import JsonOption
from tfckpt_tui.cli.output import StepProgress, print_json, print_line, print_message
from tfckpt_tui.cli.run.launch import ParameterServersOption, WorkersOption
from tfckpt_tui.formats import units
from tfckpt_tui.services.exactness.check import CheckOptions, CheckResult, run_check
from tfckpt_tui.services.exactness.check_report import (
    PASS_WORDS,
    cause_of,
    describe_difference,
    first_problem,
    result_as_json,
)
from tfckpt_tui.services.exactness.stored_checks import store_check


@click.command(context_settings={"ignore_unknown_options": False})
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Steps to repeat.",
)
@WorkersOption
@ParameterServersOption
@JsonOption
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def check(
    steps: int, workers: int, parameter_servers: int, as_json: bool, command: tuple[str, ...]
) -> int:
    """Check that a training script repeats its steps exactly after a restore.

    The command follows `--`: tfckpt-tui check --workers 2 -- python train.py

    Runs the script in a scratch directory: saves, trains, restores in place and trains the same
    steps again, then does so in new processes. Compares all metrics, the input and all state, bit
    by bit. Exits 1 if anything differs.
    """
    options = CheckOptions(
        command=command,
        working_directory=os.getcwd(),
        steps=steps,
        workers=workers,
        parameter_servers=parameter_servers,
    )
    progress = StepProgress()
    try:
        result = run_check(options, progress)
    finally:
        progress.close()
    stored = _store(result)
    if as_json:
        print_json(result_as_json(result, stored))
    else:
        print_result(result)
    return int(ExitCode.DONE if result.exact else ExitCode.PROBLEM)


def _store(result: CheckResult) -> str | None:
    problem = first_problem(result)
    sentence = describe_difference(problem.difference) if problem and problem.difference else ""
    options = result.options
    processes = len(tasks(options.workers, options.parameter_servers))
    try:
        path = store_check(result, processes, sentence)
    except OSError as error:
        print_message(f"The result is not stored: {describe_error(error)}")
        return None
    return str(path) if path is not None else None


def print_result(result: CheckResult) -> None:
    """Prints what each pass compared, the likely cause of a difference, and the outcome."""
    for repetition in result.repetitions:
        place = PASS_WORDS[repetition.phase]
        difference = repetition.difference
        if difference is None:
            print_line(f"{place}: {units.count(repetition.steps, 'step')} exact")
            continue
        print_line(f"{place}: not exact. {describe_difference(difference)}")
        cause = cause_of(result, repetition)
        if cause is not None:
            print_line(f"    likely cause: {cause.why}")
            print_line(f"    what to do: {cause.advice}")
    compared = f"{units.count(len(result.metrics), 'metric')} of each step"
    compared += ", its input" if result.has_input else ""
    print_line(
        f"{'exact' if result.exact else 'not exact'}: compared {compared} and the state of "
        f"{units.count(result.objects, 'object')}, on {units.count(result.workers, 'worker')}, in "
        f"{units.duration(result.seconds)}."
    )
    if not result.has_input:
        print_line("The input was not compared: the script reads it without TrainingRun.")
    if result.exact and result.gpu_order_varies:
        print_line(
            "On a GPU, other runs may still differ: call "
            "tf.config.experimental.enable_op_determinism() at the start of the script, and check "
            "again."
        )
