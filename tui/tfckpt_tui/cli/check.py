"""The command `check`: options, output and exit codes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click
import msgspec

from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.cluster.tasks import tasks
from tfckpt_trainer.errors import ExitCode, describe_error
from tfckpt_trainer.exactness.step_differences import describe_difference
from tfckpt_trainer.rundir.heartbeats.reading import read_workers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import CheckArguments, CommandState
from tfckpt_tui.cli.confirmation import confirm
from tfckpt_tui.cli.main import prints
from tfckpt_tui.cli.output import (
    CommandProgress,
    StepProgress,
    print_json,
    print_line,
    print_message,
)
from tfckpt_tui.cli.run.launch import ParameterServersOption, WorkersOption
from tfckpt_tui.formats import units
from tfckpt_tui.reports.checking import CheckReport
from tfckpt_tui.reports.control import QuickCheckReport
from tfckpt_tui.services.control.request import DEFAULT_TIMEOUT, FrontEnd, ask
from tfckpt_tui.services.exactness.check import CheckOptions, CheckResult, Verdict, run_check
from tfckpt_tui.services.exactness.check_report import (
    PASS_WORDS,
    cause_of,
    check_report,
    first_problem,
)
from tfckpt_tui.services.exactness.quick_check import LONG_SECONDS, QUICK_STEPS, estimated_seconds
from tfckpt_tui.services.exactness.stored_checks import store_check
from tfckpt_tui.services.runs.open_run import open_run

STEPS = 20


@click.command(context_settings={"ignore_unknown_options": False})
@click.option(
    "--quick",
    is_flag=True,
    help="Check a run that trains, with its own next steps; COMMAND is its directory.",
)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    help=f"Steps to repeat: {STEPS} by default, {QUICK_STEPS} with --quick.",
)
@click.option("--yes", "-y", is_flag=True, help="With --quick: do not ask if it takes long.")
@WorkersOption
@ParameterServersOption
@prints(CheckReport, QuickCheckReport)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def check(
    quick: bool,
    steps: int | None,
    yes: bool,
    workers: int,
    parameter_servers: int,
    as_json: bool,
    command: tuple[str, ...],
) -> int:
    """Check that a training script repeats its steps exactly after a restore.

    The command follows `--`: tfckpt-tui check --workers 2 -- python train.py

    Runs the script in a scratch directory: saves, trains, restores in place and trains the same
    steps again, then does so in new processes. Compares all metrics, the input and all state, bit
    by bit. Exits 1 if anything differs, or if state is known to be missing from checkpoints.

    With --quick, a run that trains saves, trains 3 steps, restores in place, and trains them
    again: tfckpt-tui check --quick RUN. It then goes on as if it had trained them once.
    """
    if quick:
        if len(command) != 1:
            raise click.UsageError("--quick needs one run directory, and no command.")
        return _check_run(open_run(Path(command[0])), steps or QUICK_STEPS, yes, as_json)
    options = CheckOptions(
        command=command,
        working_directory=os.getcwd(),
        steps=steps or STEPS,
        workers=workers,
        parameter_servers=parameter_servers,
    )
    return _check_script(options, as_json)


def _check_script(options: CheckOptions, as_json: bool) -> int:
    """Runs a training script in a scratch directory; returns the exit code."""
    progress = StepProgress()
    try:
        result = run_check(options, progress)
    finally:
        progress.close()
    stored = _store(result)
    if as_json:
        print_json(check_report(result, stored))
    else:
        print_result(result)
    return int(ExitCode.DONE if result.verdict is Verdict.EXACT else ExitCode.PROBLEM)


def _check_run(run: RunDirectory, steps: int, yes: bool, as_json: bool) -> int:
    """Has the trainer of a run check it; returns the exit code."""
    seconds = estimated_seconds(read_workers(run), Catalog(run).scan(time.time()), steps)
    if seconds is not None and seconds > LONG_SECONDS and not yes:
        confirm(
            f"To save, train {units.count(steps, 'step')}, restore and train again takes about "
            f"{units.duration(seconds)} in this run. Check?"
        )
    command = ask(
        run,
        CheckArguments(steps=steps),
        through=FrontEnd.COMMAND_LINE,
        timeout=max(DEFAULT_TIMEOUT, 3 * (seconds or 0.0)),
        on_change=CommandProgress(),
    )
    if as_json:
        print_json(msgspec.convert(command, QuickCheckReport, from_attributes=True))
    else:
        print_line(command.message)
    is_exact = command.state is CommandState.DONE and bool(command.result.get("exact"))
    return int(ExitCode.DONE if is_exact else ExitCode.PROBLEM)


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
    words = {
        Verdict.EXACT: "exact",
        Verdict.EXACT_SO_FAR: f"exact only over {units.count(result.steps, 'step')}",
        Verdict.NOT_EXACT: "not exact",
    }
    print_line(
        f"{words[result.verdict]}: compared {compared} and the state of "
        f"{units.count(result.objects, 'object')}, on {units.count(result.workers, 'worker')}, in "
        f"{units.duration(result.seconds)}."
    )
    if not result.has_input:
        print_line("The input was not compared: no dataset was passed to TrainingRun.")
    if result.verdict is Verdict.EXACT_SO_FAR:
        print_line(f"Resuming is known not to be exact, because {'; '.join(result.obstacles)}.")
        for remedy in result.remedies:
            print_line(f"    what to do: {remedy}")
    if result.exact and result.gpu_order_varies:
        print_line(
            "On a GPU, other runs may still differ: call "
            "tf.config.experimental.enable_op_determinism() at the start of the script, and check "
            "again."
        )
