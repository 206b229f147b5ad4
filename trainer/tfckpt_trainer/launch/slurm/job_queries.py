"""Asks Slurm about jobs, and cancels them, by the commands that Slurm's users have."""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Iterable, Mapping

import msgspec

from tfckpt_trainer.errors import LaunchError, UsageError
from tfckpt_trainer.launch.batch.jobs import WAITING, JobAnswer, JobReport, JobState, is_own
from tfckpt_trainer.launch.slurm.commands import Runner, ask_slurm, run_command
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.job import BatchJob
from tfckpt_trainer.rundir.storage.documents import why_not_named
from tfckpt_trainer.rundir.storage.owners import user_id
from tfckpt_trainer.words.advice import Advice

QUERY_SECONDS = 10.0
"""Time limit of a question to Slurm."""

_NEVER_SECONDS = 300 * 86_400.0
"""Slurm counts a job without a time limit as one that runs for a year."""

_JOB_ID = re.compile(r"\d{1,18}([_+]\d{1,18})?", re.ASCII)
_NO_TEXT = {"(null)", "N/A", "None"}
_HIDES_JOBS = re.compile(r"^PrivateData\s*=.*\bjobs\b", re.MULTILINE)
_NO_SUCH_JOB = "Invalid job id"
_REFUSED = "Kill job error"
_BAD_JOB_ID = "is not an ID of a Slurm job: expected a number, or 1234_5 for a task of an array"


_REASONS = {
    "Resources": "it waits for free nodes",
    "Priority": "jobs with a higher priority come first",
    "BeginTime": "its earliest start is still to come",
    "Dependency": "it waits for another job",
}
"""Common reasons for which a job waits, in plain words."""

_HELD = "it is held; release it with `scontrol release {id}`"

_STUCK_REASONS = {
    "DependencyNeverSatisfied": "the job that it waits for failed, so it never starts",
    "JobHeldUser": _HELD,
    "JobHeldAdmin": "an administrator holds it",
    "JobHoldMaxRequeue": "it was requeued too often; release it with `scontrol release {id}`",
    "ReservationDeleted": "its reservation is gone; release it with `scontrol release {id}`",
    "BadConstraints": "no node can fulfil its options, so it never starts",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition is inactive",
    "PartitionTimeLimit": "its time limit is above the limit of the partition",
    "PartitionNodeLimit": "it asks for more nodes than the partition allows",
    "PartitionConfig": "it asks for more than the partition has",
    "AccountNotAllowed": "its account may not use the partition",
    "InvalidAccount": "its account is invalid",
    "InvalidQOS": "its quality of service is invalid",
    "QOSNotAllowed": "its quality of service may not be used in the partition",
    "launch failed requeued held": (
        "it could not be started and is held; release it with `scontrol release {id}`"
    ),
}
"""Reasons for which a job does not start until somebody acts, in plain words."""

_STATES = {
    "PENDING": JobState.QUEUED,
    "CONFIGURING": JobState.QUEUED,
    "POWER_UP_NODE": JobState.QUEUED,
    "RUNNING": JobState.RUNNING,
    "SUSPENDED": JobState.RUNNING,
    "STOPPED": JobState.RUNNING,
    "SIGNALING": JobState.RUNNING,
    "RESIZING": JobState.RUNNING,
    "COMPLETING": JobState.COMPLETING,
    "STAGE_OUT": JobState.COMPLETING,
    "REQUEUED": JobState.REQUEUED,
    "REQUEUE_FED": JobState.REQUEUED,
    "REQUEUE_HOLD": JobState.REQUEUED,
    "RESV_DEL_HOLD": JobState.REQUEUED,
    "SPECIAL_EXIT": JobState.REQUEUED,
    "PREEMPTED": JobState.PREEMPTED,
    "NODE_FAIL": JobState.NODE_FAILURE,
    "TIMEOUT": JobState.TIMEOUT,
    "DEADLINE": JobState.TIMEOUT,
    "CANCELLED": JobState.CANCELLED,
    "REVOKED": JobState.CANCELLED,
    "FAILED": JobState.FAILED,
    "BOOT_FAIL": JobState.FAILED,
    "LAUNCH_FAILED": JobState.FAILED,
    "OUT_OF_MEMORY": JobState.FAILED,
    "RECONFIG_FAIL": JobState.FAILED,
    "COMPLETED": JobState.FINISHED,
}


