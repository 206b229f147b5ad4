"""Messages from background threads to the app. Threads never touch widgets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textual.message import Message

from tfckpt_tui.monitor.background_verifier import VerificationOutcome
from tfckpt_tui.monitor.snapshot import RunSnapshot


class SnapshotTaken(Message):
    """The monitor took a snapshot; only the newest one matters."""

    def __init__(self, snapshot: RunSnapshot) -> None:
        super().__init__()
        self.snapshot = snapshot

    def can_replace(self, message: Message) -> bool:
        """Returns whether this snapshot replaces one that is still in the queue."""
        return isinstance(message, SnapshotTaken)


class JobDone(Message):
    """A job ended.

    Attributes:
        result: What it returned.
        then: Receives the result, in the thread of the app.
    """

    def __init__(self, result: Any, then: Callable[[Any], None]) -> None:
        super().__init__()
        self.result = result
        self.then = then


class JobFailed(Message):
    """A job failed.

    Attributes:
        what: The name of the action.
        problem: The message of the error, safe to show.
        otherwise: Receives the message; None shows it until the user dismisses it.
    """

    def __init__(
        self, what: str, problem: str, otherwise: Callable[[str], None] | None = None
    ) -> None:
        super().__init__()
        self.what = what
        self.problem = problem
        self.otherwise = otherwise


class VerificationEnded(Message):
    """The verification of a checkpoint ended."""

    def __init__(self, outcome: VerificationOutcome) -> None:
        super().__init__()
        self.outcome = outcome
