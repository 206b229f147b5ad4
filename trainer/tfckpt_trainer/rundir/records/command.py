"""Commands to the trainer: kinds, arguments of each, and outcomes.

CONTRIBUTING.md says how to add a kind. Clients send the record of its arguments by `ask` of
`services.control.request`. `parse_arguments` alone decodes it: when a client submits a command,
when the chief claims it, and when it is carried out. Nothing else checks types and bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar

import msgspec

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.storage.documents import Document, prepare
from tfckpt_trainer.words.advice import Advice

LONGEST_NAME = 255
"""Characters of a file name, on all common file systems."""

MOST_STEPS = 10**15 - 1
"""Steps that JSON and floating-point numbers hold exactly."""

_LONGEST_VALUE = 60
"""Characters of a wrong value that a message shows."""


class CommandKind(StrEnum):
    """Kinds of commands that a live trainer accepts."""

    SAVE = "save"
    RESTORE = "restore"
    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"
    PRUNE = "prune"
    UNDO = "undo"
    CHECK = "check"
    SET = "set"
    SKIP = "skip"
    GUARDS = "guards"
    PROFILE = "profile"


FileName = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_NAME)]
"""The name of something in the run directory, such as a checkpoint."""

CheckpointName = Annotated[FileName, msgspec.Meta(description="the name of a checkpoint")]
Values = dict[FileName, float]
"""Values of hyperparameters, by name."""

Steps = Annotated[int, msgspec.Meta(ge=0, le=MOST_STEPS)]
Flag = Annotated[bool, msgspec.Meta(description="true or false")]


class CommandArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class of all records of arguments.

    Attributes:
        kind: The kind of command that they are for.
    """

    kind: ClassVar[CommandKind]


class SaveArguments(CommandArguments, frozen=True, kw_only=True):
    """A save has no arguments."""

    kind = CommandKind.SAVE


class PauseArguments(CommandArguments, frozen=True, kw_only=True):
    """A pause has no arguments."""

    kind = CommandKind.PAUSE


class ResumeArguments(CommandArguments, frozen=True, kw_only=True):
    """A resume has no arguments."""

    kind = CommandKind.RESUME


class RestoreArguments(CommandArguments, frozen=True, kw_only=True):
    """What to restore.

    Attributes:
        name: Name of the checkpoint.
        partial: Whether to restore what fits if the checkpoint does not fit the model.
        values: Hyperparameters that then have other values than in the checkpoint, by name.
    """

    kind = CommandKind.RESTORE

    name: CheckpointName
    partial: Flag = False
    values: Annotated[
        Values, msgspec.Meta(description="an object of numbers by name, or nothing")
    ] = {}


class StopArguments(CommandArguments, frozen=True, kw_only=True):
    """How to stop.

    Attributes:
        save: Whether to save a checkpoint first.
    """

    kind = CommandKind.STOP

    save: Flag = True


class PruneArguments(CommandArguments, frozen=True, kw_only=True):
    """What to move to the trash.

    Attributes:
        names: Names of the checkpoints.
    """

    kind = CommandKind.PRUNE

    names: Annotated[
        list[FileName],
        msgspec.Meta(min_length=1, description="a list of names of checkpoints, at least one"),
    ]


class UndoArguments(CommandArguments, frozen=True, kw_only=True):
    """What to move back from the trash.

    Attributes:
        trash: Id of the prune; None for the newest.
    """

    kind = CommandKind.UNDO

    trash: Annotated[
        FileName | None, msgspec.Meta(description="the id of a prune, or null for the newest")
    ] = None


class CheckArguments(CommandArguments, frozen=True, kw_only=True):
    """How to check that the next steps repeat exactly after a restore.

    Attributes:
        steps: Steps to repeat.
    """

    kind = CommandKind.CHECK

    steps: Annotated[
        int, msgspec.Meta(ge=1, le=100, description="a whole number from 1 to 100")
    ] = 3


class SetArguments(CommandArguments, frozen=True, kw_only=True):
    """Which hyperparameters to change.

    Attributes:
        values: Their new values, by name.
        at_step: Steps done when the change begins; None for the present step.
        over: Over how many steps the values change, in equal parts; 0 for at once.
        until_step: Steps done when the schedules go on that these values replace; None for values
            that follow no schedule.
    """

    kind = CommandKind.SET

    values: Annotated[
        Values,
        msgspec.Meta(min_length=1, description="an object of numbers by name, at least one"),
    ]
    at_step: Annotated[
        Steps | None, msgspec.Meta(description="a whole number of steps, or null for now")
    ] = None
    over: Annotated[Steps, msgspec.Meta(description="a whole number of steps")] = 0
    until_step: Annotated[
        Steps | None,
        msgspec.Meta(description="a whole number of steps, or null without a schedule"),
    ] = None

    def problem_at(self, step: int) -> str:
        """Returns why it cannot be planned after so many steps, as a sentence, or nothing."""
        begins = step if self.at_step is None else self.at_step
        if begins < step:
            return f"Step {begins:,} has been trained: the run is at step {step:,}."
        ends = begins + self.over
        if self.until_step is not None and self.until_step <= ends:
            return (
                f"The schedule would go on after step {self.until_step:,}, and the change is "
                f"complete after step {ends:,}. Give a later step."
            )
        return ""


