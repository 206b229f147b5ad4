"""Commands to the trainer, and what becomes of them."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from tfckpt_trainer.rundir.documents import Document


class CommandKind(StrEnum):
    """What a person or a script can ask of a live trainer."""

    SAVE = "save"
    RESTORE = "restore"
    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"
    PRUNE = "prune"
    UNDO = "undo"


class CommandState(StrEnum):
    """The life of a command; each state is entered only when its evidence exists."""

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
        """Whether nothing follows it."""
        return self in _FINAL


_FINAL = {CommandState.DONE, CommandState.REFUSED, CommandState.FAILED, CommandState.EXPIRED}


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """When a command entered a state, and what was known then."""

    state: CommandState
    at: float
    message: str = ""


class Command(Document, frozen=True, kw_only=True):
    """One request and what became of it.

    Attributes:
        arguments: By kind. Restore: `name`. Stop: `save`. Prune: `names`. Undo: `trash`.
        expires_at: If nobody took it by then it is never carried out.
        requested_by: `user@host`, and through what.
        seen_by: Indexes of the workers that know of it.
        worker_count: Of how many.
        step: The step at which all workers act.
        message: The newest word on it, for a person.
        result: What came of it: the checkpoint's name, bytes, counts, evidence.
        history: All transitions, oldest first.
    """

    id: str
    kind: CommandKind
    requested_at: float
    expires_at: float
    requested_by: str
    arguments: dict[str, Any] = {}
    state: CommandState = CommandState.REQUESTED
    seen_by: list[int] = []
    worker_count: int = 0
    step: int | None = None
    message: str = ""
    result: dict[str, Any] = {}
    history: list[Transition] = []
