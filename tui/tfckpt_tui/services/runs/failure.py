"""Explains the state of a run, and what to do about a run that failed."""

from __future__ import annotations

from pathlib import Path

from tfckpt_trainer.catalog.scan.alerts import NO_DIRECTORY, Alert, as_sentence
from tfckpt_trainer.launch.batch.jobs import ENDED
from tfckpt_trainer.launch.batch.submissions import look_again
from tfckpt_trainer.machine.permissions import opening_advice
from tfckpt_trainer.rundir.heartbeats.health import HAS_ENDED, RunState, WorkerState
from tfckpt_trainer.rundir.heartbeats.stragglers import describe_lost_worker, find_straggler
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.worker import Ending
from tfckpt_trainer.words.advice import Advice, command_or_key
from tfckpt_tui.formats.text import clean
from tfckpt_tui.services.batch.job_view import JobView
from tfckpt_tui.services.runs.heartbeats import Heartbeats

RUN_FAILED = "run-failed"
SUBMIT_REFUSED = "submit-refused"
SUBMIT_UNANSWERED = "submit-unanswered"
"""Kinds of alerts."""

_START_AGAIN = Advice.of(
    "tfckpt-tui did not launch this run and has no logs of it. Read what the script "
    "printed, remove the cause, and start the script again as before."
)

_LATE_STRATEGY = "Collective ops must be configured at program startup"
"""What TensorFlow says if `MultiWorkerMirroredStrategy` is created after an operation."""

_STRATEGY_FIRST = "create the strategy before any TensorFlow operation; making a dataset is one"

_TITLE_WIDTH = 44
"""Longest title of the alert, in characters: the header shows more than it."""


def find_failure(run: RunDirectory, state: RunState, reason: str) -> tuple[Alert, ...]:
    """Returns the alert about a run that failed or was not accepted; empty if neither happened.

    Args:
        run: The run directory.
        state: The state of the run.
        reason: The reason for it.
    """
    if state is RunState.REFUSED:
        return (_refused(run, reason),)
    if state is RunState.UNANSWERED:
        title = "Slurm did not answer the submission"
        return (Alert(SUBMIT_UNANSWERED, title, reason, look_again(run)),)
    if state is not RunState.FAILED:
        return ()
    reason = reason or "The run failed without a recorded reason."
    if not run.launch_file.exists():
        return (_failed(reason, _START_AGAIN),)
    # Imported here, as below: few runs fail.
    from tfckpt_tui.services.runs.launch_form import launch_command

    before = "Read the logs with {logs} and {cure}. Then launch the run again with "
    advice = Advice.of(
        before + "`{command}`.",
        before + "{launch}.",
        logs=command_or_key("logs", "logs", run.root),
        cure=_STRATEGY_FIRST if _LATE_STRATEGY in reason else "remove the cause",
        command=launch_command(run),
        launch=command_or_key("launch", "launch", run.root),
    )
    return (_failed(reason, advice),)


def _failed(reason: str, advice: Advice) -> Alert:
    return Alert(RUN_FAILED, _first_words(reason.rstrip(".")), reason, advice)


def _first_words(text: str) -> str:
    """Returns as much of a text as a title takes; `textwrap.shorten` takes 20 times as long."""
    text = " ".join(text.split())
    if len(text) <= _TITLE_WIDTH:
        return text
    begun = text[:_TITLE_WIDTH]
    return f"{begun.rpartition(' ')[0] or begun[:-1]}…"


def _refused(run: RunDirectory, reason: str) -> Alert:
    launch = command_or_key("launch", "launch", run.root)
    return Alert(
        SUBMIT_REFUSED,
        "the submission failed",
        reason,
        Advice.of(
            "Remove the cause, then launch the run again.",
            "Remove the cause, then launch the run again with {launch}.",
            launch=launch,
        ),
    )


