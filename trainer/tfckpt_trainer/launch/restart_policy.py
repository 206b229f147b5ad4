"""What a supervisor does next: decided from what it sees, without touching a process."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from tfckpt_trainer.errors import ExitCode
from tfckpt_trainer.rundir.records.worker import Ending

LONGEST_PAUSE_SECONDS = 60.0

AT_ONCE_SECONDS = 60.0
"""A script that fails sooner than this, and without a heartbeat, failed at once."""

HEALTHY_SECONDS = 600.0
"""Training for this long and saving a checkpoint gives back the restarts used before."""

PORT_RETRIES = 3
"""How often other ports are tried when another program took one in between."""

_FROM_OUTSIDE = {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


class Next(Enum):
    """The next move of a supervisor."""

    WAIT = auto()
    FINISH = auto()
    STOP = auto()
    RESTART = auto()
    FAIL = auto()


@dataclass(frozen=True)
class Limits:
    """How patient a supervisor is; times in seconds.

    Attributes:
        max_restarts: How often all workers are started again after one died.
        pause_seconds: Before the first restart; it doubles with each further one.
        start_timeout: When a worker without a heartbeat, beside others with one, is given up.
        hang_seconds: After this long without a step, while all train, they are started again;
            None is never.
        fixed_ports: Whether a person chose the ports, so that no others can be tried.
    """

    max_restarts: int = 3
    pause_seconds: float = 1.0
    start_timeout: float = 180.0
    hang_seconds: float | None = None
    fixed_ports: bool = False


@dataclass(frozen=True)
class Exit:
    """How one worker ended.

    Attributes:
        code: Exit status; negative for a signal.
        ending: What the worker itself said at the end, if it uses our library.
        detail: What it said it died of, or the last line of its log.
        port_taken: Whether its log tells that another program had its port.
    """

    index: int
    code: int
    ending: Ending | None = None
    detail: str = ""
    port_taken: bool = False

    @property
    def is_victim(self) -> bool:
        """Whether it only left because another worker was gone."""
        return self.code == ExitCode.RESTART_WORKERS

    @property
    def by_itself(self) -> bool:
        """Whether the script failed or crashed, rather than being killed from outside."""
        return self.code != ExitCode.RESTART_WORKERS and -self.code not in _FROM_OUTSIDE


@dataclass(frozen=True)
class Attempt:
    """What is seen of one start of all workers.

    Attributes:
        workers: How many there are.
        seconds: Since they were started.
        exits: Of those that ended, in the order in which they did.
        heard: Indexes of those that ever wrote a heartbeat. A script that does not use our
            library writes none.
        stepped: Whether any made a step.
        saved: Whether a checkpoint was committed.
        stands_for: Seconds since any of them made a step, where all train; else 0.
        suspect: The worker that seems to hold up the others, and why.
    """

    workers: int
    seconds: float
    exits: tuple[Exit, ...] = ()
    heard: frozenset[int] = frozenset()
    stepped: bool = False
    saved: bool = False
    stands_for: float = 0.0
    suspect: tuple[int, str] | None = None

    @property
    def fruitless(self) -> bool:
        """Whether it ended, as far as can be seen, before it did anything."""
        return not self.stepped and (bool(self.heard) or self.seconds < AT_ONCE_SECONDS)


@dataclass(frozen=True)
class History:
    """What counts of the attempts before.

    Attributes:
        restarts: How many are used.
        port_retries: How often other ports were tried in a row.
        failure: How the attempt before failed, if it was fruitless.
    """

    restarts: int = 0
    port_retries: int = 0
    failure: str = ""


@dataclass(frozen=True)
class Decision:
    """What to do, and why, in words for a person.

    Attributes:
        culprit: The worker that died first, where one did.
        lost: Index of the worker that died or did not come up.
        pause_seconds: Before a restart.
        history: With which the next attempt is judged.
    """

    next: Next
    reason: str = ""
    culprit: Exit | None = None
    lost: int | None = None
    pause_seconds: float = 0.0
    history: History = History()


def decide(attempt: Attempt, history: History, limits: Limits) -> Decision:
    """Decides what follows from what is seen of an attempt.

    A worker that dies takes all down, and all are started again. Not worth a restart is a
    script that fails at its very first start before any worker gave a sign of life, and one
    that fails by itself twice in the same way without a step in between.
    """
    culprit = _culprit(attempt.exits)
    if culprit is not None:
        return _after_failure(culprit, attempt, history, limits)
    if len(attempt.exits) == attempt.workers:
        stopped = {Ending.STOPPED, Ending.PREEMPTED}
        if any(ended.ending in stopped for ended in attempt.exits):
            return Decision(Next.STOP, "The run was stopped.", history=history)
        return Decision(Next.FINISH, "All workers ended well.", history=history)
    silent = _silent(attempt, limits)
    if silent is not None:
        reason = f"Worker {silent} gave no sign of life in {limits.start_timeout:g} s"
        return replace(_again(reason, "silent", attempt, history, limits), lost=silent)
    if limits.hang_seconds is not None and attempt.stands_for > limits.hang_seconds:
        return _after_hang(attempt, history, limits)
    return Decision(Next.WAIT, history=history)


def describe_exit(ended: Exit) -> str:
    """Says how a worker ended, for a person."""
    if ended.code < 0:
        return f"was killed by {signal_name(-ended.code)}"
    said = f": {ended.detail}" if ended.detail else ""
    return f"ended with status {ended.code}{said}"


def signal_name(number: int) -> str:
    """Returns `SIGKILL` for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def pause_before(restart: int, base: float) -> float:
    """Returns how many seconds to wait before restart number `restart`, counted from 1."""
    # The exponent is bounded because a float is not: the pause has long reached its limit.
    return min(base * 2.0 ** min(restart - 1, 64), LONGEST_PAUSE_SECONDS)


