"""Stops a run by force: cancels its batch job, or ends its processes on this machine."""

from __future__ import annotations

from dataclasses import dataclass

from tfckpt_trainer.launch.slurm.commands import Runner, run_command
from tfckpt_trainer.launch.slurm.job_record import read_job_record, unknown_job
from tfckpt_trainer.launch.slurm.jobs import ACTIVE, cancel_job
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_tui.services.batch.job_reader import JobReader
from tfckpt_tui.services.batch.job_view import JobView
from tfckpt_tui.services.control.request import (
    FrontEnd,
    end_processes,
    log_event,
    require_processes,
)


@dataclass(frozen=True)
class ForceStopPlan:
    """What a stop by force ends.

    Attributes:
        job: The batch job of the run, if it waits or runs, or if Slurm cannot be asked whether it
            does. It is cancelled, because its processes run on other machines.
        processes: Otherwise, the processes of the run that live.
    """

    job: JobView | None
    processes: tuple[str, ...] = ()


def plan_force_stop(run: RunDirectory, runner: Runner = run_command) -> ForceStopPlan:
    """Returns what a stop by force of a run would end.

    Args:
        run: The run directory.
        runner: Runs the commands of Slurm.

    Raises:
        NoTrainerError: The run has no active batch job, and none of its processes lives.
    """
    job = JobReader(runner).read(read_job_record(run))
    if job is not None and (
        job.state in ACTIVE or unknown_job(run, job.record, job.silence) is not None
    ):
        return ForceStopPlan(job)
    return ForceStopPlan(None, require_processes(run))


def force_stop(
    run: RunDirectory, plan: ForceStopPlan, *, through: FrontEnd, runner: Runner = run_command
) -> tuple[str, tuple[str, ...]]:
    """Carries out a plan; returns what was done, and warnings.

    Args:
        run: The run directory.
        plan: The plan.
        through: The front end that asks, for the event log.
        runner: Runs the commands of Slurm.

    Raises:
        NoTrainerError: No process of the run lives any more.
        LaunchError: Slurm did not cancel the job, or a process cannot be ended from here.
    """
    if plan.job is None:
        return end_processes(run, through=through)
    job_id = plan.job.record.id
    cancel_job(job_id, runner=runner)
    message = f"Cancelled batch job {job_id}. Slurm ends its processes; they may save first."
    warning = log_event(run, EventKind.STOP, message, through=through)
    return message, (warning,) if warning else ()
