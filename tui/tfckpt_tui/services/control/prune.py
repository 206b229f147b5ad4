"""Prune, undo, delete, pin: by the trainer if one runs, otherwise by this process."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tfckpt_trainer.catalog.directory import pins
from tfckpt_trainer.catalog.directory.other_formats import find_neighbours, format_of
from tfckpt_trainer.catalog.directory.trash import TrashReader, find_in_trash
from tfckpt_trainer.catalog.retention.deleting import delete_for_good
from tfckpt_trainer.catalog.retention.emptying import Emptied, delete_from_trash, empty_trash
from tfckpt_trainer.catalog.retention.prune import (
    OnWarning,
    event_of,
    event_of_settled,
    move_files_to_trash,
    move_to_trash,
    settle_interrupted_prunes,
)
from tfckpt_trainer.catalog.retention.prune import undo as bring_back
from tfckpt_trainer.catalog.scan.foreign_writers import ForeignWriters
from tfckpt_trainer.catalog.scan.named_checkpoints import scan_for_prune
from tfckpt_trainer.catalog.scan.protection import file_protections, require_proven
from tfckpt_trainer.errors import RefusedError
from tfckpt_trainer.rundir.disk_reserve import begin_change
from tfckpt_trainer.rundir.event_log import note_event
from tfckpt_trainer.rundir.full_disk import DiskFullError, advice_for_undo, replace_advice
from tfckpt_trainer.rundir.heartbeats.liveness import find_other_trainer, heartbeat_age_on_disk
from tfckpt_trainer.rundir.heartbeats.process_ids import is_pid_valid_here
from tfckpt_trainer.rundir.heartbeats.process_table import process_user
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import Command, PruneArguments, UndoArguments
from tfckpt_trainer.rundir.records.event import EventEntry, EventKind
from tfckpt_trainer.rundir.records.trash import TrashManifest
from tfckpt_trainer.rundir.storage.documents import encode
from tfckpt_trainer.rundir.storage.locks import take_lock
from tfckpt_trainer.rundir.storage.owners import user_name
from tfckpt_trainer.words.advice import Advice, command_or_key, only_command
from tfckpt_trainer.words.counts import few_of
from tfckpt_tui.formats import units
from tfckpt_tui.services.control.request import DEFAULT_TIMEOUT, FrontEnd, OnChange, ask, log_event
from tfckpt_tui.services.control.trainer_presence import TrainerPresence, detect_trainer

LOCK_SECONDS = 5.0
"""How long to wait for the lock of the trainer."""


@dataclass(frozen=True)
class PruneOutcome:
    """The result of a prune or an undo.

    Attributes:
        trash: Id of the prune in the trash; None if the trainer was not waited for.
        names: The checkpoints.
        size: Bytes of all of them.
        command: The command, if the trainer was not waited for.
        warnings: Sentences about steps that failed after all files were moved.
    """

    trash: str | None
    names: tuple[str, ...]
    size: int
    command: Command | None = None
    warnings: tuple[str, ...] = ()


class ForeignTrainerError(RefusedError):
    """A trainer that does not use this library seems to be running, and cannot be asked."""

    def __init__(self, writers: ForeignWriters) -> None:
        first = "Stop that program first" if writers.processes else wait_words(writers)
        again = command_or_key("prune", "prune", "--beside-trainer")
        advice = Advice.of(
            "{first}, or give --beside-trainer.",
            "{first}, or use {again} again.",
            first=first,
            again=again,
        )
        super().__init__(f"{foreign_words(writers)} Nothing was changed.", advice)
        self.foreign = writers


def foreign_words(writers: ForeignWriters) -> str:
    """Returns the evidence of a trainer that does not use this library, as sentences."""
    if writers.processes:
        names = [f"Process {one.pid} ({one.command or one.name})" for one in writers.processes]
        return f"{few_of(names, 1)} writes {writers.processes[0].file}."
    age = units.duration(writers.fresh_seconds or 0.0)
    return f"A file of a checkpoint changed {age} ago. Perhaps another program still writes here."


def wait_words(writers: ForeignWriters) -> str:
    """Returns how long to wait if no program writes, as a clause."""
    return f"If none does, wait {units.duration(writers.wait_seconds)}"


def prune(
    run: RunDirectory,
    names: Sequence[str],
    *,
    through: FrontEnd,
    beside_trainer: bool = False,
    wait: bool = True,
    timeout: float = DEFAULT_TIMEOUT,
    on_change: OnChange | None = None,
) -> PruneOutcome:
    """Moves checkpoints to the trash.

    Args:
        run: The run directory.
        names: The checkpoints.
        through: The front end that asks, for the event log.
        beside_trainer: Whether to prune although a trainer that does not use this library seems
            to be running.
        wait: Whether to wait for the trainer, if one runs.
        timeout: Seconds to wait for the trainer.
        on_change: Called with each change of the command while waiting.

    Raises:
        ForeignTrainerError: A trainer that does not use this library seems to be running.
        RefusedError: A checkpoint is protected; nothing was moved.
        UsageError: A checkpoint does not exist.
    """
    presence = detect_trainer(run, on_full_disk=True)
    if presence.answers:
        command = ask(
            run,
            PruneArguments(names=list(names)),
            through=through,
            wait=wait,
            timeout=timeout,
            on_change=on_change,
        )
        if not wait:
            return PruneOutcome(None, tuple(names), 0, command)
        return _outcome_of(command.result)
    _refuse_foreign(presence, beside_trainer)
    return _in_this_process(
        run,
        EventKind.PRUNE,
        through,
        lambda on_warning: move_to_trash(
            run,
            names,
            by=through.requester,
            now=time.time(),
            update_state_file=presence.may_update_state_file,
            in_use=presence.in_use,
            on_warning=on_warning,
        ),
    )


def protected_files(run: RunDirectory) -> dict[str, str]:
    """Returns the files of other formats that no prune moves, each with the reason."""
    return file_protections(find_neighbours(run.root).others, run.root, time.time())


def pruned_words(names: Sequence[str]) -> str:
    """Returns how many checkpoints or files a prune moved."""
    return units.count(len(names), "file" if all(map(format_of, names)) else "checkpoint")


def prune_files(run: RunDirectory, names: Sequence[str], *, through: FrontEnd) -> PruneOutcome:
    """Moves files of other formats to the trash; a trainer of this library must not run.

    Raises:
        RefusedError: A file is protected, or a trainer runs; nothing was moved.
        UsageError: A file does not exist.
    """
    return _in_this_process(
        run,
        EventKind.PRUNE,
        through,
        lambda on_warning: move_files_to_trash(
            run, names, by=through.requester, now=time.time(), on_warning=on_warning
        ),
    )


def delete(
    run: RunDirectory,
    names: Sequence[str],
    *,
    through: FrontEnd,
    beside_trainer: bool = False,
    timeout: float = DEFAULT_TIMEOUT,
    on_change: OnChange | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Emptied:
    """Deletes checkpoints for good; needs no free disk space.

    If a trainer runs, it moves them to the trash, and they are deleted from there.

    Raises:
        RefusedError: A checkpoint is protected or not known to be one, or a trainer seems to be
            running that cannot be asked; nothing was deleted.
        UsageError: A checkpoint does not exist.
    """
    presence = detect_trainer(run, on_full_disk=True)
    if presence.answers:
        _, checkpoints = scan_for_prune(run, names, presence.in_use, time.time())
        require_proven(run.root, [c for c in checkpoints if c.name in names])
        pruned = prune(run, names, through=through, timeout=timeout, on_change=on_change)
        assert pruned.trash is not None
        return _with_event(
            run, delete_from_trash(run, pruned.trash, on_progress=on_progress), through
        )
    _refuse_foreign(presence, beside_trainer)
    with without_trainer(run, needs_room=False):
        emptied = delete_for_good(
            run,
            names,
            now=time.time(),
            update_state_file=presence.may_update_state_file,
            in_use=presence.in_use,
            on_progress=on_progress,
            on_interrupt=lambda gone: _with_event(run, gone, through),
        )
    return _with_event(run, emptied, through)


def _refuse_foreign(presence: TrainerPresence, is_agreed: bool) -> None:
    if presence.foreign is not None and not is_agreed:
        raise ForeignTrainerError(presence.foreign)


def _outcome_of(result: dict[str, Any]) -> PruneOutcome:
    return PruneOutcome(
        result["trash"],
        tuple(result["names"]),
        result["bytes"],
        warnings=tuple(result.get("warnings", ())),
    )


def undo(
    run: RunDirectory,
    trash: str | None = None,
    *,
    through: FrontEnd,
    wait: bool = True,
    timeout: float = DEFAULT_TIMEOUT,
    on_change: OnChange | None = None,
) -> PruneOutcome:
    """Brings back the checkpoints of one prune, by default of the newest.

    Args:
        run: The run directory.
        trash: Id of the prune in the trash.
        through: The front end that asks, for the event log.
        wait: Whether to wait for the trainer, if one runs.
        timeout: Seconds to wait for the trainer.
        on_change: Called with each change of the command while waiting.

    Raises:
        UsageError: The trash is empty, or there is no such prune.
        RefusedError: A file with the same name exists now.
    """
    presence = detect_trainer(run, on_full_disk=True)
    if presence.answers:
        command = ask(
            run,
            UndoArguments(trash=trash),
            through=through,
            wait=wait,
            timeout=timeout,
            on_change=on_change,
        )
        if not wait:
            return PruneOutcome(trash, (), 0, command)
        return _outcome_of(command.result)
    if not run.trash.is_dir():
        # Raises the error for an empty trash, also in a read-only directory.
        find_in_trash(run, trash)
    with replace_advice(advice_for_undo(run)):
        return _in_this_process(
            run,
            EventKind.UNDO,
            through,
            lambda on_warning: bring_back(
                run,
                trash,
                update_state_file=presence.may_update_state_file,
                on_warning=on_warning,
            ),
        )


def empty(
    run: RunDirectory,
    prunes: Collection[str],
    *,
    through: FrontEnd,
    on_progress: Callable[[int], None] | None = None,
) -> Emptied:
    """Deletes for good what is in the trash.

    Args:
        run: The run directory.
        prunes: The ids of those that the user has seen. What came since then stays.
        through: The front end that asks, for the event log.
        on_progress: Called after each file with the bytes freed so far.

    Raises:
        RefusedError: The trash is locked, or a trainer runs that does not answer.
    """
    if run.trash.is_dir() and not detect_trainer(run).answers:
        _refuse_silent_trainer(run)
    return _with_event(run, empty_trash(run, only=prunes, on_progress=on_progress), through)


def _with_event(run: RunDirectory, emptied: Emptied, through: FrontEnd) -> Emptied:
    """Writes the deletion to the event log; returns it with a warning if that failed."""
    if not emptied.names:
        return emptied
    warning = log_event(
        run,
        EventKind.EMPTY,
        f"Deleted for good: {', '.join(emptied.names)}.",
        through=through,
        details={"names": list(emptied.names), "bytes": emptied.freed},
    )
    return replace(emptied, warnings=(*emptied.warnings, warning)) if warning else emptied


def set_pins(
    run: RunDirectory, names: Sequence[str], *, pinned: bool, through: FrontEnd
) -> tuple[str, ...]:
    """Pins or unpins checkpoints, all or none.

    Returns:
        Sentences about steps that failed after the pins were changed.

    Raises:
        UsageError: A checkpoint does not exist, is in the trash, or its name is not UTF-8.
        RefusedError: The trash is locked.
    """
    kind, word = (EventKind.PIN, "Pinned") if pinned else (EventKind.UNPIN, "Unpinned")
    changed = [name for name in names if pins.is_pinned(run, name) is not pinned]
    for name in changed:
        # Refuses a name that the event log cannot store, before anything changes.
        encode(EventEntry(at=0.0, kind=kind, message=name))
    warnings = pins.set_pins(run, names, pinned=pinned)
    told = {
        log_event(run, kind, f"{word} {name}.", through=through, checkpoint=name)
        for name in changed
    }
    return (*warnings, *sorted(told - {""}))


@contextmanager
def without_trainer(
    run: RunDirectory, *, needs_room: bool = True, settles: bool = True
) -> Iterator[None]:
    """Holds the lock of the trainer, so that none starts; brings back what was interrupted.

    Args:
        run: The run directory.
        needs_room: Whether to fail if the disk is full.
        settles: Whether to bring back what an interrupted prune or undo had moved. An undo does
            so itself.

    Raises:
        RefusedError: A trainer runs but does not answer.
        DiskFullError: The disk is full.
        NotWritableError: The directory cannot be written to.
    """

    def prepare() -> int | None:
        run.create()
        return take_lock(run.trainer_lock, LOCK_SECONDS)

    try:
        lock = begin_change(run, prepare)
    except DiskFullError:
        # If not even a directory fits, no trainer of this library works there or can start.
        if needs_room or run.control.exists():
            raise
        yield
        return
    if lock is None:
        raise RefusedError(
            f"A trainer holds {run.trainer_lock} and does not answer; nothing was changed.",
            only_command("See its state with ", "status", run.root),
        )
    try:
        _refuse_silent_trainer(run)
        with suppress(*(() if needs_room else (DiskFullError,))):
            if settles:
                _settle(run)
        yield
    finally:
        os.close(lock)


def refuse_unfinished(run: RunDirectory) -> None:
    """Refuses to plan a prune while checkpoints are on their way to the trash or back.

    Raises:
        RefusedError: A prune or undo is not finished, and no trainer answers.
    """
    if TrashReader(run).in_transit() and not detect_trainer(run).answers:
        raise RefusedError(
            "A prune or undo is under way, or was interrupted: no plan is true now. Nothing was "
            "changed.",
            Advice.of(
                "If it was interrupted, bring back what it had moved with {undo}.",
                undo=command_or_key("undo", "undo", run.root),
            ),
        )


def settle_interrupted(run: RunDirectory) -> list[str]:
    """Brings back what interrupted prunes and undos had moved, unless a trainer answers.

    A trainer did so when it started.

    Returns:
        What was done, as sentences.

    Raises:
        RefusedError: A trainer runs but does not answer, or the trash is locked.
        NotWritableError: The directory cannot be written to.
    """
    if not TrashReader(run).in_transit() or detect_trainer(run).answers:
        return []
    with without_trainer(run, needs_room=False, settles=False):
        return _settle(run)


def _settle(run: RunDirectory) -> list[str]:
    """Settles what was interrupted, and tells of it: nobody else does."""
    told: list[str] = []
    for manifest in settle_interrupted_prunes(run, told.append):
        kind, message, details = event_of_settled(manifest)
        note_event(run, kind, message, details=details)
        told.append(message)
    return told


def _refuse_heartbeat_of_another_user(heartbeat: Path, pid: int) -> None:
    """Refuses with the file if a process is not of the user who wrote that it is a trainer."""
    user = process_user(pid)
    try:
        writer = heartbeat.stat().st_uid
    except OSError:
        return
    if user not in {None, writer}:
        raise RefusedError(
            f"{heartbeat} of {user_name(writer)} calls process {pid} a trainer, which is one of "
            f"{user_name(user)} and does not answer. Nothing was changed.",
            Advice.of(
                "If it is none, remove the file: {command}.",
                command=f"`rm {shlex.quote(str(heartbeat))}`",
            ),
        )


def _refuse_silent_trainer(run: RunDirectory) -> None:
    """Refuses if heartbeats show a trainer that neither answers nor holds the lock.

    Clocks may differ, the trainer may run in a container, and the lock may not be shared, as on
    some network file systems.
    """
    other = find_other_trainer(run)
    if other is None:
        return
    if is_pid_valid_here(other):
        _refuse_heartbeat_of_another_user(run.worker_status(other.index), other.pid)
        if other.is_starting:
            raise RefusedError(
                f"A trainer is starting in {run.root}: worker {other.index} (process {other.pid}). "
                "It takes no commands yet. Nothing was changed. Try again in a moment."
            )
    age = max(0.0, heartbeat_age_on_disk(run, other.index))
    raise RefusedError(
        f"A trainer is running in {run.root}: worker {other.index} (process {other.pid} on "
        f"{other.host}) wrote its heartbeat {age:.0f} s ago by the clock of the file system. It "
        "does not answer here: compare the clocks of both machines. Nothing was changed.",
        Advice.of(
            "Run this on {host}, or stop the trainer there with {stop}.",
            host=other.host,
            stop=command_or_key("stop", "stop", run.root),
        ),
    )


def _in_this_process(
    run: RunDirectory,
    kind: EventKind,
    through: FrontEnd,
    act: Callable[[OnWarning], TrashManifest],
) -> PruneOutcome:
    warnings: list[str] = []
    with without_trainer(run, settles=kind is not EventKind.UNDO):
        manifest = act(warnings.append)
    message, details = event_of(kind, manifest)
    warnings.append(log_event(run, kind, message, through=through, details=details))
    told = tuple(filter(None, warnings))
    return PruneOutcome(manifest.id, tuple(manifest.names), manifest.size, warnings=told)