def _culprit(exits: Sequence[Exit]) -> Exit | None:
    failed = [ended for ended in exits if ended.code != 0 and ended.ending is not Ending.PREEMPTED]
    return next((ended for ended in failed if not ended.is_victim), failed[0] if failed else None)


def _silent(attempt: Attempt, limits: Limits) -> int | None:
    if not attempt.heard or attempt.seconds < limits.start_timeout:
        return None
    known = attempt.heard | {ended.index for ended in attempt.exits}
    return next((index for index in range(attempt.workers) if index not in known), None)


def _after_failure(culprit: Exit, attempt: Attempt, history: History, limits: Limits) -> Decision:
    way = describe_exit(culprit)
    reason = f"Worker {culprit.index} {way}"
    if culprit.port_taken and not attempt.stepped:
        decision = _after_port_clash(reason, history, limits)
    elif culprit.by_itself and not attempt.heard and attempt.fruitless and not history.restarts:
        decision = Decision(Next.FAIL, f"{_ended(reason)} It failed at once and is not restarted.")
    elif culprit.by_itself and attempt.fruitless and way == history.failure:
        decision = Decision(
            Next.FAIL, f"{_ended(reason)} It was the second time in a row, without one step."
        )
    else:
        decision = _again(reason, way, attempt, history, limits)
    return replace(decision, culprit=culprit, lost=culprit.index)


def _after_hang(attempt: Attempt, history: History, limits: Limits) -> Decision:
    index, why = attempt.suspect or (0, "no worker says why")
    reason = f"No step was made in {attempt.stands_for:.0f} s: worker {index} {why}"
    return replace(_again(reason, "hang", attempt, history, limits), lost=index)


def _after_port_clash(reason: str, history: History, limits: Limits) -> Decision:
    if limits.fixed_ports:
        advice = "Choose other ports with --ports, or leave the choice to the launcher."
        return Decision(Next.FAIL, f"{_ended(reason)} {advice}")
    if history.port_retries >= PORT_RETRIES:
        return Decision(Next.FAIL, f"{_ended(reason)} Other ports were tried {PORT_RETRIES} times.")
    tried = replace(history, port_retries=history.port_retries + 1)
    return Decision(Next.RESTART, f"{_ended(reason)} Other ports are tried.", history=tried)


def _again(reason: str, way: str, attempt: Attempt, history: History, limits: Limits) -> Decision:
    healthy = attempt.saved and attempt.seconds >= HEALTHY_SECONDS
    restarts = 0 if healthy else history.restarts
    if restarts >= limits.max_restarts:
        used = (
            f"All {limits.max_restarts} restarts are used."
            if limits.max_restarts
            else "No restarts are allowed."
        )
        return Decision(Next.FAIL, f"{_ended(reason)} {used}")
    return Decision(
        Next.RESTART,
        _ended(reason),
        # A first death after training may be anything; one after the other is a pattern.
        pause_seconds=0.0
        if attempt.stepped and not restarts
        else pause_before(restarts + 1, limits.pause_seconds),
        history=History(restarts=restarts + 1, failure=way if attempt.fruitless else ""),
    )


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith((".", "!", "?", "…")) else f"{sentence}."
