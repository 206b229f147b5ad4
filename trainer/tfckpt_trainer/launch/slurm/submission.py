"""Submits a run to Slurm: writes the batch script, and calls sbatch.

If Slurm does not answer, it may have accepted the job. Such a job is found by the path of its batch
script, and becomes the job of the run. A comment of the job could name the run too, but sites use
comments for accounting.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import msgspec

from tfckpt_trainer.errors import LaunchError, TfckptError
from tfckpt_trainer.launch.batch.job_record import read_job_record
from tfckpt_trainer.launch.batch.jobs import ACTIVE, JobReport
from tfckpt_trainer.launch.batch.submissions import (
    REFUSED,
    UNANSWERED,
    find_unsuccessful_submission,
    look_again,
)
from tfckpt_trainer.launch.options import LaunchOptions, LaunchRecord
from tfckpt_trainer.launch.slurm.batch_script import batch_script, store_batch_script
from tfckpt_trainer.launch.slurm.commands import (
    Runner,
    UnansweredError,
    ask_slurm,
    run_command,
)
from tfckpt_trainer.launch.slurm.job_queries import read_jobs
from tfckpt_trainer.launch.slurm_options import SlurmOptions
from tfckpt_trainer.rundir.event_log import note_event, read_entries, write_entry
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventEntry, EventKind
from tfckpt_trainer.rundir.records.job import BatchJob
from tfckpt_trainer.rundir.storage.documents import load_if_exists, store
from tfckpt_trainer.rundir.storage.files import delete_file
from tfckpt_trainer.words.advice import Advice

LOOK_SECONDS = 10.0
"""How long to look for the job of an unanswered submission. Slurm may be about to accept it."""

LOOK_PAUSE_SECONDS = 1.0

_ID = re.compile(r"(\d+)(?:;(\S+))?")


def submit(
    run: RunDirectory, options: LaunchOptions, by: str = "", runner: Runner = run_command
) -> BatchJob:
    """Submits the job of a run, whose directory exists.

    Args:
        run: The run directory.
        options: The options of the launch, with those for Slurm.
        by: Who asks, for the event log.
        runner: Runs the command.

    Raises:
        UnansweredError: Slurm does not answer, and may have accepted the job.
        LaunchError: Slurm refuses the job.
        OSError: The run directory cannot be written.
    """
    assert options.slurm is not None
    script = store_batch_script(run, batch_script(run, options))
    job_id, cluster = submit_script(run, script, by, runner)
    job = new_job(run, job_id, cluster, options.slurm)
    store(run.job_file, job)
    nodes = options.slurm.nodes
    words = f"Submitted as job {job.id} on {nodes} {'node' if nodes == '1' else 'nodes'}."
    write_entry(
        run,
        EventEntry(
            at=job.submitted_at,
            kind=EventKind.SUBMIT,
            message=words,
            by=by,
            details={"job": job.id},
        ),
    )
    return job


def new_job(run: RunDirectory, job_id: str, cluster: str, asked: SlurmOptions | None) -> BatchJob:
    """Returns the record of a job that was submitted a moment ago."""
    import psutil

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
        UnansweredError: Slurm does not answer, and may have accepted the job.
        LaunchError: Slurm refuses the job.
    """
    before = read_job_record(run)
    try:
        return _call_sbatch(script, runner)
    except UnansweredError as error:
        job = _look_for_job(run, runner)[0]
        if job is not None:
            return job.id, ""
        words = f"Slurm did not answer the submission, and may have accepted the job. {error}"
        _note_outcome(run, UNANSWERED, words, by)
        current = read_job_record(run)
        if current is not None and before is not None and current.id == before.id:
            # The job, if there is one, must not take an earlier one for that of the run.
            delete_file(run.job_file)
        raise UnansweredError(words, look_again(run)) from None
    except LaunchError as error:
        _note_outcome(run, REFUSED, f"The submission failed. {error}", by)
        raise


def adopt_job(run: RunDirectory, by: str = "", runner: Runner = run_command) -> BatchJob | None:
    """Makes the job of an unanswered submission that of the run, if Slurm has accepted it.

    Args:
        run: The run directory.
        by: Who asks, for the event log.
        runner: Runs the commands of Slurm.

    Returns:
        The job; None if Slurm has no such job, or if it is recorded already.

    Raises:
        LaunchError: Slurm cannot be asked.
        OSError: The run directory cannot be written.
    """
    told = find_unsuccessful_submission(read_entries(run))
    if told is None or told.details["submit"] != UNANSWERED or run.job_file.exists():
        return None
    report, silence = _look_for_job(run, runner)
    if silence:
        raise LaunchError(
            "Slurm may have accepted a job of this run, and cannot be asked about it: "
            f"{silence.rstrip('.')}.",
            Advice.of("Try again on a host where `squeue` works."),
        )
    if report is None:
        return None
    job = msgspec.structs.replace(
        new_job(run, report.id, "", last_slurm_options(run)),
        user=report.user,
        submitted_at=report.submitted_at or told.at,
    )
    store(run.job_file, job)
    words = f"Slurm has accepted job {job.id}, whose submission it did not answer."
    entry = EventEntry(
        at=time.time(), kind=EventKind.SUBMIT, message=words, by=by, details={"job": job.id}
    )
    write_entry(run, entry)
    return job


def last_slurm_options(run: RunDirectory) -> SlurmOptions | None:
    """Returns what the last launch asked of Slurm; None if it did not use Slurm."""
    try:
        options = load_if_exists(run.launch_file, LaunchRecord)
    except (TfckptError, OSError):
        return None
    return options.slurm if options is not None else None


def _look_for_job(run: RunDirectory, runner: Runner) -> tuple[JobReport | None, str]:
    """Returns the newest active job of a run; and why Slurm cannot be asked, or an empty text."""
    deadline = time.monotonic() + LOOK_SECONDS
    while True:
        answer = read_jobs(runner=runner)
        jobs = [
            job
            for job in answer.jobs.values()
            if job.state in ACTIVE and _is_script_of(run, job.script)
        ]
        if jobs:
            return max(jobs, key=lambda job: job.submitted_at or 0.0), ""
        if not answer.is_present or time.monotonic() > deadline:
            return None, answer.problem
        time.sleep(LOOK_PAUSE_SECONDS)


def _is_script_of(run: RunDirectory, script: str) -> bool:
    # Only what may be equal is looked up: other scripts may be on disks that hang.
    is_named_so = Path(script).name == run.job_script.name
    return is_named_so and os.path.realpath(script) == os.path.realpath(run.job_script)


def _note_outcome(run: RunDirectory, outcome: str, words: str, by: str) -> None:
    kind = EventKind.FAILED if outcome == REFUSED else EventKind.NOTE
    details = {"submit": outcome}
    note_event(run, kind, words, by=by, details=details)


def _call_sbatch(script: Path, runner: Runner) -> tuple[str, str]:
    answer = ask_slurm(("sbatch", "--parsable", str(script)), runner=runner).strip()
    match = _ID.fullmatch(answer.splitlines()[-1] if answer else "")
    if match is None:
        raise UnansweredError(f"sbatch answered {answer!r}; expected the ID of a job.")
    return match[1], match[2] or ""
