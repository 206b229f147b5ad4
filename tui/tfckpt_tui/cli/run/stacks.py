"""Show what the threads of all workers do."""

from __future__ import annotations

import click

from tfckpt_trainer.errors import ExitCode
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.cli.main import FiniteRange, PidOption, RunOrProcessArgument, on_open_run, prints
from tfckpt_tui.cli.output import print_json, print_line
from tfckpt_tui.reports.stacks import StacksReport, WorkerStacksFacts
from tfckpt_tui.services.runs.stacks import innermost_frames, read_stacks


@click.command()
@RunOrProcessArgument
@click.option("--all", "show_all", is_flag=True, help="Show all threads, and all their frames.")
@click.option(
    "--timeout",
    type=FiniteRange(min=0.1),
    metavar="SECONDS",
    default=20.0,
    show_default=True,
    help="How long to wait for a worker.",
)
@PidOption
@prints(StacksReport)
@on_open_run
def stacks(run: RunDirectory, show_all: bool, timeout: float, as_json: bool) -> int:
    """Show in which line of Python each worker is, for example when the run hangs.

    Shows the main thread, which usually trains, from the line of the script inwards. Of a process
    that trains without tfckpt_trainer, py-spy reads the stacks.
    """
    report = read_stacks(run, timeout)
    if as_json:
        print_json(report)
    else:
        for worker in report.workers:
            _print(worker, show_all=show_all)
    has_problem = any(worker.problem for worker in report.workers)
    return int(ExitCode.PROBLEM if has_problem else ExitCode.DONE)


def _print(worker: WorkerStacksFacts, *, show_all: bool) -> None:
    where = next((thread.script_line for thread in worker.threads if thread.is_main), "")
    name = worker.name.capitalize()
    print_line(f"{name} on {worker.host}: {worker.problem or where}")
    for thread in worker.threads:
        if not (show_all or thread.is_main):
            continue
        if show_all:
            print_line(f"  {thread.name}")
        shown, left_out = innermost_frames(thread, shows_all=show_all)
        if left_out:
            print_line(f"    … {left_out} more")
        for frame in shown:
            print_line(f"    {frame}")
