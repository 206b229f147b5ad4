"""Alerts of a run: problems that need a person, although it trains or its processes are well.

`status` and the app show what `find_alerts` returns. To add an alert, add a function to `_FINDERS`.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from tfckpt_trainer.catalog.directory.checkpoints import (
    Checkpoint,
    CheckpointState,
    may_be_finite,
    newest_finite,
)
from tfckpt_trainer.rundir.full_disk import advice_to_free_space
from tfckpt_trainer.rundir.heartbeats.health import WorkerState, start_as_told
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.run import SupervisorStatus
from tfckpt_trainer.rundir.records.worker import (
    BEFORE_RUN,
    Activity,
    NotFiniteMetric,
    Phase,
    SaveStatus,
    WorkerStatus,
)
from tfckpt_trainer.words.advice import Advice, CommandOrKey, command_or_key
from tfckpt_trainer.words.counts import count, join_names

SAVE_FAILED = "save-failed"
SAVE_OVERDUE = "save-overdue"
FILE_UNWRITTEN = "file-unwritten"
NOT_FINITE = "not-finite"
NO_HEARTBEAT = "no-heartbeat"
NO_SUPERVISOR = "no-supervisor"
NO_DIRECTORY = "no-directory"
DAMAGED_CHECKPOINT = "checkpoint-damaged"
UNSUPPORTED_CHECKPOINT = "checkpoint-unsupported"
"""Kinds of alerts."""

LATE_AFTER_INTERVALS = 3
"""Save intervals without a checkpoint after which saves are overdue."""

LATE_AFTER_SECONDS = 10.0
"""Shortest training without a checkpoint after which saves are overdue, in seconds."""

FIRST_START_SECONDS = 180.0
"""How long the first start in a run directory may take: on a busy machine, the import of TensorFlow
alone takes a minute."""

LEAST_START_SECONDS = 30.0
START_FACTOR = 4.0
"""How long a later start may take: at least so many seconds, and so often the longest before."""

CALLS_TO_SAVE = 2
"""Calls in which a save that is due by the clock takes place: all workers act after one."""

_NAMED = 3
"""How many metrics a message names."""

_VALUES = {"nan": "NaN", "inf": "infinite", "-inf": "negative infinite"}

_GOES_ON = frozenset({WorkerState.TRAINING, WorkerState.SAVING, WorkerState.WAITING})
_ENDED = frozenset({WorkerState.EXITED, WorkerState.LOST})

_UNUSABLE = {
    CheckpointState.CORRUPT: DAMAGED_CHECKPOINT,
    CheckpointState.INCOMPLETE: DAMAGED_CHECKPOINT,
    CheckpointState.UNSUPPORTED: UNSUPPORTED_CHECKPOINT,
}


class Alert(msgspec.Struct, frozen=True):
    """A problem of a run.

    Attributes:
        kind: A short name for scripts.
        title: The problem in a few words.
        message: What happened, as sentences.
        advice: What to do.
    """

    kind: str
    title: str
    message: str
    advice: Advice

    @property
    def text(self) -> str:
        """Message and advice, for the command line."""
        return f"{self.message} {self.advice}"


class _Seen(msgspec.Struct, frozen=True):
    """What the alerts are found in."""

    root: Path
    chief: WorkerStatus
    state: WorkerState
    others: Sequence[WorkerStatus]
    checkpoints: Sequence[Checkpoint]

    @property
    def save_command(self) -> CommandOrKey:
        return command_or_key("save", "save", self.root)

    @property
    def has_ended(self) -> bool:
        return self.state in _ENDED


def find_alerts(
    root: Path,
    workers: Sequence[tuple[WorkerStatus, WorkerState]],
    checkpoints: Sequence[Checkpoint],
    supervisor: SupervisorStatus | None = None,
    *,
    supervisor_lives: bool = True,
) -> tuple[Alert, ...]:
    """Returns the alerts of a run, the most urgent first.

    Args:
        root: The run directory, for commands.
        workers: The heartbeats and states of the workers.
        checkpoints: All checkpoints, newest first.
        supervisor: The newest heartbeat of the supervisor.
        supervisor_lives: Whether the process of the supervisor runs.
    """
    lost = None
    if supervisor is not None and supervisor_lives:
        silent = _silent_workers(root, workers, supervisor)
        if silent is not None:
            return (silent,)
    elif supervisor is not None:
        lost = _lost_supervisor(root, workers, supervisor)
    of_supervisor = () if lost is None else (lost,)
    chief = next((worker for worker in workers if worker[0].index == 0), None)
    if chief is None:
        return of_supervisor
    others = [status for status, _ in workers if status.index != 0]
    seen = _Seen(root, *chief, others, checkpoints)
    alerts = tuple(alert for find in _FINDERS if (alert := find(seen)) is not None)
    return (*alerts, *of_supervisor)


def missing_directory_alert(path: str) -> Alert:
    """Returns the alert about a run directory that vanished or cannot be read.

    Args:
        path: The run directory, safe to show.
    """
    return Alert(
        NO_DIRECTORY,
        "the run directory is gone",
        f"{path} does not exist any more, or cannot be read: it was moved or deleted, or its disk "
        "is not mounted.",
        Advice.of(
            "Look for it with `ls -ld {path}`. The app shows it again once it is back.",
            path=shlex.quote(path),
        ),
    )


def silent_directory_alert(path: str, title: str) -> Alert:
    """Returns the alert about a run directory that does not answer.

    Args:
        path: The run directory, safe to show.
        title: For how long it has not answered.
    """
    return Alert(
        NO_DIRECTORY,
        title,
        f"{path} does not answer: its disk hangs, or is very slow.",
        Advice.of("Look at it with `ls {path}`.", path=shlex.quote(path)),
    )


def find_unusable_latest(
    root: Path, latest: Checkpoint | None, fallback: str | None, *, trainer_answers: bool
) -> tuple[Alert, ...]:
    """Returns the alert about a newest checkpoint that no start restores.

    Args:
        root: The run directory, for commands.
        latest: The newest checkpoint according to TensorFlow's state file.
        fallback: The checkpoint that a start restores instead; None if none is known.
        trainer_answers: Whether a trainer takes commands.
    """
    if latest is None or latest.state not in _UNUSABLE:
        return ()
    kind = _UNUSABLE[latest.state]
    instead = "" if fallback is None else f" A start with tfckpt_trainer restores {fallback}."
    message = f"The newest checkpoint {latest.name} is {latest.state}: {latest.problem}{instead}"
    if trainer_answers:
        advice = Advice.of("Save another with {save}.", save=command_or_key("save", "save", root))
    elif fallback is None:
        verify = command_or_key("verify", "verify", root)
        advice = Advice.of(
            "{copy}To look for sound ones, use {verify}.",
            copy="Restore its files from a copy. " if kind == DAMAGED_CHECKPOINT else "",
            verify=verify,
        )
    else:
        choose = command_or_key("restore", "restore", root, "--name", fallback, "--next-start")
        copy = "Restore its files from a copy, or " if kind == DAMAGED_CHECKPOINT else "You can "
        advice = Advice.of(
            "{copy}choose {fallback} for the next start with {choose}.",
            "{copy}select {fallback} and choose it for the next start with {choose}.",
            copy=copy,
            fallback=fallback,
            choose=choose,
        )
    title = f"the newest checkpoint is {latest.state}"
    return (Alert(kind, title, message, advice),)


def longest_start(supervisor: SupervisorStatus) -> float:
    """Returns how many seconds a start of the workers may take before it is an alert."""
    before = supervisor.longest_start_seconds
    if before is None:
        return FIRST_START_SECONDS
    return max(LEAST_START_SECONDS, START_FACTOR * before)


def _silent_workers(
    root: Path,
    workers: Sequence[tuple[WorkerStatus, WorkerState]],
    supervisor: SupervisorStatus,
) -> Alert | None:
    """Returns the alert about processes that were started, and in which no run begins."""
    running = [process for process in supervisor.workers if process.exit_code is None]
    if not running:
        return None
    newest = max(running, key=lambda process: process.process_started_at)
    namespace = supervisor.namespace_of(newest)
    heard = [
        status
        for status, _ in workers
        if status.updated_at >= start_as_told(newest.process, namespace, status)
        and status.phase is not Phase.IMPORT
    ]
    is_starting = all(
        status.activity is Activity.STARTING and (status.phase or Phase.JOIN) in BEFORE_RUN
        for status in heard
    )
    limit = longest_start(supervisor)
    # Both times are of the supervisor's clock.
    if not is_starting or supervisor.updated_at - newest.process_started_at < limit:
        return None
    who = join_names([f"worker {process.index} (process {process.pid})" for process in running])
    verb = "runs" if len(running) == 1 else "run"
    before = supervisor.longest_start_seconds
    usual = f" Earlier starts took {before:.0f} s at most." if before is not None else ""
    missing = "no training run" if heard else "no heartbeat"
    cause = (
        "The script waits for another worker, prepares its data, or trains without `TrainingRun`."
        if heard
        else "A script that does not use tfckpt_trainer writes no heartbeat."
    )
    return Alert(
        NO_HEARTBEAT,
        f"{missing} {limit:.0f} s after the start",
        f"{who[:1].upper()}{who[1:]} {verb}, but there is {missing} {limit:.0f} s after the "
        f"start. {cause}{usual}",
        Advice.of(
            "See what it prints with {logs}. Progress, saves and restores need `TrainingRun` "
            "or `fit` of tfckpt_trainer in the script. To end its processes, use {stop}.",
            logs=command_or_key("logs", "logs", root),
            stop=command_or_key("force-stop", "stop", "--force", root),
        ),
    )


def _lost_supervisor(
    root: Path,
    workers: Sequence[tuple[WorkerStatus, WorkerState]],
    supervisor: SupervisorStatus,
) -> Alert | None:
    """Returns the alert about a supervisor that died while workers that it started run on."""
    is_left = any(
        state not in _ENDED
        # A worker that a user started after the supervisor had died never had one.
        and start_as_told(status.process, status.namespace, supervisor) <= supervisor.updated_at
        for status, state in workers
    )
    if supervisor.has_ended or not is_left:
        return None
    jobs = Counter(status.job for status, _ in workers)
    return Alert(
        NO_SUPERVISOR,
        "the supervisor is gone",
        "The supervisor is gone: the workers run on, but nobody restarts a lost worker.",
        Advice.of(
            "Stop the run with {stop}, then launch it again with {launch}.",
            stop=command_or_key("stop", "stop", root),
            launch=command_or_key(
                "launch",
                *("launch", root),
                *(("--workers", jobs["worker"]) if jobs["worker"] > 1 else ()),
                *(("--parameter-servers", jobs["ps"]) if jobs["ps"] else ()),
                *("--", "COMMAND"),
            ),
        ),
    )


def not_finite_alert(
    root: Path,
    metrics: Sequence[NotFiniteMetric],
    checkpoints: Sequence[Checkpoint],
    *,
    of_others: Sequence[tuple[int, NotFiniteMetric]] = (),
    has_ended: bool = False,
) -> Alert:
    """Returns the alert about metrics that are not finite.

    Args:
        root: The run directory, for commands.
        metrics: Metrics of the chief: means over all replicas, or values that it reported.
        checkpoints: All checkpoints, newest first.
        of_others: Further metrics, with the index of the worker that reported them.
        has_ended: Whether no trainer takes commands.
    """
    named_metrics = [(metric.name, metric) for metric in metrics]
    named_metrics += [(f"{metric.name} of worker {index}", metric) for index, metric in of_others]
    who, first = named_metrics[0]
    checkpoint = newest_finite(checkpoints)
    if checkpoint is None and any(map(may_be_finite, checkpoints)):
        back = "Each checkpoint has a metric that is not finite; its values may be finite."
        check = command_or_key("verify", "verify", root, "--finite")
        advice = Advice.of("Look for NaN and infinite values in them with {check}.", check=check)
    elif checkpoint is None:
        back = "No checkpoint without NaN or infinite values can be restored."
        advice = Advice.of("Stop the run, and start again in another directory.")
    else:
        back = f"The newest checkpoint with no known NaN or infinite value is {checkpoint.name}."
        advice = _advice_to_go_back(root, checkpoint.name, has_ended=has_ended)
    title = f"{who} is {_VALUES.get(first.value, first.value)}"
    return Alert(NOT_FINITE, title, f"{_not_finite_in_words(named_metrics)}. {back}", advice)


def _advice_to_go_back(root: Path, name: str, *, has_ended: bool) -> Advice:
    again = ", then start the run again" if has_ended else ""
    restore = command_or_key("restore", "restore", root, "--name", name)
    at_start = command_or_key("restore", "restore", root, "--name", name, "--next-start")
    return Advice.of(
        "Go back to it with {restore}{again}. To check its values first, use {check}.",
        "Select it, and go back to it with {restore}.",
        restore=at_start if has_ended else restore,
        again=again,
        check=command_or_key("verify", "verify", root, name, "--finite"),
    )


def _not_finite_in_words(named_metrics: Sequence[tuple[str, NotFiniteMetric]]) -> str:
    """Returns which metrics are not finite since when; metrics of equal value and step together."""
    groups: dict[tuple[str, int], list[str]] = {}
    for who, metric in named_metrics[:_NAMED]:
        groups.setdefault((metric.value, metric.step), []).append(who)
    parts = [
        f"{join_names(names)} {'is' if len(names) == 1 else 'are'} {_VALUES.get(value, value)} "
        f"since step {step:,}"
        for (value, step), names in groups.items()
    ]
    more = len(named_metrics) - _NAMED
    if more > 0:
        parts.append(f"{more} more metric{' is' if more == 1 else 's are'} not finite")
    return ", ".join(parts)


def _failing_saves(seen: _Seen) -> Alert | None:
    saves = seen.chief.saves
    if saves is None or not saves.failed:
        return None
    several = saves.failed > 1
    title = f"{saves.failed} saves failed" if several else "the last save failed"
    which = f"The last {saves.failed} saves failed" if several else "The last save failed"
    if seen.has_ended:
        start = (
            "training starts over"
            if saves.saved_step is None
            else "training continues from the newest checkpoint"
        )
        advice = Advice.of("Remove the cause, then start the run again: {start}.", start=start)
    else:
        advice = _advice_to_save(seen, saves)
    message = f"{which}: {as_sentence(saves.problem)} {_newest_checkpoint(saves)}"
    return Alert(SAVE_FAILED, title, message, advice)


def _advice_to_save(seen: _Seen, saves: SaveStatus) -> Advice:
    """Returns what to do about failed saves while training goes on."""
    if saves.waits_for_room:
        free = advice_to_free_space(RunDirectory(seen.root))
        return free.then("The run saves by itself once there is room.")
    if saves.every_steps or saves.every_seconds:
        return Advice.of(
            "Remove the cause: the next save that is due tries again. To save at once, use {save}.",
            save=seen.save_command,
        )
    return Advice.of("Remove the cause, then save with {save}.", save=seen.save_command)


def _overdue_save(seen: _Seen) -> Alert | None:
    saves = seen.chief.saves
    # A failed save explains a late checkpoint better.
    if saves is None or saves.failed or seen.state not in _GOES_ON:
        return None
    # A save in the background may take longer than an interval.
    if saves.unsaved_seconds < max(LATE_AFTER_SECONDS, LATE_AFTER_INTERVALS * saves.save_seconds):
        return None
    if not (_is_late_by_steps(saves) or _is_late_by_clock(saves, seen.chief.call_seconds or 0.0)):
        return None
    intervals = [count(saves.every_steps, "step")] if saves.every_steps else []
    intervals += [f"{saves.every_seconds:g} s"] if saves.every_seconds else []
    return Alert(
        SAVE_OVERDUE,
        f"no checkpoint for {LATE_AFTER_INTERVALS} intervals",
        f"No checkpoint for {LATE_AFTER_INTERVALS} intervals, although a save is due every "
        f"{' and every '.join(intervals)}. {_newest_checkpoint(saves)}",
        Advice.of(
            "See what the saves wait for with {events}, or save with {save}.",
            events=command_or_key("events", "journal", seen.root),
            save=seen.save_command,
        ),
    )


def _not_finite_metrics(seen: _Seen) -> Alert | None:
    chief_metrics = {metric.name for metric in seen.chief.not_finite}
    # Means over all replicas are the same on all workers, so only other metrics name a worker.
    of_others = [
        (status.index, metric)
        for status in seen.others
        for metric in status.not_finite
        if metric.name not in chief_metrics
    ]
    if not chief_metrics and not of_others:
        return None
    return not_finite_alert(
        seen.root,
        seen.chief.not_finite,
        seen.checkpoints,
        of_others=of_others,
        has_ended=seen.has_ended,
    )


def _is_late_by_steps(saves: SaveStatus) -> bool:
    every = saves.every_steps
    return every is not None and saves.unsaved_steps >= LATE_AFTER_INTERVALS * every


def _is_late_by_clock(saves: SaveStatus, call_seconds: float) -> bool:
    if saves.every_seconds is None:
        return False
    interval = max(saves.every_seconds, CALLS_TO_SAVE * call_seconds)
    return saves.unsaved_seconds >= LATE_AFTER_INTERVALS * interval


def _newest_checkpoint(saves: SaveStatus) -> str:
    steps = count(saves.unsaved_steps, "step")
    if saves.saved_step is None:
        return f"There is no checkpoint: {steps} would be lost."
    return f"The newest checkpoint is of step {saves.saved_step:,}: {steps} would be lost."


def as_sentence(problem: str) -> str:
    """Returns a problem with a full stop."""
    return problem if problem.endswith((".", "…")) else f"{problem}."


def _unwritten_file(seen: _Seen) -> Alert | None:
    problem = seen.chief.write_problem
    if not problem:
        return None
    lost = "What it should hold since then is lost." if seen.has_ended else "Training goes on."
    if os.path.basename(problem.partition(": ")[0]) == RunDirectory(seen.root).state_file.name:
        lost += " TensorFlow takes an older checkpoint for the newest."
    return Alert(
        FILE_UNWRITTEN,
        "a file of the run cannot be written",
        f"A file of the run cannot be written: {as_sentence(problem)} {lost}",
        Advice.of("Remove the cause: the run then writes it by itself.")
        if not seen.has_ended
        else Advice.of("Remove the cause before the next start."),
    )


_FINDERS: tuple[Callable[[_Seen], Alert | None], ...] = (
    _failing_saves,
    _overdue_save,
    _not_finite_metrics,
    _unwritten_file,
)
