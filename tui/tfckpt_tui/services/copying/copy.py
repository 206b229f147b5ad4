"""Copies checkpoints of a run to a destination: planned, sent, verified there, then named.

Until all files of a checkpoint have arrived and match, they are in `.tfckpt/copying`, where nothing
takes them for a checkpoint. The index gets its name last. A copy that was cut off goes on from the
bytes that have arrived.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tfckpt_trainer.bundle.verify import Progress
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.errors import RefusedError, TfckptError, UsageError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.storage.documents import load_if_exists
from tfckpt_trainer.words.counts import few_of
from tfckpt_tui.services.control.request import FrontEnd, log_event
from tfckpt_tui.services.copying.address import HostPath
from tfckpt_tui.services.copying.copy_plan import Part, Phase, plan_copy
from tfckpt_tui.services.copying.destination import Destination
from tfckpt_tui.services.copying.destination_state import list_copied, refuse_other_model
from tfckpt_tui.services.copying.local_destination import LocalDestination
from tfckpt_tui.services.copying.source import (
    SourceCheckpoint,
    SourceFile,
    open_checkpoint,
    raise_open_file_limit,
    require_unchanged,
    verify_source,
)
from tfckpt_tui.services.copying.ssh_destination import SshDestination
from tfckpt_tui.services.tensors.new_checkpoint import require_restorable


@dataclass(frozen=True)
class CopiedCheckpoint:
    """One checkpoint at a destination.

    Attributes:
        sent_bytes: Bytes to send, or that were sent; the rest was there already.
        is_missing: Whether a file was not there under its name.
    """

    name: str
    step: int | None
    files: int
    bytes: int
    sent_bytes: int
    is_missing: bool


@dataclass(frozen=True)
class CopyOutcome:
    """What was copied, or would be.

    Attributes:
        label: The destination, as messages name it.
        transport: How data got there: `file` or `rsync`.
        free_bytes: Free space at the destination before the copy.
        latest: The newest checkpoint at the destination, by TensorFlow's state file; empty if
            nothing was changed.
        warning: A sentence about the event log; empty if all is well.
    """

    label: str
    transport: str
    free_bytes: int
    checkpoints: tuple[CopiedCheckpoint, ...]
    seconds: float
    latest: str = ""
    warning: str = ""


def open_destination(place: Path | HostPath, seconds: float) -> Destination:
    """Returns the destination at a place.

    Args:
        place: The place.
        seconds: How long another host may take to answer.
    """
    if isinstance(place, HostPath):
        return SshDestination(place, seconds)
    return LocalDestination(place)


def copy_checkpoints(
    run: RunDirectory,
    checkpoints: Sequence[Checkpoint],
    place: Path | HostPath,
    *,
    through: FrontEnd,
    phase: Phase,
    seconds: float,
    dry_run: bool = False,
) -> CopyOutcome:
    """Copies checkpoints with all that a restore needs, and verifies them at the destination.

    Args:
        run: The run directory.
        checkpoints: The checkpoints.
        place: The destination.
        through: The front end that asks, for the event log.
        phase: Shows progress.
        seconds: How long another host may take to answer.
        dry_run: Whether to change nothing.

    Raises:
        UsageError: The destination is the run itself or no directory.
        RefusedError: A checkpoint is damaged, the destination has another one of this name or too
            little space, or a run trains there.
        CutCopyError: The copy was cut off; the same call goes on where it ended.
        TfckptError: The destination cannot be reached, read or written.
    """
    if isinstance(place, Path) and os.path.realpath(place) == str(run.root):
        raise UsageError(f"{place} is the run directory itself; name another directory.")
    began = time.monotonic()
    raise_open_file_limit()
    with ExitStack() as opened:
        sources = [
            open_checkpoint(run, checkpoint, opened) for checkpoint in _distinct(checkpoints)
        ]
        destination = open_destination(place, seconds)
        opened.callback(destination.close)
        destination.open(dry_run=dry_run)
        _refuse_other_run(run, sources, destination)
        parts, free = plan_copy(run, destination, sources, phase)
        latest = "" if dry_run else _copy(run, destination, parts, phase)
        warning = "" if dry_run else _note(run, destination, parts, through)
        return CopyOutcome(
            label=destination.label,
            transport=destination.transport,
            free_bytes=free,
            checkpoints=tuple(_described(part) for part in parts),
            seconds=time.monotonic() - began,
            latest=latest,
            warning=warning,
        )


def _copy(run: RunDirectory, destination: Destination, parts: Sequence[Part], phase: Phase) -> str:
    """Copies what is missing; returns the newest checkpoint at the destination."""
    # All of them first: from then on, the opened files are enough. Those that are there already
    # equal these, and may be as damaged.
    for part in parts:
        verify_source(run, part.source, phase(f"verifying {part.source.name}"))
    destination.create()
    latest = ""
    for part in parts:
        if part.missing:
            _send(destination, part, phase(f"copying {part.source.name}"))
            phase(f"verifying {part.source.name} in {destination.label}")
            _verify(destination, part)
            _require_unchanged(destination, part)
            moves = [(part.staged(file), file.name, file.modified_at) for file in part.missing]
            destination.commit(moves, part.staging)
        latest = list_copied(destination, part.source.name, part.source.saved_at)
    return latest


def _described(part: Part) -> CopiedCheckpoint:
    return CopiedCheckpoint(
        name=part.source.name,
        step=part.source.step,
        files=len(part.source.files),
        bytes=part.source.size,
        sent_bytes=part.needed_bytes,
        is_missing=bool(part.missing),
    )


def _distinct(checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
    for checkpoint in checkpoints:
        require_restorable(checkpoint)
    return list({checkpoint.name: checkpoint for checkpoint in checkpoints}.values())


def _refuse_other_run(
    run: RunDirectory, sources: Sequence[SourceCheckpoint], destination: Destination
) -> None:
    there = destination.run_id()
    info = load_if_exists(run.run_file, RunInfo)
    if not there:
        refuse_other_model(run, sources[-1].name, destination)
    elif there != (info.id if info is not None else ""):
        raise RefusedError(
            f"{destination.label} belongs to another run, which would resume from the copy. Copy "
            "to another directory."
        )


def _send(destination: Destination, part: Part, on_progress: Progress) -> None:
    """Sends what is missing."""
    if part.useless:
        destination.remove(part.useless)
    unsent = [file for file in part.missing if part.arrived.get(file.name) != file.size]
    total = max(1, sum(file.size for file in unsent))
    if unsent:
        destination.send(part.placed(unsent), lambda sent: on_progress(sent, total))


def _verify(destination: Destination, part: Part) -> None:
    """Reads what was sent back at the destination, and compares it with the source."""
    wrong = _unequal(destination, part, part.missing)
    if wrong:
        _require_unchanged(destination, part)
    if wrong and all(file.name in part.arrived for file in wrong):
        # What an earlier copy left was of another checkpoint, or was damaged.
        destination.send(part.placed(wrong), lambda sent: None)
        wrong = _unequal(destination, part, wrong)
    if wrong:
        _require_unchanged(destination, part)
        raise TfckptError(
            f"{wrong[0].name} differs from the source after it was copied to "
            f"{destination.label}, so it was deleted there. Check the disk there, and copy again."
        )


def _require_unchanged(destination: Destination, part: Part) -> None:
    """Refuses a copy that equals files which changed after they were verified; deletes it."""
    try:
        require_unchanged(part.source)
    except RefusedError:
        destination.remove([part.staged(file) for file in part.missing])
        raise


def _unequal(destination: Destination, part: Part, files: Sequence[SourceFile]) -> list[SourceFile]:
    """Reads files back at the destination; deletes and returns those that differ."""
    wrong = destination.differing(part.placed(files))
    if wrong:
        destination.remove([part.staged(file) for file in wrong])
    return wrong


def _note(
    run: RunDirectory, destination: Destination, parts: Sequence[Part], through: FrontEnd
) -> str:
    """Writes an entry of the event log for what was sent; returns a sentence if that failed."""
    names = [part.source.name for part in parts if part.missing]
    if not names or not run.is_ours:
        return ""
    return log_event(
        run,
        EventKind.NOTE,
        f"Copied {few_of(names)} to {destination.label}.",
        through=through,
        checkpoint=names[0] if len(names) == 1 else None,
    )
