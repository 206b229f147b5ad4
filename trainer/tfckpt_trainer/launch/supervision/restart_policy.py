"""Decides what a supervisor does next; pure functions that touch no process."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from tfckpt_trainer.errors import ExitCode
from tfckpt_trainer.rundir.records.failure import OutOfMemory, ScriptFault
from tfckpt_trainer.rundir.records.worker import Ending
from tfckpt_trainer.scripts.exit_statuses import exit_words
from tfckpt_trainer.words.counts import all_are

LONGEST_PAUSE_SECONDS = 60.0

AT_ONCE_SECONDS = 60.0
"""A script that fails sooner than this, without a heartbeat, failed at once."""

HEALTHY_SECONDS = 600.0
"""After this long, if a checkpoint was saved, the next restart has no pause."""

REPEATED = "The same cause ended it twice without a new checkpoint in between."

PORT_RETRIES = 3
"""How often other ports are tried after another program took one."""

_MEMORY_WORDS = {
    OutOfMemory.COUNTED: "because memory ran out",
    OutOfMemory.LOGGED: "because memory ran out",
    OutOfMemory.ON_HOST: "perhaps because memory ran out",
}

_FROM_OUTSIDE = {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


class Next(Enum):
    """The next action of a supervisor."""

    WAIT = auto()
    REPLACE = auto()
    FINISH = auto()
    STOP = auto()
    RESTART = auto()
    FAIL = auto()


@dataclass(frozen=True)
class Limits:
    """The limits of a supervisor; see `LaunchOptions`. Times in seconds.

    Attributes:
        max_restarts: How often all workers are restarted, and how often one of them is replaced,
            without a new checkpoint in between.
        pause_seconds: Pause before the first restart; it doubles with each further one.
        start_timeout: Time limit for a worker's first heartbeat, once others have one.
        hang_seconds: Time without a step, while all train, after which all workers are restarted;
            None for no limit.
        fixed_ports: Whether the user chose the ports, so that no others can be tried.
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
        ending: The ending in the worker's last heartbeat, if it uses this library.
        detail: The cause in its last heartbeat, or the error or last line in its log.
        port_taken: Whether its log says that its port was taken.
        silent: Whether it counts as ended only because it sends no more messages.
        fault: The error of its script, if that is why it ended.
        step: The step in its last heartbeat.
        memory_bytes: Its memory in that heartbeat.
        memory_limit_bytes: The memory that it could use, if that is known.
        out_of_memory: Whether the kernel killed a process for lack of memory.
    """

    index: int
    code: int
    ending: Ending | None = None
    detail: str = ""
    port_taken: bool = False
    silent: bool = False
    fault: ScriptFault | None = None
    step: int | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    out_of_memory: OutOfMemory | None = None

    @property
    def is_victim(self) -> bool:
        """Whether it exited only because another worker was lost.

        Its last heartbeat says so. The status is the user's choice, so it tells only for scripts
        that leave no last heartbeat.
        """
        if self.ending is None:
            return self.code == ExitCode.RESTART_WORKERS
        return self.ending is Ending.PEER_LOST

    @property
    def by_itself(self) -> bool:
        """Whether the script itself failed, instead of being killed from outside."""
        return not self.is_victim and -self.code not in _FROM_OUTSIDE

    @property
    def cause(self) -> str:
        """What made the script fail, to be compared with an earlier failure; empty if unknown.

        The message of an error can name a step, so its type and line count. Of kills, only those
        for memory that the worker itself used are of the script.
        """
        if self.fault is not None and self.fault.place:
            return f"{self.fault.place}: {self.fault.error.partition(':')[0]}"
        if self.code > 0 and not self.detail:
            return ""
        own_memory = {OutOfMemory.COUNTED, OutOfMemory.LOGGED}
        return describe_exit(self) if self.by_itself or self.out_of_memory in own_memory else ""


@dataclass(frozen=True)
class Attempt:
    """The observed state of one start of all workers.

    Attributes:
        workers: Number of workers.
        seconds: Seconds since they were started.
        exits: The workers that have ended, in that order.
        heard: Indexes of workers that have written a heartbeat. A script that does not use this
            library writes none.
        opened: Whether the run exists in all workers: their starts are over but for the restore.
        stepped: Whether any worker made a step.
        step: The last one that a heartbeat has; None if none has.
        saved: Whether a checkpoint was committed.
        stands_for: Seconds since any worker made a step, if all train; else 0.
        suspect: The worker that seems to hold up the others, and why.
        silent: The worker that is stopped or sends no heartbeat, and why.
        silent_before: Seconds by which that is seen later, because its heartbeats are rare.
        call_seconds: How long a call takes on the slowest worker; 0 if that is unknown.
        in_script: Whether all workers run code of the script between two steps.
        replaceable: Indexes of workers without which the others train on: those that compute for a
            chief.
        replaced: How often one of these was started again since the newest checkpoint.
    """

    workers: int
    seconds: float
    exits: tuple[Exit, ...] = ()
    heard: frozenset[int] = frozenset()
    opened: bool = False
    stepped: bool = False
    step: int | None = None
    saved: bool = False
    stands_for: float = 0.0
    suspect: tuple[int, str] | None = None
    silent: tuple[int, str] | None = None
    silent_before: float = 0.0
    call_seconds: float = 0.0
    in_script: bool = False
    replaceable: frozenset[int] = frozenset()
    replaced: int = 0

    @property
    def ended_at_once(self) -> bool:
        """Whether it ended soon, before any worker made a step or wrote a heartbeat."""
        return not self.stepped and not self.heard and self.seconds < AT_ONCE_SECONDS


@dataclass(frozen=True)
class EarlierAttempts:
    """What earlier attempts left to consider.

    Attributes:
        restarts: Number of restarts since the last checkpoint that was saved.
        in_a_row: Number of restarts of which none trained for long.
        port_retries: How often in a row other ports were tried.
        causes: Why the script failed since then; see `Exit.cause`.
    """

    restarts: int = 0
    in_a_row: int = 0
    port_retries: int = 0
    causes: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Decision:
    """The next action and its reason.

    Attributes:
        verdict: The sentence of the reason that says why nothing is restarted.
        is_outside: Whether what ended the workers was no fault of the script.
        hangs: Whether the workers stand still, and can still be asked at which line.
        culprit: The worker that failed first, if one did.
        lost: Index of the worker that died or did not start.
        pause_seconds: Pause before a restart.
        history: The history for the next attempt.
    """

    next: Next
    reason: str = ""
    culprit: Exit | None = None
    lost: int | None = None
    pause_seconds: float = 0.0
    history: EarlierAttempts = EarlierAttempts()
    verdict: str = ""
    is_outside: bool = False
    hangs: bool = False


def decide(attempt: Attempt, history: EarlierAttempts, limits: Limits) -> Decision:
    """Decides the next action for an attempt.

    If a worker dies, all workers are restarted, or only this one if the others train on without it.
    There are three exceptions: a script that fails at its first start before any heartbeat, a
    script that fails twice for the same cause without a new checkpoint in between, and too many
    restarts without one.
    """
    culprit = _culprit(attempt.exits)
    if culprit is not None:
        if _is_replaced(attempt, limits):
            words = f"Worker {culprit.index} {describe_exit(culprit)}"
            reason = f"{_ended(words)} The others train on, and it is started again."
            lost = culprit.index
            return Decision(Next.REPLACE, reason, culprit, lost, history=history)
        return _after_failure(culprit, attempt, history, limits)
    if len(attempt.exits) == attempt.workers:
        stopped = {Ending.STOPPED, Ending.PREEMPTED}
        if any(ended.ending in stopped for ended in attempt.exits):
            return Decision(Next.STOP, "The run was stopped.", history=history)
        words = "All workers finished."
        if not attempt.heard:
            words += " They wrote no heartbeat: the script does not use tfckpt_trainer."
        return Decision(Next.FINISH, words, history=history)
    silent = _silent(attempt, limits)
    if silent is not None:
        reason = f"Worker {silent} wrote no heartbeat within {limits.start_timeout:g} s"
        return replace(_again(reason, "", attempt, history, limits), lost=silent)
    if limits.hang_seconds is not None and attempt.stands_for > limits.hang_seconds:
        return _after_hang(attempt, history, limits)
    return Decision(Next.WAIT, history=history)


def describe_exit(ended: Exit) -> str:
    """Describes how a worker ended."""
    if ended.silent:
        return "is gone, or its node is"
    if ended.code < 0:
        why = f" {_MEMORY_WORDS[ended.out_of_memory]}" if ended.out_of_memory is not None else ""
        return f"{exit_words(ended.code)}{why}"
    cause = f": {ended.detail}" if ended.detail else ""
    return f"{exit_words(ended.code)}{cause}"


def pause_before(restart: int, base: float) -> float:
    """Returns how many seconds to wait before restart number `restart`, counted from 1."""
    # Bounded, because a float overflows; the pause has reached its limit long before.
    return min(base * 2.0 ** min(restart - 1, 64), LONGEST_PAUSE_SECONDS)


def _culprit(exits: Sequence[Exit]) -> Exit | None:
    failed = [ended for ended in exits if ended.code != 0 and ended.ending is not Ending.PREEMPTED]
    return next((ended for ended in failed if not ended.is_victim), failed[0] if failed else None)


def _is_replaced(attempt: Attempt, limits: Limits) -> bool:
    """Whether only workers ended that can be replaced, and not too often."""
    ended = {ended.index for ended in attempt.exits}
    is_rare = attempt.replaced < limits.max_restarts
    return is_rare and attempt.stepped and ended <= attempt.replaceable


def _silent(attempt: Attempt, limits: Limits) -> int | None:
    if not attempt.heard or attempt.seconds < limits.start_timeout:
        return None
    indices = attempt.heard | {ended.index for ended in attempt.exits}
    return next((index for index in range(attempt.workers) if index not in indices), None)


def _after_failure(
    culprit: Exit, attempt: Attempt, history: EarlierAttempts, limits: Limits
) -> Decision:
    lost = _left_by(culprit, attempt)
    silent = "" if lost == culprit.index else f"Worker {lost} did not react, and then worker "
    reason = f"{silent or 'Worker '}{culprit.index} {describe_exit(culprit)}"
    if culprit.port_taken and not attempt.stepped:
        decision = _after_port_clash(reason, history, limits)
    elif culprit.by_itself and attempt.ended_at_once and not history.restarts:
        decision = _give_up(reason, "It failed at once and is not restarted.")
    elif not attempt.saved and culprit.cause in history.causes:
        decision = _give_up(reason, REPEATED)
    else:
        decision = _again(reason, culprit.cause, attempt, history, limits)
    is_outside = not culprit.by_itself and culprit.out_of_memory is None
    return replace(decision, culprit=culprit, lost=lost, is_outside=is_outside)


def _left_by(culprit: Exit, attempt: Attempt) -> int:
    """Returns who was lost first: the worker that a victim waited for, if that is known."""
    silent = attempt.silent[0] if attempt.silent is not None else culprit.index
    has_ended = any(ended.index == silent for ended in attempt.exits)
    return silent if culprit.is_victim and not has_ended else culprit.index


def _after_hang(attempt: Attempt, history: EarlierAttempts, limits: Limits) -> Decision:
    index, why = attempt.suspect or (0, "")
    cause = f"worker {index} {why}" if why else "no worker reports a cause"
    reason = f"No worker made a step in {attempt.stands_for:.0f} s: {cause}"
    return replace(_again(reason, "", attempt, history, limits), lost=index, hangs=True)


def _after_port_clash(reason: str, history: EarlierAttempts, limits: Limits) -> Decision:
    if limits.fixed_ports:
        advice = "Launch again with other ports, or without ports to use free ones."
        return _give_up(reason, advice)
    if history.port_retries >= PORT_RETRIES:
        return _give_up(reason, f"Other ports were tried {PORT_RETRIES} times.")
    tried = replace(history, port_retries=history.port_retries + 1)
    return Decision(Next.RESTART, f"{_ended(reason)} Other ports are tried.", history=tried)


def _again(
    reason: str, cause: str, attempt: Attempt, history: EarlierAttempts, limits: Limits
) -> Decision:
    healthy = attempt.saved and attempt.seconds >= HEALTHY_SECONDS
    in_a_row = 0 if healthy else history.in_a_row
    restarts = 0 if attempt.saved else history.restarts
    causes = frozenset() if attempt.saved else history.causes
    if restarts >= limits.max_restarts:
        used = (
            f"{all_are(limits.max_restarts, 'restart')} used, without a new checkpoint."
            if limits.max_restarts
            else "No restarts are allowed."
        )
        return _give_up(reason, used)
    return Decision(
        Next.RESTART,
        _ended(reason),
        # No pause after the first failure of a run that trained; repeated failures get one.
        pause_seconds=0.0
        if attempt.stepped and not in_a_row
        else pause_before(in_a_row + 1, limits.pause_seconds),
        history=EarlierAttempts(
            restarts=restarts + 1,
            in_a_row=in_a_row + 1,
            causes=causes | {cause} if cause else causes,
        ),
    )


def _give_up(reason: str, verdict: str) -> Decision:
    return Decision(Next.FAIL, f"{_ended(reason)} {verdict}", verdict=verdict)


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith((".", "!", "?", "…")) else f"{sentence}."
