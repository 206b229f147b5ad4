"""What the commands print that start and steer a run."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, UnsetType

from tfckpt_trainer.rundir.records.command import CommandKind, CommandState, Transition
from tfckpt_tui.reports.base import Report


class CommandFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A command to the trainer, and its outcome.

    Attributes:
        id: Identifier of the command, also in the event log.
        kind: What was asked for.
        requested_at: When.
        expires_at: If no trainer has claimed it by then, it is never carried out.
        requested_by: `user@host, front end`.
        arguments: `name`, `partial` and `values` for a restore, `save` for a stop, `steps` for a
            check, `values`, `at_step`, `over` and `until_step` for a set.
        state: `done`; with `--no-wait` `requested`.
        seen_by: Workers that have received it.
        worker_count: Number of workers.
        step: The step at which all workers acted.
        message: One sentence.
        result: For a save: `name`, `step`, `branch`, `bytes`, `seconds`, `stall_seconds`, `already`
            (the step was saved before). For a restore: `name`, `step`, `branch`, `variables`,
            `workers`, `seconds`, `notes`, `inputs` (what was done with each input pipeline that is
            not at its exact position), `left_out`, `hyperparameters` (those of `--set`, as for a
            set). For a pause and a resume: `step`. For a stop:
            `step`, and the `name` of the checkpoint that it saved. For a check: `exact`, and what
            differs. For a set: `step`, and `hyperparameters`: `name`, `before` and `after` of each.
        history: The states that it was in.
    """

    id: str
    kind: CommandKind
    requested_at: float
    expires_at: float
    requested_by: str
    arguments: dict[str, Any]
    state: CommandState
    seen_by: tuple[int, ...]
    worker_count: int
    step: int | None
    message: str
    result: dict[str, Any]
    history: tuple[Transition, ...]


class CommandReport(Report, frozen=True, kw_only=True):
    """A command to the trainer, and its outcome."""

    command: CommandFacts


class QuickCheckReport(CommandFacts, Report, frozen=True, kw_only=True):
    """The command to the trainer, and its outcome. Exit code 1 if a repeated step differs."""

    variant: ClassVar[str] = "--quick"


class NextStartReport(Report, frozen=True, kw_only=True):
    """Where the next start of a run that has ended continues.

    Attributes:
        checkpoint: The checkpoint that the next start continues from.
        message: One sentence.
        launch: The command that launches the run with its last options.
        warnings: Which variables do not match the model.
        values: Hyperparameters that then have other values than in the checkpoint, by name.
    """

    variant: ClassVar[str] = "--next-start"

    checkpoint: str
    message: str
    launch: str
    warnings: tuple[str, ...]
    values: dict[str, float]


class ForcedStopReport(Report, frozen=True, kw_only=True):
    """Printed if processes had to be ended by signals, or if a batch job was cancelled instead.

    Attributes:
        stopped: True: the processes have ended.
        message: One sentence.
        warnings: Problems that did not prevent the action.
    """

    variant: ClassVar[str] = "--force"

    stopped: bool
    message: str
    warnings: tuple[str, ...]


class LaunchReport(Report, frozen=True, kw_only=True):
    """A run that was started or submitted.

    Attributes:
        directory: The run directory.
        supervisor_pid: The process that watches the workers; null with `--slurm`.
        job: Only with `--slurm`: ID of the batch job.
    """

    directory: str
    supervisor_pid: int | None
    job: str | UnsetType = UNSET


class TensorBoardReport(Report, frozen=True, kw_only=True):
    """If TensorBoard does not run, `running` is the only field.

    Attributes:
        running: Whether TensorBoard is running for this run.
        url: For a browser on this machine.
        port: On the loopback address.
        pid: Its process.
        directory: Where the event files are.
        started: Whether this command started it.
        forward: The `ssh` command to run on your machine.
    """

    running: bool
    url: str | UnsetType = UNSET
    port: int | UnsetType = UNSET
    pid: int | UnsetType = UNSET
    directory: str | UnsetType = UNSET
    started: bool | UnsetType = UNSET
    forward: str | UnsetType = UNSET


class StoppedTensorBoardReport(Report, frozen=True, kw_only=True):
    """The TensorBoard of the run.

    Attributes:
        stopped: Whether there was one.
    """

    variant: ClassVar[str] = "--stop"

    stopped: bool
