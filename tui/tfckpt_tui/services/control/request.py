"""Send a command to the trainer of a run, and wait for its outcome."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from tfckpt_trainer.errors import NothingRunsError, NoTrainerError, RefusedError, TfckptError
from tfckpt_trainer.rundir.command_queue import CommandQueue, requester
from tfckpt_trainer.rundir.disk_reserve import begin_change
from tfckpt_trainer.rundir.full_disk import (
    advice_beside_trainer,
    advice_for_undo_beside_trainer,
    replace_advice,
)
from tfckpt_trainer.rundir.heartbeats.reading import trainer_answers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import (
    Command,
    CommandArguments,
    CommandKind,
    CommandState,
)
from tfckpt_trainer.words.advice import Advice, command_or_key

if TYPE_CHECKING:
    from tfckpt_trainer.rundir.records.event import EventKind

DEFAULT_TIMEOUT = 120.0
"""Seconds to wait for an outcome by default."""

_FOLLOW_SECONDS = 3600.0
_FOLLOW_POLL_SECONDS = 1.0

OnChange = Callable[[Command], None]


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
    # Imported here: what a trainer carries out, it notes itself.
    from tfckpt_trainer.rundir.event_log import note_event

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
    began = time.monotonic()
    outcome = queue.wait(
        command, timeout=timeout, on_change=on_change, goes_on=lambda: not _has_ended(run)
    )
    if outcome.state is CommandState.REQUESTED:
        outcome = queue.withdraw(outcome) or queue.look_up(command.id) or outcome
    return _require_done(run, outcome, min(timeout, time.monotonic() - began))


def _has_ended(run: RunDirectory) -> bool:
    try:
        require_trainer(run)
    except TfckptError as error:
        return isinstance(error, NothingRunsError)
    return False


def follow(run: RunDirectory, command: Command, ended: threading.Event) -> None:
    """Waits for the outcome of a command, and withdraws it if no trainer takes it in time.

    Args:
        run: The run directory.
        command: The command that was submitted.
        ended: Is set when the app has ended.
    """
    CommandQueue(run).wait(command, timeout=_FOLLOW_SECONDS, poll=_FOLLOW_POLL_SECONDS, ended=ended)


def require_trainer(run: RunDirectory, kind: CommandKind | None = None) -> None:
    """Makes sure that a trainer can take commands, or a supervisor a stop.

    Args:
        run: The run directory.
        kind: The command that it is to take, for the message.

    Raises:
        NothingRunsError: The run has ended, or was never started.
        NoTrainerError: No trainer of the run answers, but it has processes or waits in a queue.
    """
    if trainer_answers(run, time.time()):
        return
    # Imported here: it needs the whole account of the run, which no trainer that answers needs.
    from tfckpt_tui.services.control.no_trainer import require_supervisor

    require_supervisor(run, kind)


def _require_done(run: RunDirectory, outcome: Command, timeout: float) -> Command:
    if outcome.state is CommandState.DONE:
        return outcome
    from tfckpt_tui.services.control.no_trainer import why_unanswered

    kind = outcome.kind.value
    if outcome.state is CommandState.EXPIRED:
        status = command_or_key("", "status", run.root)
        stop = command_or_key("force-stop", "stop", "--force", run.root)
        end = "End a trainer that hangs with {stop}."
        raise NoTrainerError(
            f"{kind}: {outcome.message}{why_unanswered(run)}",
            Advice.of(
                f"See the state of the run with {{status}}. {end}", end, status=status, stop=stop
            ),
        )
    if outcome.state is CommandState.REFUSED:
        raise RefusedError(outcome.message, outcome.advice)
    if outcome.state is CommandState.FAILED:
        raise TfckptError(f"{kind} failed: {outcome.message}", outcome.advice)
    event_log = command_or_key("events", "journal", run.root)
    if _has_ended(run):
        said = f" Its last words: {outcome.message}" if outcome.message else ""
        raise TfckptError(
            f"The trainer ended before it answered, so {kind} may be done or not.{said}",
            Advice.of("{event_log} tells whether it is.", event_log=event_log),
        )
    raise TfckptError(
        f"{kind} was not done within {timeout:g} s; it is {outcome.state.value}: {outcome.message}"
        f"{why_unanswered(run)}",
        Advice.of("See the outcome later with {event_log}.", event_log=event_log),
    )
