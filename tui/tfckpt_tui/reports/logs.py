"""What `journal` and `logs` print."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_tui.reports.base import Report


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event.

    Attributes:
        at: When.
        kind: What happened.
        message: One sentence.
        step: At which step.
        branch: On which branch.
        checkpoint: About which checkpoint.
        by: Who requested it.
        details: Values, by kind of event.
    """

    at: float
    kind: EventKind
    message: str
    step: int | None
    branch: int | None
    checkpoint: str | None
    by: str
    details: dict[str, Any]


class JournalReport(Report, frozen=True, kw_only=True):
    """Oldest first."""

    entries: tuple[Event, ...]


class LoggedLine(msgspec.Struct, frozen=True):
    """A line of a log.

    Attributes:
        log: `worker-0`, …, `supervisor`.
        at: Time by which it was printed; null if unknown.
        line: The line, without control characters.
    """

    log: str
    at: float | None
    line: str


class LogsReport(Report, frozen=True, kw_only=True):
    """The last lines of the logs."""

    lines: tuple[LoggedLine, ...]


class FollowedLineReport(LoggedLine, Report, frozen=True):
    """One document for each line."""

    variant: ClassVar[str] = "--follow"
