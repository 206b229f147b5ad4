"""The `tensorboard` command."""

from __future__ import annotations

import click

from tfckpt_trainer.errors import ExitCode
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.cli.main import RunArgument, on_open_run, prints
from tfckpt_tui.cli.output import print_json, print_line, print_message
from tfckpt_tui.reports.control import StoppedTensorBoardReport, TensorBoardReport
from tfckpt_tui.services.processes import tensorboard as board


@click.command()
@RunArgument
@click.option(
    "--port", type=click.IntRange(1024, 65535), help="Port; by default 6006 if it is free."
)
@click.option(
    "--host",
    metavar="ADDRESS",
    help="Address to listen on; loopback by default. On 0.0.0.0 other machines can see all data.",
)
@click.option(
    "--with-run",
    is_flag=True,
    help="Stop TensorBoard when the run ends; by default it keeps running.",
)
@click.option("--stop", "stopping", is_flag=True, help="Stop the TensorBoard of this run.")
@click.option(
    "--status", "asking", is_flag=True, help="Only show whether it runs. Exits 1 if it does not."
)
@prints(TensorBoardReport, StoppedTensorBoardReport)
@on_open_run
def tensorboard(
    run: RunDirectory,
    port: int | None,
    host: str | None,
    with_run: bool,
    stopping: bool,
    asking: bool,
    as_json: bool,
) -> int:
    """Start TensorBoard for this run, by default reachable from this machine only."""
    if stopping and (asking or with_run or port is not None or host is not None):
        raise click.UsageError("--stop cannot be combined with other options.")
    if stopping:
        stopped = board.stop(run)
        if as_json:
            print_json(StoppedTensorBoardReport(stopped=stopped))
        else:
            print_line("Stopped." if stopped else "TensorBoard was not running.")
        return int(ExitCode.DONE)
    server = board.running(run) if asking else board.start(run, port, host, with_run=with_run)
    if as_json:
        print_json(_report(server))
    elif server is None:
        print_line("TensorBoard is not running.")
    else:
        print_line(server.url)
        if server.user:
            print_message(f"It is a process of {server.user}, who chose the address.")
        if board.is_remote():
            print_line(f"From your own machine: {server.forward_line}")
    return int(ExitCode.DONE if server else ExitCode.PROBLEM)


def _report(server: board.TensorBoard | None) -> TensorBoardReport:
    if server is None:
        return TensorBoardReport(running=False)
    return TensorBoardReport(
        running=True,
        url=server.url,
        port=server.port,
        pid=server.pid,
        directory=server.directory,
        started=server.started,
        forward=server.forward_line,
    )
