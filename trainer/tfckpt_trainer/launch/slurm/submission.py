"""Submits a run to Slurm: writes the batch script, and calls sbatch."""

from __future__ import annotations

import re
import time
from pathlib import Path

import psutil

from tfckpt_trainer.errors import LaunchError
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.slurm.batch_script import batch_script, store_batch_script
from tfckpt_trainer.launch.slurm.commands import Runner, ask_slurm, run_command
from tfckpt_trainer.launch.slurm.slurm_options import SlurmOptions
from tfckpt_trainer.rundir.documents import store
from tfckpt_trainer.rundir.journal import try_write_entry, write_entry
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import JournalEntry, JournalKind
from tfckpt_trainer.rundir.records.job import BatchJob

_ID = re.compile(r"(\d+)(?:;(\S+))?")


def submit(run: RunDirectory, options: LaunchOptions, by: str = "") -> BatchJob:
    """Submits the job of a run, whose directory exists.

    Args:
        run: The run directory.
        options: The options of the launch, with those for Slurm.
        by: Who asks, for the event log.

    Raises:
        LaunchError: Slurm refuses the job, or it does not answer.
        OSError: The run directory cannot be written.
    """
    assert options.slurm is not None
    script = store_batch_script(run, batch_script(run, options))
    job_id, cluster = submit_script(run, script, by)
    job = new_job(run, job_id, cluster, options.slurm)
    store(run.job_file, job)
    nodes = options.slurm.nodes
    words = f"Submitted as job {job.id} on {nodes} {'node' if nodes == '1' else 'nodes'}."
    write_entry(
        run,
        JournalEntry(
            at=job.submitted_at,
            kind=JournalKind.SUBMIT,
            message=words,
            by=by,
            details={"job": job.id},
        ),
    )
    return job


def new_job(run: RunDirectory, job_id: str, cluster: str, asked: SlurmOptions | None) -> BatchJob:
    """Returns the record of a job that was submitted a moment ago."""
    return BatchJob(
        scheduler="slurm",
        id=job_id,
        cluster=cluster,
        user=psutil.Process().username(),
        name=run.root.name,
        submitted_at=time.time(),
        script=str(run.job_script.relative_to(run.root)),
        max_requeues=asked.max_requeues if asked is not None else 0,
    )


def submit_script(
    run: RunDirectory, script: Path, by: str, runner: Runner = run_command
) -> tuple[str, str]:
    """Submits a batch script; the event log says if that fails.

    Args:
        run: The run directory.
        script: The batch script.
        by: Who asks, for the event log.
        runner: Runs the command.

    Returns:
        The ID of the job, and the name of its cluster if it has one.

    Raises:
        LaunchError: Slurm refuses the job, or it does not answer.
    """
    try:
        return _call_sbatch(script, runner)
    except LaunchError as error:
        # After a timeout, Slurm may have taken the job.
        words = f"The submission failed. {error}"
        entry = JournalEntry(
            at=time.time(),
            kind=JournalKind.FAILED,
            message=words,
            by=by,
            details={"submit": "refused"},
        )
        try_write_entry(run, entry)
        raise


def _call_sbatch(script: Path, runner: Runner) -> tuple[str, str]:
    answer = ask_slurm(("sbatch", "--parsable", str(script)), runner=runner).strip()
    match = _ID.fullmatch(answer.splitlines()[-1] if answer else "")
    if match is None:
        raise LaunchError(f"sbatch answered {answer!r}; expected the ID of a job.")
    return match[1], match[2] or ""
