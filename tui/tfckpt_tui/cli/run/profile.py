"""Trace some steps, and show which operations took most of the time."""

from __future__ import annotations

import click

from tfckpt_trainer.errors import ExitCode, UsageError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import ProfileArguments
from tfckpt_tui.cli.main import RunArgument, on_open_run, prints
from tfckpt_tui.cli.output import (
    CommandProgress,
    print_json,
    print_line,
    print_message,
    print_table,
)
from tfckpt_tui.cli.run.control import TimeoutOption
from tfckpt_tui.formats import units
from tfckpt_tui.reports.profile import ProfileReport, TraceFacts
from tfckpt_tui.services.control.profile import parse_workers, profile_run
from tfckpt_tui.services.control.request import FrontEnd


def _indexes(_: click.Context, __: click.Parameter, text: str | None) -> list[int] | None:
    """Returns the indexes of workers in a text; see `parse_workers`."""
    try:
        return parse_workers(text or "")
    except UsageError as error:
        raise click.BadParameter(str(error)) from error


@click.command()
@RunArgument
@click.option(
    "--steps",
    type=click.IntRange(1, 1000),
    default=20,
    show_default=True,
    help="How many steps to trace.",
)
@click.option(
    "--workers",
    callback=_indexes,
    metavar="INDEXES",
    help="Which workers trace: 0 by default, such as 0,1, or all. The others can crash.",
)
@TimeoutOption
@prints(ProfileReport)
@on_open_run
def profile(
    run: RunDirectory, steps: int, workers: list[int] | None, timeout: float, as_json: bool
) -> int:
    """Trace the next steps with TensorFlow's profiler, and show the slowest operations.

    TensorBoard shows the traces with its profile plugin.
    """
    report = profile_run(
        run,
        ProfileArguments(steps=steps, workers=workers),
        through=FrontEnd.COMMAND_LINE,
        timeout=timeout,
        on_change=CommandProgress(),
    )
    if as_json:
        print_json(report)
    else:
        print_line(report.message)
        for trace in report.traces:
            _print(trace, report.steps)
    for trace in report.traces:
        if trace.problem:
            print_message(f"Worker {trace.worker}: {trace.problem}")
    is_read = not any(trace.problem for trace in report.traces)
    return int(ExitCode.DONE if is_read else ExitCode.PROBLEM)


def _print(trace: TraceFacts, steps: int) -> None:
    print_line()
    print_line(f"Worker {trace.worker}: {trace.file}")
    rows = [
        (
            f"{one.share:.1%}",
            units.step_time(one.seconds / steps),
            f"{one.calls:,}",
            one.place,
            one.kind,
            one.name,
        )
        for one in trace.operations
    ]
    if rows:
        print_table(("SHARE", "A STEP", "CALLS", "ON", "TYPE", "OPERATION"), rows, right={0, 1, 2})