def is_job_id(text: str) -> bool:
    """Whether `text` is an ID of a job or of a task of a job array."""
    return _JOB_ID.fullmatch(text) is not None


def read_jobs(
    ids: Iterable[str] | None = None,
    *,
    user: str | None = None,
    runner: Runner = run_command,
    seconds: float = QUERY_SECONDS,
) -> JobAnswer:
    """Asks Slurm once about several jobs, or about all jobs of a user.

    Never raises: a machine without Slurm and a Slurm that does not answer are answers too.

    Args:
        ids: The IDs of the jobs; others than IDs of Slurm are left out.
        user: The user, if `ids` is None; by default the user of this process.
        runner: Runs the command.
        seconds: Time limit.
    """
    if ids is None:
        # By number: the environment may hold another name, and a container may know none.
        which = f"--user={user if user is not None else os.geteuid()}"
    else:
        job_ids = sorted({job_id for job_id in ids if is_job_id(job_id)})
        if not job_ids:
            return JobAnswer()
        which = f"--jobs={','.join(job_ids)}"
    # A job's name may hold anything, also line ends; but not what this call chose at random.
    separator = f"<{uuid.uuid4().hex}>"
    form = "".join(f"{separator}%{letter}" for letter in _FIELDS)
    # --array: one line for each task of an array.
    import subprocess

    command = ("squeue", "--noheader", "--array", "--states=all", which, f"--format={form}")
    try:
        done = runner(command, seconds)
    except FileNotFoundError:
        return JobAnswer(is_present=False, problem="this machine has no Slurm commands")
    except subprocess.TimeoutExpired:
        return JobAnswer(problem=f"squeue did not answer within {seconds:g} s.")
    except OSError as error:
        return JobAnswer(problem=f"squeue cannot be started: {error.strerror or error}.")
    if done.status != 0 and _NO_SUCH_JOB not in done.errors:
        return JobAnswer(problem=f"squeue: {done.last_line}")
    return JobAnswer(parse_jobs(done.output, separator))


def read_recorded_jobs(
    records: Iterable[BatchJob], *, runner: Runner = run_command, seconds: float = QUERY_SECONDS
) -> JobAnswer:
    """Asks Slurm once about recorded jobs, as `read_jobs` does.

    Of a job that Slurm may hide from this user, it answers as of one that it has forgotten. So it
    is asked too whether it hides jobs of other users.
    """
    asked = list(records)
    answer = read_jobs([record.id for record in asked], runner=runner, seconds=seconds)
    # Slurm hides nothing from root.
    if answer.problem or os.geteuid() == 0:
        return answer
    if not any(answer.report_on(one) is None and not is_own(one) for one in asked):
        return answer
    try:
        shown = ask_slurm(("scontrol", "show", "config"), runner=runner, seconds=seconds)
    except LaunchError as error:
        return msgspec.structs.replace(answer, problem=error.found)
    hidden_by = "PrivateData=jobs" if _HIDES_JOBS.search(shown) else ""
    return msgspec.structs.replace(answer, hidden_by=hidden_by)


def cancel_job(
    job_id: str,
    *,
    only_waiting: bool = False,
    runner: Runner = run_command,
    seconds: float = QUERY_SECONDS,
) -> None:
    """Cancels a job.

    Args:
        job_id: Its ID.
        only_waiting: Whether to leave the job alone if it has started meanwhile.
        runner: Runs the command.
        seconds: Time limit.

    Raises:
        UsageError: The ID is invalid.
        LaunchError: Slurm did not cancel it.
    """
    if not is_job_id(job_id):
        raise UsageError(f"{job_id!r} {_BAD_JOB_ID}.")
    import subprocess

    command = ("scancel", *(("--state=PENDING",) if only_waiting else ()), job_id)
    by_hand = f"Cancel it on a host with Slurm: `scancel {job_id}`."
    try:
        done = runner(command, seconds)
    except FileNotFoundError:
        raise LaunchError(
            f"Job {job_id} was not cancelled: this machine has no Slurm commands. {by_hand}"
        ) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LaunchError(f"Job {job_id} may not be cancelled: {error}. {by_hand}") from error
    if done.status != 0:
        # An answer of Slurm's controller is the same on all hosts.
        advice = "" if _REFUSED in done.errors else f" {by_hand}"
        raise LaunchError(f"Job {job_id} was not cancelled. {done.last_line}{advice}")


