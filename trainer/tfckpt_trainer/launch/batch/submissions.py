"""Submissions of batch jobs that did not succeed, as the event log tells of them."""

from __future__ import annotations

from collections.abc import Sequence

from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventEntry, EventKind
from tfckpt_trainer.words.advice import Advice, command_or_key

REFUSED = "refused"
UNANSWERED = "unanswered"
"""What `details["submit"]` of an event says about a submission."""


def look_again(run: RunDirectory) -> Advice:
    """Returns what to do about a submission that the scheduler did not answer."""
    launch = command_or_key("launch", "launch", run.root)
    return Advice.of(
        "Launch the run again: this looks for the job first.",
        "Launch the run again with {launch}: this looks for the job first.",
        launch=launch,
    )


def find_unsuccessful_submission(event_log: Sequence[EventEntry]) -> EventEntry | None:
    """Returns the event of a submission without a job, if no later launch of the run succeeded.

    Args:
        event_log: The newest entries of the event log, oldest first.
    """
    for entry in reversed(event_log):
        if entry.kind in {EventKind.SUBMIT, EventKind.START, EventKind.RESTART}:
            return None
        if entry.details.get("submit") in (REFUSED, UNANSWERED):
            return entry
    return None
