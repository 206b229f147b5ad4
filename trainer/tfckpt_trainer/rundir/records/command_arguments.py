"""The arguments of each kind of command: names, types and bounds.

To add a kind of command:

1. Add it to `CommandKind` in `command.py`.
2. Add a record of its arguments here, and to `ARGUMENTS`. Give each argument the narrowest type:
   nothing else checks it.
3. Carry it out in `CommandHandler` in `training/loop/command_handler.py`. All workers call the
   method with the command and its arguments. It may raise: see `CommandHandler.carry_out`.

Clients send the arguments as a dictionary with `services.request.ask`. `parse_arguments` alone
decodes them: when a client submits a command, when the chief claims it, and when it is carried out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.documents import prepare
from tfckpt_trainer.rundir.records.command import CommandKind

LONGEST_NAME = 255
"""Characters of a file name, on all common file systems."""

FileName = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_NAME)]
"""The name of something in the run directory, such as a checkpoint."""


class CommandArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class of all records of arguments; by itself, that of a command without arguments."""


class RestoreArguments(CommandArguments, frozen=True, kw_only=True):
    """What to restore.

    Attributes:
        name: Name of the checkpoint.
        partial: Whether to restore what fits if the checkpoint does not fit the model.
    """

    name: FileName
    partial: bool = False


class StopArguments(CommandArguments, frozen=True, kw_only=True):
    """How to stop.

    Attributes:
        save: Whether to save a checkpoint first.
    """

    save: bool = True


class PruneArguments(CommandArguments, frozen=True, kw_only=True):
    """What to move to the trash.

    Attributes:
        names: Names of the checkpoints.
    """

    names: Annotated[list[FileName], msgspec.Meta(min_length=1)]


class UndoArguments(CommandArguments, frozen=True, kw_only=True):
    """What to move back from the trash.

    Attributes:
        trash: Id of the prune; None for the newest.
    """

    trash: FileName | None = None


class CheckArguments(CommandArguments, frozen=True, kw_only=True):
    """How to check that the next steps repeat exactly after a restore.

    Attributes:
        steps: Steps to repeat.
    """

    steps: Annotated[int, msgspec.Meta(ge=1, le=100)] = 3


ARGUMENTS: Mapping[CommandKind, type[CommandArguments]] = {
    CommandKind.SAVE: CommandArguments,
    CommandKind.RESTORE: RestoreArguments,
    CommandKind.PAUSE: CommandArguments,
    CommandKind.RESUME: CommandArguments,
    CommandKind.STOP: StopArguments,
    CommandKind.PRUNE: PruneArguments,
    CommandKind.UNDO: UndoArguments,
    CommandKind.CHECK: CheckArguments,
}


def parse_arguments(kind: CommandKind, given: Mapping[str, Any]) -> CommandArguments:
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
    except (msgspec.ValidationError, RecursionError) as error:
        known = ", ".join(record.__struct_fields__) or "none"
        raise UsageError(
            f"The arguments of {kind} are invalid: {error}. Its arguments are: {known}."
        ) from None
