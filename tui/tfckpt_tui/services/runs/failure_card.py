"""What happened to a run that failed, restarts or is degraded, as a record and as lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tfckpt_trainer.rundir.heartbeats.health import RunState, WorkerState
from tfckpt_trainer.rundir.heartbeats.stragglers import find_straggler, is_process_gone
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import SUPERVISOR, EventEntry, EventKind
from tfckpt_trainer.rundir.records.failure import OutOfMemory, ScriptFault, WorkerLoss
from tfckpt_trainer.rundir.records.run import SupervisorState
from tfckpt_trainer.rundir.records.worker import Ending, WorkerStatus
from tfckpt_trainer.words.advice import Advice, command_or_key
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean, clean_message
from tfckpt_tui.reports.run_facts import FailureFacts, WorkerPlace
from tfckpt_tui.services.runs.heartbeats import Heartbeats

EXPLAINED = frozenset({RunState.FAILED, RunState.RESTARTING, RunState.DEGRADED})
"""States of a run that are explained."""

LOG = "log"
"""Label of the lines of a log."""

_MOST_LINES = 20
_MOST_PLACES = 16
_MOST_SPANS = 4
_MOST_STACKS = 1024
_LONGEST_INDEX = 9
_LONGEST = 300
_STARTS = {EventKind.START, EventKind.RESTART}
_HANGS = {EventKind.DEGRADED, EventKind.STALLED}
_NOBODY = "Nothing starts it again."
_MEMORY_WORDS = {
    OutOfMemory.COUNTED: "The kernel killed it because memory ran out.",
    OutOfMemory.LOGGED: "Slurm reports that memory ran out.",
    OutOfMemory.ON_HOST: "The kernel killed a process on this host because memory ran out: "
    "perhaps this one.",
}


class Trouble(msgspec.Struct, frozen=True):
    """A run whose failure is explained.

    Attributes:
        run: The run directory.
        state: What it does.
        reason: Why, as sentences.
        heartbeats: What its processes last said.
        event_log: The newest entries of the event log, oldest first.
    """

    run: RunDirectory
    state: RunState
    reason: str
    heartbeats: Heartbeats
    event_log: Sequence[EventEntry]

    @property
    def has_ended_workers(self) -> bool:
        """Whether a process of a worker ended, although the run did not."""
        return bool(self._ended_jobs)

    @property
    def trains_on(self) -> bool:
        """Whether only processes ended that compute for a chief."""
        has_chief = any(status.job == "chief" for status in self.heartbeats.statuses)
        return has_chief and set(self._ended_jobs) == {"worker"}

    @property
    def _ended_jobs(self) -> list[str]:
        return [
            status.job
            for status, state in self.heartbeats.workers
            if state is WorkerState.EXITED
            or (state is WorkerState.LOST and is_process_gone(status, self.heartbeats.lives))
        ]

    def status(self, index: int | None) -> WorkerStatus | None:
        """Returns the heartbeat of a worker."""
        return next((s for s in self.heartbeats.statuses if s.index == index), None)


class _Cause(NamedTuple):
    """What failed first: what is recorded of it, when it was, and how it shows."""

    at: float | None
    message: str
    loss: WorkerLoss


def explain_failure(
    trouble: Trouble, checkpoint: str | None, checkpoint_step: int | None, lost_steps: int
) -> FailureFacts | None:
    """Returns what happened to a run; None unless it failed, restarts or is degraded.

    Args:
        trouble: The run.
        checkpoint: From which a start continues, if there is one.
        checkpoint_step: Its step.
        lost_steps: Steps after it that were lost, as far as the heartbeats say.
    """
    if trouble.state not in EXPLAINED:
        return None
    recorded = _recorded(trouble)
    is_alive = recorded is None and not trouble.has_ended_workers
    hangs = is_alive and trouble.state is RunState.DEGRADED
    cause = recorded or (_of_a_hang(trouble) if hangs else _reported(trouble))
    loss = cause.loss
    fault = loss.fault or ScriptFault(error="")
    # If the start after the loss failed, the reason says why, after the loss.
    verdict = loss.verdict or _after(cause.message, trouble.reason)
    next_words, next_at = _next(trouble, verdict)
    chief = trouble.heartbeats.chief
    saves = chief.saves if chief is not None else None
    reached = chief.step if hangs and chief is not None else loss.step
    if not lost_steps and reached is not None:
        lost_steps = max(0, reached - (checkpoint_step or 0))
    knows_seconds = saves is not None and saves.unsaved_steps == lost_steps
    return FailureFacts(
        at=cause.at,
        hangs=hangs,
        message=_short(cause.message),
        worker=loss.worker,
        step=loss.step,
        exit_code=loss.exit_code,
        place=_short(fault.place),
        function=_short(fault.function),
        source=_short(fault.source),
        error=_short(fault.error),
        log=tuple(clean(line[:_LONGEST]) for line in loss.log[-_MOST_LINES:]),
        memory_bytes=loss.memory_bytes,
        memory_limit_bytes=loss.memory_limit_bytes,
        disk_free_bytes=loss.disk_free_bytes,
        out_of_memory=loss.out_of_memory,
        others=_together(
            _places(trouble) if hangs else _endings(trouble, loss.worker, fault),
        ),
        checkpoint=clean(checkpoint) if checkpoint is not None else None,
        checkpoint_step=checkpoint_step,
        lost_steps=lost_steps,
        lost_seconds=saves.unsaved_seconds if saves is not None and knows_seconds else None,
        next=next_words,
        next_start_at=next_at,
    )


def how_to_act(facts: FailureFacts, root: Path) -> Advice | None:
    """Returns how to end a run that hangs; None if it does not.

    Args:
        facts: What happened.
        root: The run directory.
    """
    if not facts.hangs:
        return None
    stop = command_or_key("force-stop", "stop", "--force", root)
    return Advice.of("End its processes with {stop}.", stop=stop)


def failure_rows(facts: FailureFacts, now: float, act: str = "") -> Iterator[tuple[str, str]]:
    """Yields the lines of a card, each with its label: what happened first, the log last.

    Args:
        facts: What happened.
        now: Seconds since the epoch.
        act: How to act, as a sentence; empty if that is not said.
    """
    yield "failure", _what(facts)
    if facts.out_of_memory is not None:
        yield "cause", _MEMORY_WORDS[facts.out_of_memory]
    if facts.error:
        yield "error", facts.error
    if facts.place:
        function = f" in {facts.function}" if facts.function else ""
        yield "line", f"{facts.place}{function}"
    if facts.source:
        yield "", f"  {facts.source}"
    yield "resume", _resume(facts)
    left = facts.next_start_at - now if facts.next_start_at is not None else 0.0
    soon = f", in {units.duration(left)}." if left >= 1 else "."
    yield "next", f"{facts.next.removesuffix('.')}{soon} {act}".rstrip()
    for place in facts.others:
        yield _workers(place.workers), place.words
    resources = _resources(facts)
    if resources:
        yield "memory" if facts.memory_bytes is not None else "disk", resources
    for text in facts.log:
        yield LOG, text


def printed_rows(facts: FailureFacts, now: float, act: str = "") -> Iterator[tuple[str, str]]:
    """Yields the same lines, without a label that is that of the line before."""
    before = ""
    for label, text in failure_rows(facts, now, act):
        yield "" if label == before else label, text
        before = label


def failure_text(facts: FailureFacts, now: float, root: Path) -> list[str]:
    """Returns the same as lines of text, with the command to act."""
    act = str(how_to_act(facts, root) or "")
    return [f"{label:<9} {text}" for label, text in printed_rows(facts, now, act)]


def _what(facts: FailureFacts) -> str:
    """Returns what happened, when and at which step."""
    clock = units.local_time(facts.at, "%H:%M:%S") if facts.at else ""
    if facts.hangs:
        return f"{facts.message} The last known step ended at {clock}." if clock else facts.message
    at = f" at {clock}" if clock else ""
    later = "" if _has_told_all(facts) else " or later"
    step = f", at step {facts.step:,}{later}" if facts.step is not None else ""
    return f"{facts.message.removesuffix('.')}{at}{step}." if at or step else facts.message


def _resources(facts: FailureFacts) -> str:
    words = []
    if facts.memory_bytes is not None:
        of = f" of {units.size(facts.memory_limit_bytes)}" if facts.memory_limit_bytes else ""
        words.append(f"{units.size(facts.memory_bytes)}{of} at its last heartbeat.")
    if facts.disk_free_bytes is not None:
        words.append(f"{units.size(facts.disk_free_bytes)} free on the disk.")
    return " ".join(words)


def _has_told_all(facts: FailureFacts) -> bool:
    """Whether no step can have followed the last heartbeat: nothing killed or stopped a process."""
    return not facts.hangs and facts.exit_code is not None and facts.exit_code >= 0


def _resume(facts: FailureFacts) -> str:
    steps = units.count(facts.lost_steps, "step")
    took = f" ({units.duration(facts.lost_seconds)})" if facts.lost_seconds else ""
    fate = "not saved" if facts.hangs else "lost"
    is_sure = _has_told_all(facts)
    known = "" if is_sure else "at least "
    lost = f"{known}{steps} {units.noun(facts.lost_steps, 'is', 'are')} {fate}{took}."
    if facts.checkpoint is None:
        return f"there is no checkpoint; {lost}" if facts.lost_steps else "there is no checkpoint."
    kept = facts.checkpoint
    if facts.checkpoint_step is not None:
        kept += f", step {facts.checkpoint_step:,}"
    if facts.lost_steps:
        return f"{kept}; {lost}"
    if is_sure:
        return f"{kept}; no step is lost."
    fate = "not be saved" if facts.hangs else "be lost"
    return f"{kept}; steps after the last heartbeat may {fate}."


def _workers(indexes: Sequence[int]) -> str:
    """Returns `worker 3`, `workers 0, 2-5`, or `workers 0, 2, 4, 6 …`."""
    spans: list[list[int]] = []
    for index in indexes:
        if spans and index == spans[-1][1] + 1:
            spans[-1][1] = index
        else:
            spans.append([index, index])
    shown = ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans[:_MOST_SPANS])
    more = " …" if len(spans) > _MOST_SPANS else ""
    return f"{units.noun(len(indexes), 'worker')} {shown}{more}"


def _recorded(trouble: Trouble) -> _Cause | None:
    """Returns the loss of a worker that the supervisor noted since the newest start.

    In a restart, since the first one: the restart and its restore are noted before it trains.
    """
    restarts = trouble.state is RunState.RESTARTING
    for entry in reversed(trouble.event_log):
        if entry.kind in _STARTS and not restarts:
            return None
        if entry.kind is EventKind.START and entry.by == SUPERVISOR:
            return None
        loss = loss_of(entry.details) if entry.kind is EventKind.WORKER_LOST else None
        if loss is not None:
            return _Cause(entry.at, how_it_ended(loss) or entry.message, loss)
    return None


def newest_loss(
    event_log: Sequence[EventEntry], since: EventKind | None = None
) -> tuple[float, WorkerLoss] | None:
    """Returns the newest loss of a worker that the supervisor noted, and when; None without one.

    Args:
        event_log: Entries of the event log, oldest first.
        since: Only losses after the newest entry of this kind; None for all.
    """
    for entry in reversed(event_log):
        if entry.kind is since:
            return None
        loss = loss_of(entry.details) if entry.kind is EventKind.WORKER_LOST else None
        if loss is not None:
            return entry.at, loss
    return None


def loss_of(details: Mapping[str, Any]) -> WorkerLoss | None:
    """Returns what an event of the supervisor says about a lost worker; None if it says nothing."""
    with suppress(msgspec.ValidationError, UnicodeError):
        loss = msgspec.convert(details, WorkerLoss)
        return loss if loss.worker is not None else None
    return None


def how_it_ended(loss: WorkerLoss) -> str:
    """Returns how a worker ended, as a sentence; empty if it did not."""
    if loss.signal:
        return f"Worker {loss.worker} was killed by {loss.signal}."
    if loss.exit_code is None:
        return ""
    # Imported here, as below: few runs fail.
    from tfckpt_trainer.scripts.exit_statuses import exit_words

    return f"Worker {loss.worker} {exit_words(loss.exit_code)}."


def _reported(trouble: Trouble) -> _Cause:
    """Returns which worker failed first by its own last heartbeat."""
    failed = [s for s in trouble.heartbeats.statuses if s.ending is Ending.FAILED]
    first = min(failed, key=lambda status: status.updated_at, default=None)
    if first is None:
        lost = [s for s, state in trouble.heartbeats.workers if state is WorkerState.LOST]
        first = min(lost, key=lambda status: status.updated_at, default=None)
        return _Cause(first.updated_at if first else None, trouble.reason, _loss_of(first))
    fault = first.fault or ScriptFault(error=first.detail)
    loss = msgspec.structs.replace(_loss_of(first), fault=fault)
    return _Cause(first.updated_at, f"Worker {first.index} failed.", loss)


def _of_a_hang(trouble: Trouble) -> _Cause:
    """Returns which worker does not react, or that no worker makes a step."""
    heartbeats = trouble.heartbeats
    index, _ = find_straggler(heartbeats.statuses, heartbeats.now, heartbeats.lives) or (None, "")
    if index is None:
        lost = (s for s, state in heartbeats.workers if state is WorkerState.LOST)
        index = next((status.index for status in lost), None)
    status = trouble.status(index)
    steps = [s.last_step_at for s in heartbeats.statuses if s.last_step_at is not None]
    message = trouble.reason or "No worker makes a step."
    return _Cause(max(steps, default=None), message, _loss_of(status))


def _loss_of(status: WorkerStatus | None) -> WorkerLoss:
    if status is None:
        return WorkerLoss()
    return WorkerLoss(
        worker=status.index, step=status.step or None, memory_bytes=status.memory_bytes
    )


def _together(words_of: Iterable[tuple[int, str]]) -> tuple[WorkerPlace, ...]:
    """Returns what workers did, with those that did the same together."""
    by_words: dict[str, list[int]] = {}
    for index, words in words_of:
        if words:
            by_words.setdefault(words, []).append(index)
    places = (WorkerPlace(workers=tuple(who), words=words) for words, who in by_words.items())
    return tuple(islice(places, _MOST_PLACES))


def _places(trouble: Trouble) -> Iterator[tuple[int, str]]:
    """Yields where the script of each worker of a run that hangs is, if that was asked."""
    since = takewhile(lambda entry: entry.kind not in _STARTS, reversed(trouble.event_log))
    entry = next((entry for entry in since if entry.kind in _HANGS), None)
    stacks = entry.details.get("stacks") if entry is not None else None
    if not isinstance(stacks, Mapping):
        return
    for index, place in islice(stacks.items(), _MOST_STACKS):
        if isinstance(index, str) and index.isdecimal() and isinstance(place, str):
            yield int(index[:_LONGEST_INDEX]), _short(place)


def _endings(trouble: Trouble, first: int | None, fault: ScriptFault) -> Iterator[tuple[int, str]]:
    """Yields how each other worker ended."""
    for status in trouble.heartbeats.statuses:
        if status.index != first:
            yield status.index, _ending_words(status, fault)


def _ending_words(status: WorkerStatus, fault: ScriptFault) -> str:
    """Returns how a worker ended beside one that failed; empty if it did not."""
    if status.ending is Ending.PEER_LOST:
        return "ended because it lost a worker."
    if status.ending is not Ending.FAILED:
        return ""
    is_same = status.fault is not None and status.fault == fault
    if is_same:
        return "failed in the same way."
    return f"failed: {_short(status.detail)}" if status.detail else "failed."


def _after(beginning: str, text: str) -> str:
    """Returns what follows the beginning of a text; empty if it does not begin so."""
    return text.removeprefix(beginning).strip() if text.startswith(beginning) else ""


def _next(trouble: Trouble, verdict: str) -> tuple[str, float | None]:
    """Returns what the supervisor does, and when it starts the workers again."""
    supervisor = trouble.heartbeats.living_supervisor
    if trouble.state is RunState.FAILED:
        return _short(f"{verdict} {_NOBODY}".strip()), None
    if supervisor is None:
        return "No supervisor watches this run. " + _NOBODY, None
    if trouble.state is RunState.RESTARTING:
        used = f"restart {supervisor.restarts} of {supervisor.max_restarts}"
        used = f" ({used})" if supervisor.restarts else ""
        waits = supervisor.state is SupervisorState.RESTARTING
        at = supervisor.next_start_at if waits else None
        return f"All workers {'start' if waits else 'are starting'} again{used}.", at
    if trouble.trains_on:
        return "The others train on. The supervisor starts it again, or else all workers.", None
    if trouble.has_ended_workers:
        return "The supervisor ends the other workers, and then starts all again or gives up.", None
    from tfckpt_tui.services.runs.launch_form import last_launch

    options = last_launch(trouble.run)
    seconds = options.hang_seconds if options is not None else None
    if seconds is None:
        return "The supervisor waits: it restarts all workers only when one ends.", None
    limit = units.duration(seconds)
    return f"The supervisor restarts all workers after {limit} without a step.", None


def _short(text: str) -> str:
    """Returns a text from outside as one safe line of bounded length."""
    shown = clean_message(text[: 4 * _LONGEST])
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…"
