"""Name, record and event log entry of a checkpoint that is made from others."""

from __future__ import annotations

import shlex
import time

from tfckpt_trainer.bundle.checksum import crc32c
from tfckpt_trainer.bundle.index import index_path
from tfckpt_trainer.catalog.derived import require_free_name
from tfckpt_trainer.catalog.retention.emptying import trashed_bytes
from tfckpt_trainer.catalog.scan.checkpoints import Checkpoint
from tfckpt_trainer.errors import RefusedError, UsageError
from tfckpt_trainer.rundir.paths import RunDirectory, parse_checkpoint_name
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, Derivation, SourceFacts
from tfckpt_trainer.rundir.records.event import JournalKind
from tfckpt_tui.services.request import FrontEnd, log_event

_MOST_TRIED = 1000
"""Default names that are tried."""


def advice_on_full_disk(run: RunDirectory) -> str:
    """Returns what to do if a new checkpoint of a run does not fit."""
    root = shlex.quote(str(run.root))
    if trashed_bytes(run):
        return f"Free space with `tfckpt-tui trash {root} empty`."
    return f"Free space on this disk, such as with `tfckpt-tui prune {root} CKPT --delete`."


def require_restorable(checkpoint: Checkpoint) -> None:
    """Raises a `RefusedError` if a checkpoint is damaged or being written."""
    if not checkpoint.state.restorable:
        problem = f"{checkpoint.name} is {checkpoint.state.value}"
        raise RefusedError(
            f"{problem}: {checkpoint.problem}" if checkpoint.problem else f"{problem}."
        )


def name_and_step(
    run: RunDirectory, word: str, newest: Checkpoint, name: str | None
) -> tuple[str, int]:
    """Returns the name and step of a new checkpoint that is made from `newest`.

    Args:
        run: The run directory.
        word: How a default name begins.
        newest: The newest checkpoint that it is made from.
        name: The wanted name; by default the first free one such as `average-500`.

    Raises:
        UsageError: The name is no file name, or says another step or branch.
        RefusedError: It is taken.
    """
    branch = f"-b{newest.branch}" if newest.branch else ""
    if name is not None:
        require_free_name(run, name)
        said = parse_checkpoint_name(name)
        if newest.step is None and said is not None:
            return name, said.step
        if newest.step is None:
            raise UsageError(
                f"The step of {newest.name} is unknown: it has no record and no step in its name. "
                f"Choose a name that ends in the step, such as {word}-500."
            )
        if said is not None and (said.branch, said.step) != (newest.branch, newest.step):
            raise UsageError(
                f"{name} looks like step {said.step} of branch {said.branch}; expected step "
                f"{newest.step} of branch {newest.branch}, as {newest.name} has. Choose a name "
                f"such as {word}{branch}-{newest.step}."
            )
        return name, newest.step
    if newest.step is None:
        raise UsageError(
            f"The step of {newest.name} is unknown: it has no record and no step in its name. "
            f"Choose a name that ends in the step, such as --name {word}-500."
        )
    for number in range(1, _MOST_TRIED):
        free = f"{word}{'' if number == 1 else number}{branch}-{newest.step}"
        try:
            require_free_name(run, free)
        except RefusedError:
            continue
        return free, newest.step
    raise RefusedError("All default names are taken; choose one with --name.")


def record_of(name: str, step: int, newest: Checkpoint, derivation: Derivation) -> CheckpointRecord:
    """Returns the record of a checkpoint made from others; its place is beside the newest."""
    known = newest.record
    return CheckpointRecord(
        name=name,
        step=step,
        branch=newest.branch,
        sequence=newest.sequence or 0,
        saved_at=time.time(),
        trigger=derivation.operation,
        parent=newest.name,
        best=dict(known.best) if known is not None else {},
        state=dict(known.state) if known is not None else {},
        world=dict(known.world) if known is not None else {},
        contents=list(known.contents) if known is not None else [],
        per_worker=known.per_worker if known is not None else None,
        derived=derivation,
    )


def source_facts(
    run: RunDirectory, checkpoint: Checkpoint, weight: float | None = None
) -> SourceFacts:
    """Returns what the record of a new checkpoint says about one that it was made from.

    Raises:
        OSError: Its index cannot be read.
    """
    checksum = crc32c(index_path(run.root / checkpoint.name).read_bytes())
    return SourceFacts(
        name=checkpoint.name, step=checkpoint.step, weight=weight, index_crc32c=checksum
    )


def note(run: RunDirectory, record: CheckpointRecord, message: str, through: FrontEnd) -> str:
    """Writes an entry of the event log; returns a sentence if that failed."""
    return log_event(
        run,
        JournalKind.NOTE,
        message,
        through=through,
        step=record.step,
        branch=record.branch,
        checkpoint=record.name,
    )
