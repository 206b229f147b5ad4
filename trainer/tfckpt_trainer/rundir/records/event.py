"""Lines of the event log and of the metric series."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from tfckpt_trainer.rundir.storage.documents import Document


class EventKind(StrEnum):
    """Kinds of events in the event log."""

    START = "start"
    SAVE = "save"
    RESTORE = "restore"
    PRUNE = "prune"
    UNDO = "undo"
    EMPTY = "empty trash"
    PAUSE = "pause"
    RESUME = "resume"
    SET = "set"
    GUARD = "guard"
    STOP = "stop"
    FINISH = "finish"
    REFUSED = "refused"
    FAILED = "failed"
    EXPIRED = "expired"
    NOT_FINITE = "not finite"
    WORKER_LOST = "worker lost"
    DEGRADED = "degraded"
    STALLED = "stalled"
    RESTART = "restart"
    SUBMIT = "submit"
    REQUEUE = "requeue"
    PREEMPT = "preempt"
    PIN = "pin"
    UNPIN = "unpin"
    EXPORT = "export"
    NOTE = "note"


SUPERVISOR = "supervisor"
"""The author of a supervisor's events."""


BEGINS = "begins"
"""Detail of an event about hyperparameters: steps done when they change."""

CHANGE = "change"
"""The detail of a change of hyperparameters that has it as a `ConfirmedChange`."""

NEXT_START = "next_start"
"""The detail that says that a person chose the checkpoint of the next start."""


class EventEntry(Document, frozen=True, kw_only=True):
    """One event, a line of `journal.jsonl`."""

    at: float
    kind: EventKind
    message: str
    step: int | None = None
    branch: int | None = None
    checkpoint: str | None = None
    by: str = ""
    details: dict[str, Any] = {}


class SeriesPoint(Document, frozen=True, kw_only=True):
    """One point of the metric series, a line of `series.jsonl`. None stands for NaN."""

    at: float
    step: int
    branch: int
    metrics: dict[str, float | None] = {}
    examples_per_second: float | None = None
    step_seconds: float | None = None
