"""Alerts about the batch job of a run: it never starts by itself, or its nodes are silent."""

from __future__ import annotations

import shlex
from pathlib import Path

from tfckpt_trainer.catalog.scan.alerts import Alert
from tfckpt_trainer.rundir.heartbeats.health import RunState
from tfckpt_trainer.words.advice import Advice, command_or_key
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.services.batch.job_view import JobView

SILENT_SECONDS = 10.0
"""How old the newest heartbeat of any process is when all processes count as silent."""

JOB_STUCK = "job-stuck"
JOB_SILENT = "job-silent"
"""Kinds of alerts."""


def find_job_alerts(
    root: Path, state: RunState, job: JobView | None, heard_at: float, now: float
) -> tuple[Alert, ...]:
    """Returns the alerts about the batch job of a run.

    Args:
        root: The run directory, for commands.
        state: The state of the run.
        job: Its batch job, if it has one.
        heard_at: The newest heartbeat, in seconds since the epoch; 0 if there is none.
        now: Seconds since the epoch.
    """
    if job is None:
        return ()
    if job.is_waiting and job.is_stuck:
        return (_stuck(root, job),)
    is_quiet = heard_at < now - SILENT_SECONDS
    if state is RunState.DEGRADED and is_quiet and job.is_active_on_nodes:
        return (_silent(root, job, now - heard_at),)
    return ()


def _stuck(root: Path, job: JobView) -> Alert:
    stop = command_or_key("stop", "stop", root)
    is_held = "release it with" in job.explanation
    advice = (
        Advice.of("Or cancel it with {stop}.", stop=stop)
        if is_held
        else Advice.of(
            "Cancel it with {stop}, and launch the run again with other options. `sinfo` "
            "lists the partitions and their nodes.",
            stop=stop,
        )
    )
    return Alert(
        JOB_STUCK,
        "the job is held" if is_held else "the job cannot start",
        f"Batch job {clean(job.record.id)} does not start by itself: {job.explanation}.",
        advice,
    )


def _silent(root: Path, job: JobView, seconds: float) -> Alert:
    nodes = f" on {job.node_list}" if job.node_list else ""
    return Alert(
        JOB_SILENT,
        "node lost, waiting for Slurm",
        f"No process of the run has written a heartbeat for {units.duration(seconds)}, but Slurm "
        f"still lists batch job {clean(job.record.id)}{nodes}.",
        Advice.of(
            "If a node is down, Slurm requeues the job; that may take minutes. See the nodes "
            "with `sinfo -N -n {node_list}`, or cancel the job with {stop}.",
            node_list=shlex.quote(job.node_list),
            stop=command_or_key("force-stop", "stop", "--force", root),
        ),
    )
