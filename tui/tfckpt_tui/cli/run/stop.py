"""The command `stop`."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click
import msgspec

from tfckpt_trainer.errors import LaunchError, RefusedError, TfckptError, describe_error
from tfckpt_trainer.launch.supervision.stop import wait_for_end
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import Command, CommandState, StopArguments
from tfckpt_tui.cli.confirmation import confirm
from tfckpt_tui.cli.main import PidOption, RunOrProcessArgument, on_open_run, prints
from tfckpt_tui.cli.output import CommandProgress, print_json, print_line, print_message
from tfckpt_tui.cli.run.control import send, waiting
from tfckpt_tui.reports.control import CommandReport, ForcedStopReport
from tfckpt_tui.services.control.force_stop import FORCE_SECONDS, force_stop, plan_force_stop
from tfckpt_tui.services.control.job_control import cancel_waiting_job, find_waiting_job
from tfckpt_tui.services.control.request import FrontEnd, require_trainer
from tfckpt_tui.services.control.stop_process import WHAT_IS_LOST, stop_process
from tfckpt_tui.services.runs.process_watch import attached_processes

NOTHING_TO_SAVE_SECONDS = 10.0
"""Seconds that `--force --no-save` waits at most for each of the trainer and its processes."""

END_SECONDS = 5.0
"""Seconds that `stop` waits for the processes to end, at least."""


@click.command()
@RunOrProcessArgument
@click.option(
    "--save/--no-save", "with_save", default=True, help="Save a checkpoint first (default)."
)
@click.option("--force", is_flag=True, help="End the processes if the trainer does not answer.")
@PidOption
@click.option("--yes", is_flag=True, help="With --pid: do not ask.")
@waiting
@prints(CommandReport, ForcedStopReport)
@on_open_run
def stop(
    run: RunDirectory,
    with_save: bool,
    force: bool,
    yes: bool,
    no_wait: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Stop the run on all workers, and wait until it can be launched again.

    If the batch job of the run waits in the queue of a cluster, cancels the job. With --pid, ends a
    process that trains without tfckpt_trainer by SIGTERM, without a save.
    """
    if run.process is not None:
        _stop_process(run.process, timeout, as_json, asks=not yes)
        return
    if find_waiting_job(run) is not None:
        _cancel(run, as_json)
        return
    if force and not with_save:
        timeout = min(timeout, NOTHING_TO_SAVE_SECONDS)
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
    except (TfckptError, OSError) as error:
        # Whatever keeps a command from the trainer keeps nobody from its processes.
        if not force:
            raise
        reason = f"{describe_error(error).rstrip('.')}."
        _force(run, reason, as_json, with_save=with_save)


def _cancel(run: RunDirectory, as_json: bool) -> None:
    _print_stopped(cancel_waiting_job(run, through=FrontEnd.COMMAND_LINE), as_json)


def _stop_process(pid: int, timeout: float, as_json: bool, *, asks: bool) -> None:
    process = attached_processes(pid, time.time())[0]
    print_message(WHAT_IS_LOST)
    if asks:
        confirm(f"Send SIGTERM to {process.name}?")
    _print_stopped(stop_process(process, timeout), as_json)


def _print_stopped(message: str, as_json: bool) -> None:
    if as_json:
        print_json(ForcedStopReport(stopped=True, message=message, warnings=()))
    else:
        print_line(message)


def _await_end(run: RunDirectory, stopped: Command, timeout: float) -> None:
    """Waits until all processes of a stopped run have ended."""
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


def _force(run: RunDirectory, reason: str, as_json: bool, *, with_save: bool) -> None:
    plan = plan_force_stop(run)
    what = "Cancelling its batch job" if plan.job is not None else "Ending its processes"
    print_message(f"{reason} {what}.")
    seconds = FORCE_SECONDS if with_save else NOTHING_TO_SAVE_SECONDS
    message, warnings = force_stop(run, plan, through=FrontEnd.COMMAND_LINE, seconds=seconds)
    if as_json:
        print_json(ForcedStopReport(stopped=True, message=message, warnings=tuple(warnings)))
    else:
        print_line(message)
    for warning in warnings:
        print_message(f"Done, but: {warning}")
