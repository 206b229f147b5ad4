"""Lines of the journal and of the metric series."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from tfckpt_trainer.rundir.documents import Document


class JournalKind(StrEnum):
    """What the journal tells of."""

    START = "start"
    SAVE = "save"
    RESTORE = "restore"
    PRUNE = "prune"
    UNDO = "undo"
    EMPTY = "empty trash"
    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"
    FINISH = "finish"
    REFUSED = "refused"
    FAILED = "failed"
    EXPIRED = "expired"
    WORKER_LOST = "worker lost"
    RESTART = "restart"
    PIN = "pin"
    UNPIN = "unpin"
    EXPORT = "export"
    NOTE = "note"


class JournalEntry(Document, frozen=True, kw_only=True):
    """One line of `journal.jsonl`: what happened, when, who asked and why."""

    at: float
    kind: JournalKind
    message: str
    step: int | None = None
    branch: int | None = None
    checkpoint: str | None = None
    by: str = ""
    details: dict[str, Any] = {}


class SeriesPoint(Document, frozen=True, kw_only=True):
    """One line of `series.jsonl`: training at one moment; None stands for not-a-number."""

    at: float
    step: int
    branch: int
    metrics: dict[str, float | None] = {}
    examples_per_second: float | None = None
    step_seconds: float | None = None
