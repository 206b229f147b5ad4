"""Prune, undo, pin: through the trainer where one lives, under its lock where none does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tfckpt_trainer.catalog.foreign import Foreign, foreign_writers
from tfckpt_trainer.catalog.pins import pin as write_pin
from tfckpt_trainer.catalog.pins import unpin as remove_pin
from tfckpt_trainer.catalog.prune import finish_interrupted_prunes, move_to_trash
from tfckpt_trainer.catalog.prune import undo as bring_back
from tfckpt_trainer.catalog.scan import Catalog
from tfckpt_trainer.catalog.trash import Emptied, empty_trash, find_in_trash
from tfckpt_trainer.errors import RefusedError, TfckptError, UsageError
from tfckpt_trainer.rundir.commandbox import requester
from tfckpt_trainer.rundir.documents import encode
from tfckpt_trainer.rundir.health import trainer_answers
from tfckpt_trainer.rundir.journal import write_entry
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records import CommandKind, JournalEntry, JournalKind, TrashManifest
from tfckpt_tui import humane
from tfckpt_tui.commands.asking import DEFAULT_TIMEOUT, OnChange, ask

LOCK_SECONDS = 5.0
"""How long to wait for a lock that a trainer or another prune holds."""


@dataclass(frozen=True)
class PruneOutcome:
    """What was moved, and under which id it can be brought back.

    Attributes:
        trash: The id in the trash; None while the trainer has not answered.
        names: Of the checkpoints.
        size: Bytes of all of them.
        command: Id of the command that was not waited for.
    """

    trash: str | None
    names: tuple[str, ...]
    size: int
    command: str | None = None


def foreign_trainer(run: RunDirectory) -> Foreign | None:
    """Returns what speaks for a live trainer that does not use our library; None if nothing does.

    Raises:
        OSError: The directory cannot be read.
    """
    now = time.time()
    if trainer_answers(run, now):
        return None
    found = foreign_writers(run, now)
    # Where our library trained, what is fresh is its own last save.
    is_evidence = bool(found.processes) if run.run_file.exists() else found.is_likely
    return found if is_evidence else None


def foreign_words(found: Foreign) -> str:
    """Returns in a sentence what speaks for a foreign trainer."""
    if found.processes:
        first, more = found.processes[0], len(found.processes) - 1
        others = f" and {more} more" if more else ""
        return f"Process {first.pid} ({first.command or first.name}){others} writes {first.file}"
    return f"A file of a checkpoint changed {humane.duration(found.fresh_seconds or 0.0)} ago"


def prune(
    run: RunDirectory,
    names: Sequence[str],
    *,
    through: str,
    beside_trainer: bool = False,
    wait: bool = True,
    timeout: float = DEFAULT_TIMEOUT,
    on_change: OnChange | None = None,
) -> PruneOutcome:
    """Moves checkpoints to the trash.

    Args:
        run: The run directory.
        names: Which ones.
        through: Which front end asks, for the journal.
        beside_trainer: Whether the person knows that a trainer which does not use our library
            seems to be writing there.
        wait: Whether to wait for the trainer, where one lives.
        timeout: Seconds to wait for it.
        on_change: Told of each change while waiting.

    Raises:
        RefusedError: One of them is protected, or a foreign trainer seems to live; nothing was
            moved.
        UsageError: One of them is not there.
    """
    if trainer_answers(run, time.time()):
        command = ask(
            run,
            CommandKind.PRUNE,
            {"names": list(names)},
            through=through,
            wait=wait,
            timeout=timeout,
            on_change=on_change,
        )
        if not wait:
            return PruneOutcome(None, tuple(names), 0, command.id)
        result = command.result
        return PruneOutcome(result["trash"], tuple(result["names"]), result["bytes"])
    by, is_ours = requester(through), run.run_file.exists()
    foreign = foreign_trainer(run)
    if foreign is not None and not beside_trainer:
        raise RefusedError(
            f"{foreign_words(foreign)}: a trainer seems to live that does not use our library. "
            "Nothing was moved. Stop it first, or give --beside-trainer."
        )
    in_use = foreign.in_use if foreign is not None else frozenset[str]()
    return _by_ourselves(
        run,
        JournalKind.PRUNE,
        by,
        # A trainer of somebody else's may live unseen, and would write its list over ours.
        lambda: move_to_trash(
            run,
            names,
            by=by,
            now=time.time(),
            update_state_file=is_ours and foreign is None,
            in_use=in_use,
        ),
    )


def undo(
    run: RunDirectory,
    trash: str | None = None,
    *,
    through: str,
    timeout: float = DEFAULT_TIMEOUT,
    on_change: OnChange | None = None,
) -> PruneOutcome:
    """Brings back what one prune moved away, by default the newest.

    Raises:
        UsageError: There is nothing to bring back.
        RefusedError: Something of the same name is there now.
    """
    if trainer_answers(run, time.time()):
        command = ask(
            run,
            CommandKind.UNDO,
            {"trash": trash},
            through=through,
            timeout=timeout,
            on_change=on_change,
        )
        result = command.result
        return PruneOutcome(result["trash"], tuple(result["names"]), result["bytes"])
    if not run.trash.is_dir():
        # It raises the message for an empty trash, in a directory that may be read-only.
        find_in_trash(run, trash)
    is_alone = run.run_file.exists() and foreign_trainer(run) is None
    return _by_ourselves(
        run,
        JournalKind.UNDO,
        requester(through),
        lambda: bring_back(run, trash, update_state_file=is_alone),
    )


def empty(
    run: RunDirectory,
    before: float | None = None,
    *,
    through: str,
    on_progress: Callable[[int], None] | None = None,
) -> Emptied:
    """Deletes for good what is in the trash, or what was pruned before a time.

    Raises:
        RefusedError: A prune or an undo goes on.
    """
    emptied = empty_trash(run, before, on_progress=on_progress)
    if emptied.names:
        entry = JournalEntry(
            at=time.time(),
            kind=JournalKind.EMPTY,
            message=f"Deleted for good: {', '.join(emptied.names)}.",
            by=requester(through),
            details={"names": list(emptied.names), "bytes": emptied.freed},
        )
        write_entry(run, entry)
    return emptied


def set_pins(run: RunDirectory, names: Sequence[str], *, pinned: bool, through: str) -> None:
    """Pins or unpins checkpoints: all of them, or none where one cannot be.

    Raises:
        UsageError: There is no such checkpoint, or its name is not valid UTF-8.
    """
    known = {checkpoint.name for checkpoint in Catalog(run).scan(time.time())}
    kind, word = (JournalKind.PIN, "Pinned") if pinned else (JournalKind.UNPIN, "Unpinned")
    by = requester(through)
    entries = []
    for name in names:
        if name not in known:
            raise UsageError(f"There is no checkpoint {name!r}; list them with `tfckpt-tui ls`.")
        message = f"{word} {name}."
        entry = JournalEntry(at=time.time(), kind=kind, message=message, checkpoint=name, by=by)
        # Before anything changes: a name that the journal cannot hold is refused.
        encode(entry)
        entries.append((name, entry))
    run.create()
    change = write_pin if pinned else remove_pin
    for name, entry in entries:
        change(run, name)
        write_entry(run, entry)


@contextmanager
def without_trainer(run: RunDirectory) -> Iterator[None]:
    """Holds the trainer's lock, so that none starts meanwhile; finishes what was cut off.

    Raises:
        RefusedError: A trainer holds it, though it does not answer.
        TfckptError: The directory cannot be written to.
    """
    # Imported when it is needed: the app shows its first frame before anything is pruned.
    from filelock import FileLock, Timeout

    try:
        run.create()
    except OSError as error:
        raise TfckptError(
            f"{run.root} cannot be written to ({error.strerror}); do it as its owner. Nothing was "
            "touched."
        ) from error
    try:
        with FileLock(run.trainer_lock, timeout=LOCK_SECONDS):
            finish_interrupted_prunes(run)
            yield
    except Timeout:
        raise RefusedError(
            f"A trainer holds {run.trainer_lock} and does not answer; nothing was touched. Look "
            f"at it with `tfckpt-tui status {run.root}`."
        ) from None


def _by_ourselves(
    run: RunDirectory, kind: JournalKind, by: str, act: Callable[[], TrashManifest]
) -> PruneOutcome:
    with without_trainer(run):
        manifest = act()
    names = tuple(trashed.name for trashed in manifest.checkpoints)
    word = "Moved to the trash" if kind is JournalKind.PRUNE else "Brought back"
    write_entry(
        run,
        JournalEntry(
            at=time.time(),
            kind=kind,
            message=f"{word}: {', '.join(names)}.",
            by=by,
            details={"trash": manifest.id, "names": list(names)},
        ),
    )
    size = sum(trashed.size for trashed in manifest.checkpoints)
    return PruneOutcome(manifest.id, names, size)
