"""Asks a live trainer to do something, and follows what becomes of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tfckpt_trainer.errors import NoTrainerError, RefusedError, TfckptError
from tfckpt_trainer.launch.orphans import living_supervisor, orphan_processes
from tfckpt_trainer.rundir.command_queue import CommandQueue, requester
from tfckpt_trainer.rundir.health import trainer_answers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import Command, CommandKind, CommandState
from tfckpt_trainer.rundir.reserve import (
    advice_beside_trainer,
    advice_for_undo_beside_trainer,
    replace_advice,
    retry_with_reserve,
)

DEFAULT_TIMEOUT = 120.0
"""Seconds to wait for an outcome, unless a person says otherwise."""

OnChange = Callable[[Command], None]


def ask(
    run: RunDirectory,
    kind: CommandKind,
    arguments: dict[str, Any] | None = None,
    *,
    through: str,
    wait: bool = True,
    timeout: float = DEFAULT_TIMEOUT,
    on_change: OnChange | None = None,
) -> Command:
    """Drops a command for the trainer of `run`.

    Args:
        run: The run directory.
        kind: What to do.
        arguments: As `Command.arguments` says.
        through: Which front end asks, for the journal: `terminal app`, `command line`.
        wait: Whether to follow it to its end.
        timeout: Seconds to wait; a command that nobody took by then is withdrawn.
        on_change: Told of each change while waiting.

    Returns:
        The command as it is now: done, or on its way if it was not waited for.

    Raises:
        DiskFullError: The disk has no room for the command.
        NoTrainerError: No trainer lives, or none took it in time.
        RefusedError: The trainer refused.
        TfckptError: It failed, or its end was not seen in time.
    """
    if not trainer_answers(run, time.time()):
        raise _nobody_answers(run)
    queue = CommandQueue(run)
    by = requester(through)
    is_undo = kind is CommandKind.UNDO
    advice = advice_for_undo_beside_trainer(run) if is_undo else advice_beside_trainer(run)
    with replace_advice(advice):
        command = retry_with_reserve(
            run, lambda: queue.submit(kind, arguments, requested_by=by, lifetime=timeout)
        )
    if not wait:
        return command
    outcome = queue.wait(command, timeout=timeout, on_change=on_change)
    if outcome.state is CommandState.REQUESTED:
        outcome = queue.withdraw(outcome) or queue.look_up(command.id) or outcome
    return _checked(outcome, timeout)


def _nobody_answers(run: RunDirectory) -> NoTrainerError:
    """Returns the error for a run without a trainer: what lives of it, and what to do."""
    now = time.time()
    supervisor = living_supervisor(run, now)
    alive = [] if supervisor is None else [f"supervisor (process {supervisor.pid})"]
    alive += map(str, orphan_processes(run, now))
    if not alive:
        return NoTrainerError(
            f"No trainer answers in {run.root}; start one with `tfckpt-tui launch {run.root} "
            "-- COMMAND`, or look at the run with `tfckpt-tui status`."
        )
    return NoTrainerError(
        f"No trainer answers in {run.root}, and processes of it live: {', '.join(alive)}. They "
        "are starting, hang, or run a script that does not use tfckpt_trainer. Look at them with "
        f"`tfckpt-tui logs {run.root}`, or end them with `tfckpt-tui stop --force {run.root}`."
    )


def _checked(outcome: Command, timeout: float) -> Command:
    if outcome.state is CommandState.DONE:
        return outcome
    if outcome.state is CommandState.EXPIRED:
        raise NoTrainerError(
            f"{outcome.kind.value}: {outcome.message} Look at it with `tfckpt-tui status`; "
            "`tfckpt-tui stop --force` ends one that hangs."
        )
    if outcome.state is CommandState.REFUSED:
        raise RefusedError(outcome.message)
    if outcome.state is CommandState.FAILED:
        raise TfckptError(f"{outcome.kind.value} failed: {outcome.message}")
    raise TfckptError(
        f"{outcome.kind.value} was not finished in {timeout:g} s; it is {outcome.state.value}: "
        f"{outcome.message} Follow it in `tfckpt-tui journal`."
    )