def state_reason(
    run: RunDirectory,
    state: RunState,
    heartbeats: Heartbeats,
    job: JobView | None,
) -> str:
    """Returns the reason for the state of a run, as sentences; empty if there is none.

    Args:
        run: The run directory.
        state: The state of the run.
        heartbeats: The newest heartbeats.
        job: The batch job of the run.
    """
    of_job = _job_reason(run, state, job, heartbeats.last_at)
    if of_job:
        return of_job
    return _reason(state, heartbeats, job) + _restart_words(run, state, heartbeats, job)


def _job_reason(run: RunDirectory, state: RunState, job: JobView | None, heard_at: float) -> str:
    """Returns why the run waits, or why its newest job ended before it left any record."""
    if job is None:
        return ""
    if state is RunState.QUEUED:
        why = f" ({job.explanation})" if job.explanation else ""
        waits = f"Batch job {job.record.id} waits in the queue"
        return f"{waits}: {job.reason}{why}." if job.reason else f"{waits}."
    is_first = job.record.started_at is None
    if state in HAS_ENDED and job.state in ENDED and job.is_newer_than(heard_at):
        when = "training started" if is_first else "it started again"
        words = f"Batch job {job.record.id} ended before {when}: {job.ending}."
        is_unseen = state is RunState.FAILED and is_first and not run.job_log.exists()
        unseen = " It left no log: its nodes may not see this directory."
        return f"{words}{unseen}" if is_unseen else words
    is_new = is_first and not heard_at
    if state in {RunState.UNATTENDED, RunState.FAILED} and is_new and job.is_forgotten:
        return f"Batch job {job.record.id} ended before training started; Slurm has forgotten why."
    return ""


def _reason(state: RunState, heartbeats: Heartbeats, job: JobView | None) -> str:
    """Returns the reason for the state of a run; what its processes recorded comes first."""
    statuses, supervisor = heartbeats.statuses, heartbeats.supervisor
    now, lives = heartbeats.now, heartbeats.lives
    reason = supervisor.reason if supervisor is not None else ""
    has_ended = supervisor is not None and supervisor.has_ended
    if reason and (has_ended or state is RunState.RESTARTING):
        return reason
    if state is RunState.FAILED:
        failed = [status for status in statuses if status.ending is Ending.FAILED]
        first = min(failed, key=lambda status: status.updated_at, default=None)
        if first is not None and first.detail:
            return f"Worker {first.index} failed: {as_sentence(first.detail)}"
        if statuses and all(status.ending is Ending.PREEMPTED for status in statuses):
            return "The supervisor ended without a report: it was killed, or its node failed."
        if job is not None and job.state in ENDED:
            return f"Batch job {job.record.id} ended: {job.ending}."
    lost = describe_lost_worker(statuses, now, lives, has_ended=state is RunState.FAILED)
    if lost:
        # The reason of a running supervisor is about an earlier restart.
        return lost
    suspected = find_straggler(statuses, now, lives)
    if suspected is not None:
        return f"Worker {suspected[0]} {suspected[1]}."
    if state is RunState.PAUSED:
        return next((status.detail for status in statuses if status.detail), reason)
    return reason


def _restart_words(
    run: RunDirectory, state: RunState, heartbeats: Heartbeats, job: JobView | None
) -> str:
    """Returns when the supervisor of a batch job acts on a lost worker, as a further sentence."""
    is_lost = any(seen is WorkerState.LOST for _, seen in heartbeats.workers)
    if state is not RunState.DEGRADED or not is_lost or job is None:
        return ""
    from tfckpt_trainer.launch.schedulers import SCHEDULER
    from tfckpt_tui.services.runs.launch_form import last_launch

    options = last_launch(run)
    if options is None or heartbeats.living_supervisor is None:
        return ""

    seconds = SCHEDULER.silence_seconds(options)
    return f" All workers start again by themselves after {seconds:.0f} s without a sign of it."


def unreadable_alert(root: Path, error: OSError) -> Alert:
    """Returns the alert about a run that cannot be read.

    Args:
        root: The run directory.
        error: What the file system says.
    """
    advice = opening_advice(error) or Advice.of("It is read again in a moment.")
    words = clean(f"{error.filename or root} cannot be read: {error.strerror or error}.")
    return Alert(NO_DIRECTORY, "the run directory cannot be read", words, advice)
