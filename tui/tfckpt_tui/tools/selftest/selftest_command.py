"""The command `selftest`: options, output and exit codes."""

from __future__ import annotations

import click

from tfckpt_trainer.errors import ExitCode
from tfckpt_tui.cli.main import ToolCommand, prints
from tfckpt_tui.cli.output import (
    StepProgress,
    print_error,
    print_json,
    print_line,
    print_markdown,
)
from tfckpt_tui.cli.run.launch import need_tensorflow
from tfckpt_tui.formats import units
from tfckpt_tui.reports.checking import Outcome, SelfTestReport
from tfckpt_tui.tools.selftest.self_test import (
    STRATEGIES,
    SelfTestResult,
    choose_options,
    run_self_test,
)


@click.command(cls=ToolCommand, heading="Tools")
@click.option(
    "--strategy",
    type=click.Choice([name.value for name in STRATEGIES]),
    help="Distribution strategy. Default: mirrored on several GPUs, multi-worker with --workers, "
    "else one-device.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    help="Number of worker processes. Default: 1; with multi-worker one for each GPU, or 2 "
    "without one.",
)
@prints(SelfTestReport)
def selftest(strategy: str | None, workers: int | None, as_json: bool) -> int:
    """Test saves, restores and restarts on this machine, in at most five minutes.

    Trains a small model in a scratch directory: saves, kills a worker, restores in place and in
    new processes, and compares all bits. Measures the stall of a save, memory, and the cost per
    step. Prints a table to paste into a report. Exits 1 if a row failed.

    The scratch directory is in TMPDIR: TMPDIR=/scratch tfckpt-tui selftest
    """
    need_tensorflow("The self-test")
    options = choose_options(strategy, workers)
    progress = StepProgress()
    try:
        result = run_self_test(options, progress)
    finally:
        progress.close()
    for problem in result.problems:
        print_error(problem)
    if as_json:
        print_json(_report(result))
    else:
        print_result(result)
    return int(ExitCode.PROBLEM if result.failed else ExitCode.DONE)


def _report(result: SelfTestResult) -> SelfTestReport:
    return SelfTestReport(
        passed=not result.failed,
        strategy=result.options.strategy.value,
        workers=result.options.workers,
        seconds=result.seconds,
        machine=result.machine,
        rows=result.rows,
        problems=result.problems,
    )


def print_result(result: SelfTestResult) -> None:
    """Prints the machine, the table, and what to do about each row that failed."""
    print_markdown(("machine", ""), list(result.machine.items()))
    print_line()
    cells = [(row.name, row.outcome.value, row.found, row.compared) for row in result.rows]
    print_markdown(("test", "result", "found", "compared"), cells)
    print_line()
    for row in result.failed:
        print_line(f"{row.name} failed: {row.found.rstrip('.')}. {row.advice}".rstrip())
    passed = sum(row.outcome is Outcome.PASSED for row in result.rows)
    skipped = sum(row.outcome is Outcome.NOT_MEASURED for row in result.rows)
    print_line(
        f"{'failed' if result.failed else 'passed'}: {passed} passed, {len(result.failed)} failed, "
        f"{skipped} not measured, in {units.duration(result.seconds)}."
    )
