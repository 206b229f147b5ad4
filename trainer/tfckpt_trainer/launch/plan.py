"""What a supervisor does next: decided from what it sees, without touching a process."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from tfckpt_trainer.rundir.records import Ending

RESTART_ME = 75
"""Exit status of a worker that lost a peer and wants all to be started again."""

LONGEST_PAUSE_SECONDS = 60.0


class Next(Enum):
    """The next move of a supervisor."""

    WAIT = auto()
    FINISH = auto()
    STOP = auto()
    RESTART = auto()
    FAIL = auto()


@dataclass(frozen=True)
class Exit:
    """How one worker ended.

    Attributes:
        code: Exit status; negative for a signal.
        ending: What the worker itself said at the end, if it uses our library.
        detail: What it said it died of.
        began: Whether it ever wrote a heartbeat in this attempt.
    """

    index: int
    code: int
    ending: Ending | None = None
    detail: str = ""
    began: bool = False

    @property
    def well(self) -> bool:
        """Whether it ended as it should."""
        return self.code == 0


@dataclass(frozen=True)
class Decision:
    """What to do, and why, in words for a person."""

    next: Next
    reason: str = ""


def decide(
    exits: Sequence[Exit], workers: int, *, restarts_left: int, max_restarts: int
) -> Decision:
    """Decides what follows from the workers that ended so far.

    Args:
        exits: Of the workers that ended, in the order in which they did.
        workers: How many there are in all.
        restarts_left: How often they may be started again.
        max_restarts: How often that was in all, for the message.
    """
    culprit = next((e for e in exits if not e.well and e.code != RESTART_ME), None)
    culprit = culprit or next((e for e in exits if not e.well), None)
    if culprit is None:
        if len(exits) < workers:
            return Decision(Next.WAIT)
        stopped = {Ending.STOPPED, Ending.PREEMPTED}
        if any(e.ending in stopped for e in exits):
            return Decision(Next.STOP, "The run was stopped.")
        return Decision(Next.FINISH, "All workers ended well.")
    reason = f"Worker {culprit.index} {describe_exit(culprit)}"
    if not culprit.began and culprit.code > 0 and culprit.code != RESTART_ME:
        return Decision(Next.FAIL, f"{reason} before it began to train.")
    if restarts_left <= 0:
        return Decision(Next.FAIL, f"{reason}; it was restarted {max_restarts} times.")
    return Decision(Next.RESTART, f"{reason}.")


def describe_exit(ended: Exit) -> str:
    """Says how a worker ended, for a person."""
    if ended.code < 0:
        try:
            return f"was killed by {signal.Signals(-ended.code).name}"
        except ValueError:
            return f"was killed by signal {-ended.code}"
    said = f": {ended.detail}" if ended.detail else ""
    return f"ended with status {ended.code}{said}"


def pause_before(attempt: int, base: float) -> float:
    """Returns how many seconds to wait before restart number `attempt`, counted from 1."""
    return float(min(base * 2 ** (attempt - 1), LONGEST_PAUSE_SECONDS))
