"""Asks a live trainer to do something, and follows what becomes of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tfckpt_trainer.catalog.scan.foreign_writers import Foreign, foreign_writers
from tfckpt_trainer.errors import NoTrainerError, RefusedError, TfckptError
from tfckpt_trainer.launch.orphans import living_supervisor, orphan_processes
from tfckpt_trainer.rundir.command_queue import CommandBox, requester
from tfckpt_trainer.rundir.health import trainer_answers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import Command, CommandKind, CommandState
from tfckpt_trainer.rundir.reserve import (
    advice_beside_trainer,
    advice_for_undo_beside_trainer,
    advising,
    is_short,
    release_reserve,
    with_room,
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
    box = CommandBox(run)
    by = requester(through)
    is_undo = kind is CommandKind.UNDO
    advice = advice_for_undo_beside_trainer(run) if is_undo else advice_beside_trainer(run)
    with advising(advice):
        command = with_room(
            run, lambda: box.submit(kind, arguments, requested_by=by, lifetime=timeout)
        )
    if not wait:
        return command
    outcome = box.wait(command, timeout=timeout, on_change=on_change)
    if outcome.state is CommandState.REQUESTED:
        outcome = box.withdraw(outcome) or box.look_up(command.id) or outcome
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
    """

    answers: bool
    foreign: Foreign | None
    may_update_state_file: bool

    @property
    def in_use(self) -> dict[str, str]:
        """Names of checkpoints that a process may be reading or writing, each with the reason."""
        if self.foreign is None:
            return {}
        changed = dict.fromkeys(self.foreign.fresh_checkpoints, "its files changed a moment ago")
        return changed | dict.fromkeys(self.foreign.open_checkpoints, "open in another process")


def detect_trainer(run: RunDirectory, *, on_full_disk: bool = False) -> TrainerPresence:
    """Returns whether a trainer uses `run`; every command that changes checkpoints asks here.

    Args:
        run: The run directory.
        on_full_disk: Whether to release the disk reserve, so that a trainer on a full disk can
            write its heartbeat, and to wait for that.

    Raises:
        OSError: The directory cannot be read.
    """
    if trainer_answers(run, time.time()) or (on_full_disk and _answers_with_room(run)):
        return TrainerPresence(answers=True, foreign=None, may_update_state_file=False)
    found = foreign_writers(run, time.time())
    is_our_run = run.run_file.exists()
    # In a run of this library, a recent file is its own last save.
    is_evidence = bool(found.processes) if is_our_run else found.is_likely
    return TrainerPresence(
        answers=False,
        foreign=found if is_evidence else None,
        may_update_state_file=is_our_run and not is_evidence,
    )


def _answers_with_room(run: RunDirectory) -> bool:
    if not (is_short(run) and release_reserve(run)):
        return False
    deadline = time.monotonic() + HEARTBEAT_SECONDS
    while time.monotonic() < deadline:
        if trainer_answers(run, time.time()):
            return True
        time.sleep(0.1)
    return False
