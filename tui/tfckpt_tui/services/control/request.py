"""Send a command to the trainer of a run, and wait for its outcome."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from tfckpt_trainer.advice import Advice, command_or_key, only_command
from tfckpt_trainer.catalog.directory.saved_model import NEEDED, VARIABLES, is_in_saved_model
from tfckpt_trainer.catalog.directory.symbolic_links import linked_from_below
from tfckpt_trainer.catalog.scan.foreign_writers import ForeignWriters, foreign_writers
from tfckpt_trainer.errors import NoTrainerError, RefusedError, TfckptError
from tfckpt_trainer.launch.processes.orphans import living_supervisor, orphan_processes
from tfckpt_trainer.launch.slurm.job_record import read_job_record, unknown_job
from tfckpt_trainer.launch.supervision.stop import living_processes, stop_supervisor
from tfckpt_trainer.rundir.command_queue import CommandQueue, requester
from tfckpt_trainer.rundir.disk_reserve import begin_change, is_space_low, release_reserve
from tfckpt_trainer.rundir.event_log import note_event
from tfckpt_trainer.rundir.full_disk import (
    advice_beside_trainer,
    advice_for_undo_beside_trainer,
    replace_advice,
)
from tfckpt_trainer.rundir.heartbeats.health import RunState, trainer_answers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import (
    Command,
    CommandArguments,
    CommandKind,
    CommandState,
)
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.run import SupervisorState
from tfckpt_tui.services.batch.job_reader import JobReader
from tfckpt_tui.services.runs.brief_reading import brief_account

FORCE_SECONDS = 60.0
"""Seconds that the processes have to save and exit before they are killed."""

DEFAULT_TIMEOUT = 120.0
"""Seconds to wait for an outcome by default."""

_FOLLOW_SECONDS = 3600.0
_FOLLOW_POLL_SECONDS = 1.0

OnChange = Callable[[Command], None]


class NothingRunsError(NoTrainerError):
    """No trainer responds, no process of the run lives, and no batch job waits."""


class FrontEnd(StrEnum):
    """The front end that asks for something, as the event log names it."""

    APP = "terminal app"
    COMMAND_LINE = "command line"

    @property
    def requester(self) -> str:
        """Who asks, for commands and the event log."""
        return requester(self)


def log_event(
    run: RunDirectory, kind: EventKind, message: str, *, through: FrontEnd, **fields: Any
) -> str:
    """Writes an entry of the event log about an action of this process; see `note_event`.

    Args:
        run: The run directory.
        kind: The kind of event.
        message: What was done, as a sentence.
        through: The front end that asked.
        **fields: Other fields of `EventEntry`.

    Returns:
        A sentence for the user if the entry could not be written; empty if it was.
    """
    return note_event(run, kind, message, by=through.requester, **fields)


def ask(
    run: RunDirectory,
    arguments: CommandArguments,
    *,
    through: FrontEnd,
    wait: bool = True,
    timeout: float = DEFAULT_TIMEOUT,
    on_change: OnChange | None = None,
    has_answered: bool = False,
) -> Command:
    """Sends a command to the trainer of a run.

    Args:
        run: The run directory.
        arguments: The arguments of the command, whose record names its kind.
        through: The front end that asks, for the event log.
        wait: Whether to wait for the outcome.
        timeout: Seconds to wait. A command that no trainer took by then is withdrawn.
        on_change: Called with each change of the command while waiting.
        has_answered: Whether the trainer answered just now, so that this need not be looked at.

    Returns:
        The command: done, or as submitted if `wait` is false.

    Raises:
        DiskFullError: The disk has no room for the command.
        NotWritableError: The directory is read-only, or belongs to another user.
        NoTrainerError: No trainer runs, or none took the command in time.
        RefusedError: The trainer refused.
        TfckptError: The command failed, or was not done in time.
    """
    kind = arguments.kind
    if not has_answered:
        require_trainer(run, kind)
    queue = CommandQueue(run)
    by, given = through.requester, msgspec.to_builtins(arguments)
    is_undo = kind is CommandKind.UNDO
    advice = advice_for_undo_beside_trainer(run) if is_undo else advice_beside_trainer(run)
    with replace_advice(advice):
        command = begin_change(
            run, lambda: queue.submit(kind, given, requested_by=by, lifetime=timeout)
        )
    if not wait:
        return command
    outcome = queue.wait(command, timeout=timeout, on_change=on_change)
    if outcome.state is CommandState.REQUESTED:
        outcome = queue.withdraw(outcome) or queue.look_up(command.id) or outcome
    return _require_done(run, outcome, timeout)


def follow(run: RunDirectory, command: Command) -> None:
    """Waits for the outcome of a command, and withdraws it if no trainer takes it in time."""
    CommandQueue(run).wait(command, timeout=_FOLLOW_SECONDS, poll=_FOLLOW_POLL_SECONDS)


def require_trainer(run: RunDirectory, kind: CommandKind | None = None) -> None:
    """Makes sure that a trainer can take commands, or a supervisor a stop.

    Args:
        run: The run directory.
        kind: The command that it is to take, for the message.

    Raises:
        NothingRunsError: The run has ended, or was never started.
        NoTrainerError: No trainer of the run answers, but it has processes or waits in a queue.
    """
    if detect_trainer(run).answers:
        return
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
            f"No trainer answers in {run.root}. {unknown.words} Use a host where `squeue` works, "
            f"or cancel the job there with `scancel {unknown.record.id}`."
        )
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


def _require_done(run: RunDirectory, outcome: Command, timeout: float) -> Command:
    if outcome.state is CommandState.DONE:
        return outcome
    kind = outcome.kind.value
    if outcome.state is CommandState.EXPIRED:
        status = command_or_key("", "status", run.root)
        stop = command_or_key("force-stop", "stop", "--force", run.root)
        end = "End a trainer that hangs with {stop}."
        raise NoTrainerError(
            f"{kind}: {outcome.message}{_why_unanswered(run)}",
            Advice.of(
                f"See the state of the run with {{status}}. {end}", end, status=status, stop=stop
            ),
        )
    if outcome.state is CommandState.REFUSED:
        raise RefusedError(outcome.message, outcome.advice)
    if outcome.state is CommandState.FAILED:
        raise TfckptError(f"{kind} failed: {outcome.message}", outcome.advice)
    event_log = command_or_key("events", "journal", run.root)
    raise TfckptError(
        f"{kind} was not done within {timeout:g} s; it is {outcome.state.value}: {outcome.message}"
        f"{_why_unanswered(run)}",
        Advice.of("See the outcome later with {event_log}.", event_log=event_log),
    )


def _why_unanswered(run: RunDirectory) -> str:
    """Returns a sentence about the worker that keeps the others from acting; empty if none does."""
    silent = brief_account(run.root).silent
    return "" if silent is None else f" Worker {silent.status.index} {silent.silence}."


HEARTBEAT_SECONDS = 3.0
"""How long to wait for the heartbeat of a trainer whose disk was full."""


@dataclass(frozen=True)
class TrainerPresence:
    """Whether a trainer uses a run directory, which decides who changes its checkpoints.

    Attributes:
        answers: A trainer of this library takes commands, and carries out the change itself.
        foreign: Evidence of a trainer that does not use this library; None if there is none.
        may_update_state_file: Whether this process may rewrite TensorFlow's state file. A trainer
            that does not use this library would overwrite it with its own list.
        needed: Names of checkpoints that something else needs, each with the reason: a link in a
            subdirectory, or a SavedModel.
    """

    answers: bool
    foreign: ForeignWriters | None
    may_update_state_file: bool
    needed: Mapping[str, str] = field(default_factory=dict)

    @property
    def in_use(self) -> dict[str, str]:
        """Names of checkpoints that other programs may use, each with the reason."""
        needed = dict(self.needed)
        if self.foreign is None:
            return needed
        changed = dict.fromkeys(self.foreign.fresh_checkpoints, "its files changed a moment ago")
        opened = dict.fromkeys(self.foreign.open_checkpoints, "open in another process")
        return changed | opened | needed


def detect_trainer(run: RunDirectory, *, on_full_disk: bool = False) -> TrainerPresence:
    """Returns whether a trainer uses `run`; every command that changes checkpoints asks here.

    Args:
        run: The run directory.
        on_full_disk: Whether to release the disk reserve, so that a trainer on a full disk can
            write its heartbeat, and to wait for that.

    Raises:
        OSError: The directory cannot be read.
    """
    needed = linked_from_below(run.root)
    if is_in_saved_model(run.root):
        needed[VARIABLES] = NEEDED
    if trainer_answers(run, time.time()) or (on_full_disk and _answers_with_room(run)):
        return TrainerPresence(
            answers=True, foreign=None, may_update_state_file=False, needed=needed
        )
    writers = foreign_writers(run, time.time())
    is_our_run = run.run_file.exists()
    # In a run of this library, a recent file is its own last save.
    is_evidence = bool(writers.processes) if is_our_run else writers.is_likely
    return TrainerPresence(
        answers=False,
        foreign=writers if is_evidence else None,
        may_update_state_file=is_our_run and not is_evidence,
        needed=needed,
    )


def _answers_with_room(run: RunDirectory) -> bool:
    if not (is_space_low(run) and release_reserve(run)):
        return False
    deadline = time.monotonic() + HEARTBEAT_SECONDS
    while time.monotonic() < deadline:
        if trainer_answers(run, time.time()):
            return True
        time.sleep(0.1)
    return False


def require_processes(run: RunDirectory) -> tuple[str, ...]:
    """Describes the processes of a run that live.

    Raises:
        NoTrainerError: There are none.
    """
    processes = living_processes(run)
    if not processes:
        raise _nothing_runs(run)
    return tuple(processes)


def end_processes(run: RunDirectory, *, through: FrontEnd) -> tuple[str, tuple[str, ...]]:
    """Ends supervisor and workers; returns what was done, and warnings.

    Raises:
        NoTrainerError: No process of the run lives.
        LaunchError: One runs on another machine, belongs to another user, or cannot be killed.
    """
    began = time.monotonic()
    warnings: list[str] = []
    if not stop_supervisor(run, FORCE_SECONDS, by=through.requester, on_warning=warnings.append):
        raise _nothing_runs(run)
    message = f"Ended all processes of the run in {time.monotonic() - began:.1f} s."
    return message, tuple(warnings)


def _nothing_runs(run: RunDirectory) -> NoTrainerError:
    """Returns the error that there is nothing to end."""
    return NoTrainerError(f"Nothing is running in {run.root}; there is nothing to stop.")
