"""Says why no trainer takes a command, and what to do about it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from tfckpt_trainer.errors import NothingRunsError, NoTrainerError
from tfckpt_trainer.launch.batch.job_record import read_job_record, unknown_job
from tfckpt_trainer.launch.processes.orphans import living_supervisor, orphan_processes
from tfckpt_trainer.rundir.heartbeats.health import RunState
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import CommandKind
from tfckpt_trainer.rundir.records.run import SupervisorState
from tfckpt_trainer.words.advice import Advice, command_or_key, only_command
from tfckpt_tui.services.batch.job_reader import JobReader
from tfckpt_tui.services.runs.brief_reading import brief_account
from tfckpt_tui.services.runs.process_watch import ProcessWatch
from tfckpt_tui.services.runs.steering_lines import why_not_steered


def require_supervisor(run: RunDirectory, kind: CommandKind | None) -> None:
    """Makes sure that a supervisor can take a stop, since no trainer answers.

    Args:
        run: The run directory.
        kind: The command that it is to take.

    Raises:
        NothingRunsError: The run has ended, or was never started.
        NoTrainerError: The run has processes or waits in a queue.
    """
    status, stop = command_or_key("", "status", run.root), command_or_key("stop", "stop", run.root)
    now = time.time()
    supervisor = living_supervisor(run, now)
    if supervisor is not None and kind is CommandKind.STOP:
        # It carries out a stop while no trainer can, such as during a start.
        return
    alive = [] if supervisor is None else [f"supervisor (process {supervisor.pid})"]
    alive += map(str, orphan_processes(run, now))
    job = None if alive else JobReader().read(read_job_record(run))
    if job is not None and job.is_waiting:
        why = f": {job.explanation or job.reason}" if job.reason else ""
        raise NoTrainerError(
            f"No trainer answers in {run.root}: its batch job {job.record.id} waits in the queue"
            f"{why}.",
            Advice.of(
                "See when it starts with {status}, or cancel it with {stop}.",
                "Cancel it with {stop}.",
                status=status,
                stop=stop,
            ),
        )
    unknown = unknown_job(run, job.record, job.silence) if job is not None else None
    if unknown is not None:
        raise NoTrainerError(
            f"No trainer answers in {run.root}. {unknown.words} Ask as the user of the job, on "
            f"a host where `squeue` works, or cancel it there with `scancel {unknown.record.id}`."
        )
    foreign = () if alive else ProcessWatch(run).look(now)
    if foreign and kind is CommandKind.STOP:
        raise NoTrainerError(
            f"{foreign[0].title} runs in {run.root} without tfckpt_trainer.",
            Advice.of(
                "End it without a save: {stop}.",
                stop=command_or_key("stop", "stop", "--pid", foreign[0].pid, run.root),
            ),
        )
    if foreign:
        raise NoTrainerError(*why_not_steered(run.root, foreign))
    if not alive:
        raise _no_processes(run, kind)
    if supervisor is not None and supervisor.state in _STARTS:
        raise NoTrainerError(
            f"No trainer answers in {run.root} yet: the run is {supervisor.state}.",
            Advice.of(
                "Try again when it trains: see {status}.",
                "Try again when it trains.",
                status=status,
            ),
        )
    raise NoTrainerError(
        f"No trainer answers in {run.root}, but these processes are running: {', '.join(alive)}. "
        "They are starting, hang, or run a script that does not use tfckpt_trainer.",
        Advice.of(
            "See their output with {logs}, or end them with {stop}.",
            logs=command_or_key("logs", "logs", run.root),
            stop=command_or_key("force-stop", "stop", "--force", run.root),
        ),
    )


_STARTS = {SupervisorState.STARTING, SupervisorState.RESTARTING}

_ENDED = {
    RunState.FINISHED: "The run in {} has finished",
    RunState.STOPPED: "The run in {} was stopped before",
    RunState.FAILED: "The run in {} has failed",
    RunState.REFUSED: "Slurm refused the job of the run in {}",
    RunState.UNANSWERED: "Slurm has not said whether it accepted the job of the run in {}",
    RunState.UNATTENDED: "No trainer runs in {}",
}


_OVER = {RunState.FINISHED, RunState.STOPPED, RunState.FAILED}

_NOTHING_TO: Mapping[CommandKind, AbstractSet[RunState]] = {
    CommandKind.STOP: _ENDED.keys(),
    CommandKind.PAUSE: _ENDED.keys(),
    CommandKind.SAVE: _OVER,
    CommandKind.CHECK: _OVER,
    CommandKind.RESUME: {RunState.FINISHED},
}
"""The states in which nobody would start the run for a command of this kind."""


def _no_processes(run: RunDirectory, kind: CommandKind | None) -> NothingRunsError:
    account = brief_account(run.root)
    # A process of which nothing is heard may live on another host.
    if kind is not None and account.state in _NOTHING_TO.get(kind, ()) and account.reported:
        return NothingRunsError(
            f"{_ENDED[account.state].format(run.root)}, so there is nothing to {kind}.",
            only_command("See the state of the run with ", "status", run.root),
        )
    launch = command_or_key("launch", "launch", run.root, "--", "COMMAND")
    status = command_or_key("", "status", run.root)
    return NothingRunsError(
        f"No trainer answers in {run.root}.",
        Advice.of(
            "Start one with {launch}, or see the state of the run with {status}.",
            "Start one with {launch}.",
            launch=launch,
            status=status,
        ),
    )


def why_unanswered(run: RunDirectory) -> str:
    """Returns a sentence about the worker that keeps the others from acting; empty if none does."""
    return f" {brief_account(run.root).hang}".rstrip()
