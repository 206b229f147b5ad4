"""Commands to the trainer and their outcomes."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import msgspec

from tfckpt_trainer.advice import Advice
from tfckpt_trainer.rundir.storage.documents import Document


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