class SkipArguments(CommandArguments, frozen=True, kw_only=True):
    """Which input not to train.

    Attributes:
        batches: Steps whose input each worker drops.
        at_step: Steps done when it does; None, or a step that has been trained, for now.
    """

    kind = CommandKind.SKIP

    batches: Annotated[
        int,
        msgspec.Meta(ge=1, le=1_000_000, description="a whole number from 1 to 1,000,000"),
    ]
    at_step: Annotated[
        Steps | None, msgspec.Meta(description="a whole number of steps, or null for now")
    ] = None


CANNOT_SKIP = "The run has no dataset: the script reads its input, so the run cannot skip it."
"""Why a skip is refused, also one that a guard would ask for."""


class GuardsArguments(CommandArguments, frozen=True, kw_only=True):
    """Reading the guards of `config.toml` again has no arguments."""

    kind = CommandKind.GUARDS


class ProfileArguments(CommandArguments, frozen=True, kw_only=True):
    """Which steps to trace.

    Attributes:
        steps: How many, from the next one on.
        workers: Indexes of the workers that trace; None for all. By default the first one alone:
            the profiler of TensorFlow can crash the others; see `training/commands/profile.py`.
    """

    kind = CommandKind.PROFILE

    steps: Annotated[
        int, msgspec.Meta(ge=1, le=1000, description="a whole number from 1 to 1,000")
    ] = 20
    workers: Annotated[
        Annotated[list[Annotated[int, msgspec.Meta(ge=0)]], msgspec.Meta(min_length=1)] | None,
        msgspec.Meta(description="a list of indexes of workers, at least one, or null for all"),
    ] = msgspec.field(default_factory=lambda: [0])


ARGUMENTS: Mapping[CommandKind, type[CommandArguments]] = {
    record.kind: record for record in CommandArguments.__subclasses__()
}


def parse_arguments(kind: CommandKind, given: object) -> CommandArguments:
    """Returns the arguments of a command, checked.

    Args:
        kind: The kind of the command.
        given: Its arguments, as anyone may have written them.

    Raises:
        UsageError: A name, a type or a bound is wrong, or an argument is missing.
    """
    record = ARGUMENTS[kind]
    prepare(record)
    try:
        return msgspec.convert(given, record)
    except (msgspec.ValidationError, RecursionError):
        names = ", ".join(record.__struct_fields__) or "none"
        raise UsageError(
            f"The arguments of {kind} are invalid: {_problem(record, given)}. "
            f"Its arguments are: {names}."
        ) from None


def _problem(record: type[CommandArguments], given: object) -> str:
    """Returns the first difference of arguments from what their record expects."""
    if not isinstance(given, Mapping):
        return f"they are {_shown(given)}; they must be an object, such as {{}}"
    fields = {field.name: field for field in msgspec.structs.fields(record)}
    for name in given:
        if name not in fields:
            return f"there is no argument {_shown(name)}"
    for name, field in fields.items():
        expected = field.type.__metadata__[-1].description
        if name not in given:
            if field.required:
                return f"{name} is missing; it must be {expected}"
            continue
        try:
            msgspec.convert(given[name], field.type)
        except (msgspec.ValidationError, RecursionError):
            return f"{name} is {_shown(given[name])}; it must be {expected}"
    return "they cannot be read"


def _shown(value: object) -> str:
    """Returns a value as JSON, shortened."""
    # Imported here: few commands are refused.
    import json

    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return "a value that JSON cannot hold"
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


class CommandState(StrEnum):
    """State of a command, in the order of its progress."""

    REQUESTED = "requested"
    SEEN = "seen"
    AGREED = "agreed"
    WORKING = "working"
    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"
    EXPIRED = "expired"

    @property
    def is_final(self) -> bool:
        """Whether the command is finished."""
        return self in _FINAL

    @property
    def is_accepted(self) -> bool:
        """Whether a process has taken the command."""
        return self is not CommandState.REQUESTED


_FINAL = {CommandState.DONE, CommandState.REFUSED, CommandState.FAILED, CommandState.EXPIRED}


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """A state that a command was in.

    Attributes:
        state: A state that it was in.
        at: Since when.
        message: Its message at that time.
    """

    state: CommandState
    at: float
    message: str = ""


Timestamp = Annotated[float, msgspec.Meta(ge=0, lt=253402300800)]
"""Seconds since the epoch, before the year 10,000, as calendars can show them."""

Requester = Annotated[str, msgspec.Meta(max_length=1000)]


class Command(Document, frozen=True, kw_only=True):
    """A command and its progress.

    Attributes:
        arguments: As the client wrote them; `parse_arguments` checks them.
        expires_at: Time by the clock of the file system, after which an unclaimed command is not
            carried out.
        requested_by: The requester, as `USER@HOST, THROUGH`.
        seen_by: Indexes of the workers that know the command.
        worker_count: Number of workers of the run.
        step: The step at which all workers carry out the command.
        message: The newest message about its progress.
        advice: What to do next if it was not carried out; None if nothing helps.
        result: The result: name of the checkpoint, bytes, counts.
        history: All transitions, oldest first.
    """

    id: str
    kind: CommandKind
    requested_at: Timestamp
    expires_at: Timestamp
    requested_by: Requester
    arguments: dict[str, Any] = {}
    state: CommandState = CommandState.REQUESTED
    seen_by: list[int] = []
    worker_count: int = 0
    step: int | None = None
    message: str = ""
    advice: Advice | None = None
    result: dict[str, Any] = {}
    history: list[Transition] = []
