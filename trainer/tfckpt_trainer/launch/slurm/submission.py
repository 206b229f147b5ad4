"""Submits a run to Slurm: writes the batch script, and calls sbatch."""

from __future__ import annotations

import getpass
import re
import time

from tfckpt_trainer.errors import LaunchError
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.slurm.batch_script import batch_script, store_batch_script
from tfckpt_trainer.launch.slurm.controller import run_command
from tfckpt_trainer.rundir.documents import store
from tfckpt_trainer.rundir.journal import write_entry
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
    answer = run_command(["sbatch", "--parsable", str(script)])
    match = _ID.fullmatch(answer.strip().splitlines()[-1] if answer.strip() else "")
    if match is None:
        raise LaunchError(f"sbatch answered {answer!r}; expected a job ID.")
    job = BatchJob(
        scheduler="slurm",
        id=match[1],
        cluster=match[2] or "",
        user=getpass.getuser(),
        name=run.root.name,
        submitted_at=time.time(),
        script=str(script.relative_to(run.root)),
        max_requeues=options.slurm.max_requeues,
    )
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
