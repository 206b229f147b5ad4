"""What `act` prints."""

from __future__ import annotations

import msgspec

from tfckpt_tui.reports.base import Report


class ActionRunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One run of an action.

    Attributes:
        checkpoints: The checkpoints that it was for; empty if it was for the run.
        exit_code: Of the command; null if it was not run, negative if a signal ended it.
        seconds: How long it took.
        values: The numbers that were stored, by name.
        problem: Why it failed; empty if it did not.
    """

    checkpoints: tuple[str, ...]
    exit_code: int | None
    seconds: float
    values: dict[str, float]
    problem: str


class ActionReport(Report, frozen=True, kw_only=True):
    """What an action of the user did. Exit code 1 if it failed.

    Attributes:
        action: Its name.
        runs: Each time it was run, in order.
    """

    action: str
    runs: tuple[ActionRunFacts, ...]
