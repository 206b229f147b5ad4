"""What threads tell the app: typed messages, never a touch of a widget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textual.message import Message

from tfckpt_tui.monitor.background_verifier import VerificationOutcome
from tfckpt_tui.monitor.snapshot import RunSnapshot


class SnapshotTaken(Message):
    """The monitor looked; only the newest look matters."""

    def __init__(self, snapshot: RunSnapshot) -> None:
        super().__init__()
        self.snapshot = snapshot

    def can_replace(self, message: Message) -> bool:
        """A newer snapshot takes the place of one that nobody handled yet."""
        return isinstance(message, SnapshotTaken)


class JobDone(Message):
    """Something done in a thread came to its end.

    Attributes:
        result: What it returned.
        then: What to do with it, in the app's own thread.
    """

    def __init__(self, result: Any, then: Callable[[Any], None]) -> None:
        super().__init__()
        self.result = result
        self.then = then


class JobFailed(Message):
    """Something done in a thread failed.

    Attributes:
        what: The action.
        problem: The message of the error, safe to show.
        otherwise: What to do with it; None shows it until it is dismissed.
    """

    def __init__(
        self, what: str, problem: str, otherwise: Callable[[str], None] | None = None
    ) -> None:
        super().__init__()
        self.what = what
        self.problem = problem
        self.otherwise = otherwise


class VerificationEnded(Message):
    """A checkpoint was verified, or could not be."""

    def __init__(self, outcome: VerificationOutcome) -> None:
        super().__init__()
        self.outcome = outcome