def cancel_recorded_job(
    run: RunDirectory, job: BatchJob, *, only_waiting: bool = False, runner: Runner = run_command
) -> None:
    """Cancels the batch job of a run, as `cancel_job` does.

    Whoever may write to the run directory can name any job there, and Slurm cancels for root the
    jobs of all users. So only the user of a job, or root, can have recorded it.

    Raises:
        LaunchError: Another user could have recorded it, or Slurm did not cancel it.
    """
    user = os.geteuid()
    if user == 0:
        report = read_jobs([job.id], runner=runner).jobs.get(job.id)
        user = user_id(report.user, user) if report is not None else user
    problem = why_not_named(run.job_file, BatchJob, user, lambda recorded: recorded.id == job.id)
    if problem:
        raise LaunchError(
            f"Job {job.id} is not cancelled. {problem}",
            Advice.of(
                "Look at it with `scontrol show job {job}`. If it belongs to this run, cancel it: "
                "`scancel {job}`.",
                job=job.id,
            ),
        )
    cancel_job(job.id, only_waiting=only_waiting, runner=runner)


def parse_jobs(output: str, separator: str) -> dict[str, JobReport]:
    """Parses what `squeue` prints; the separator precedes each field.

    Jobs that are incomplete or have no valid ID are left out.
    """
    parts = output.split(separator)[1:]
    size = len(_FIELDS)
    complete = len(parts) - len(parts) % size
    reports = {}
    for first in range(0, complete, size):
        values = dict(zip(_FIELDS.values(), parts[first : first + size], strict=True))
        values["name"] = values["name"].removesuffix("\n")
        if is_job_id(values["id"]):
            reports[values["id"]] = _report(values)
    return reports


_FIELDS = {
    "i": "id",
    "T": "state",
    "r": "reason",
    "S": "start",
    "e": "end",
    "l": "limit",
    "V": "submitted",
    "N": "nodes",
    "P": "partition",
    "u": "user",
    "Z": "directory",
    "o": "script",
    "j": "name",
}
"""Letters of `squeue --format`, which all versions of Slurm know; the name comes last."""


def _report(values: Mapping[str, str]) -> JobReport:
    state = _STATES.get(values["state"], JobState.UNKNOWN)
    start = _time(values["start"])
    is_limited = values["limit"] not in {"UNLIMITED", "INVALID", "NOT_SET"}
    explanation, is_stuck = _explained(values["reason"], values["id"])
    return JobReport(
        id=values["id"],
        name=values["name"],
        state=state,
        user=values["user"],
        partition=values["partition"],
        working_directory=_text(values["directory"]),
        out_of_memory=values["state"] == "OUT_OF_MEMORY",
        script=_text(values["script"]),
        reason=_text(values["reason"]),
        explanation=explanation,
        is_stuck=is_stuck,
        expected_start=_expected_start(start) if state in WAITING else None,
        started_at=None if state in WAITING else start,
        ends_at=_time(values["end"]) if state is JobState.RUNNING and is_limited else None,
        submitted_at=_time(values["submitted"]),
        node_list=_text(values["nodes"]),
    )


def _explained(reason: str, job_id: str) -> tuple[str, bool]:
    """Returns a reason in plain words, empty for a rare one, and whether somebody has to act."""
    # As in "job requeued in held state".
    other = _HELD if "held" in reason.split() else ""
    stuck = _STUCK_REASONS.get(reason, other)
    return (stuck or _REASONS.get(reason, "")).format(id=job_id), bool(stuck)


def _expected_start(start: float | None) -> float | None:
    """Returns when Slurm expects a job to start, unless it waits for one without a time limit."""
    is_known = start is not None and start < time.time() + _NEVER_SECONDS
    return start if is_known else None


def _text(value: str) -> str:
    return "" if value in _NO_TEXT else value


def _time(value: str) -> float | None:
    return float(value) if re.fullmatch(r"[1-9]\d{0,11}", value, re.ASCII) else None
