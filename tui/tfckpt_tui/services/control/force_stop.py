"""Stops a run by force: cancels its batch job, or ends its processes on this machine."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tfckpt_trainer.errors import NoTrainerError
from tfckpt_trainer.launch.batch.job_record import read_job_record, unknown_job
from tfckpt_trainer.launch.batch.jobs import ACTIVE
from tfckpt_trainer.launch.batch.scheduler import Scheduler
from tfckpt_trainer.launch.schedulers import SCHEDULER
from tfckpt_trainer.launch.supervision.stop import living_processes, stop_supervisor
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_tui.services.batch.job_reader import JobReader
from tfckpt_tui.services.batch.job_view import JobView
from tfckpt_tui.services.control.request import FrontEnd, log_event

FORCE_SECONDS = 60.0
"""Seconds that the processes have to save and exit before they are killed."""


@dataclass(frozen=True)
class ForceStopPlan:
    """What a stop by force ends.

    Attributes:
        job: The batch job of the run, if it waits or runs, or if nobody can be asked whether it
            does. It is cancelled, because its processes run on other machines.
        processes: Otherwise, the processes of the run that live.
    """

    job: JobView | None
    processes: tuple[str, ...] = ()


def plan_force_stop(run: RunDirectory, scheduler: Scheduler = SCHEDULER) -> ForceStopPlan:
    """Returns what a stop by force of a run would end.

    Args:
        run: The run directory.
        scheduler: The scheduler of its batch job.

    Raises:
        NoTrainerError: The run has no active batch job, and none of its processes lives.
    """
    job = JobReader(scheduler).read(read_job_record(run))
    if job is not None and (
        job.state in ACTIVE or unknown_job(run, job.record, job.silence) is not None
    ):
        return ForceStopPlan(job)
    return ForceStopPlan(None, _require_processes(run))


def force_stop(
    run: RunDirectory,
    plan: ForceStopPlan,
    *,
    through: FrontEnd,
    seconds: float = FORCE_SECONDS,
    scheduler: Scheduler = SCHEDULER,
) -> tuple[str, tuple[str, ...]]:
    """Carries out a plan; returns what was done, and warnings.

    Args:
        run: The run directory.
        plan: The plan.
        through: The front end that asks, for the event log.
        seconds: How long processes of this machine have to save and exit before they are killed.
        scheduler: The scheduler of its batch job.

    Raises:
        NoTrainerError: No process of the run lives any more.
        LaunchError: The scheduler did not cancel the job, or a process cannot be ended from here.
    """
    if plan.job is None:
        return _end_processes(run, seconds, through=through)
    scheduler.cancel(run, plan.job.record)
    message = (
        f"Cancelled batch job {plan.job.record.id}. Slurm ends its processes; they may save first."
    )
    warning = log_event(run, EventKind.STOP, message, through=through)
    return message, (warning,) if warning else ()


def _require_processes(run: RunDirectory) -> tuple[str, ...]:
    """Describes the processes of a run that live.

    Raises:
        NoTrainerError: There are none.
    """
    processes = living_processes(run)
    if not processes:
        raise _nothing_runs(run)
    return tuple(processes)


def _end_processes(
    run: RunDirectory, seconds: float, *, through: FrontEnd
) -> tuple[str, tuple[str, ...]]:
    """Ends supervisor and workers; returns what was done, and warnings.

    Raises:
        NoTrainerError: No process of the run lives.
        LaunchError: One runs on another machine, belongs to another user, or cannot be killed.
    """
    began = time.monotonic()
    warnings: list[str] = []
    if not stop_supervisor(run, seconds, by=through.requester, on_warning=warnings.append):
        raise _nothing_runs(run)
    message = f"Ended all processes of the run in {time.monotonic() - began:.1f} s."
    return message, tuple(warnings)


def _nothing_runs(run: RunDirectory) -> NoTrainerError:
    """Returns the error that there is nothing to end."""
    return NoTrainerError(f"Nothing is running in {run.root}; there is nothing to stop.")
