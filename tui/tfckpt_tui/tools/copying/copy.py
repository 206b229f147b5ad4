"""Copies checkpoints of a run to a destination: planned, sent, verified there, then named.

Until all files of a checkpoint have arrived and match, they are in `.tfckpt/copying`, where nothing
takes them for a checkpoint. The index gets its name last. A copy that was cut off goes on from the
bytes that have arrived.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tfckpt_trainer.bundle.verify import Progress
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.errors import RefusedError, TfckptError, UsageError
from tfckpt_trainer.rundir.heartbeats.process_ids import host_name
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.storage.documents import load_if_exists
from tfckpt_trainer.rundir.storage.own_links import resolve_named
from tfckpt_trainer.words.counts import few_of
from tfckpt_tui.formats import units
from tfckpt_tui.services.checkpoints.look_up import require_restorable
from tfckpt_tui.services.control.request import FrontEnd, log_event
from tfckpt_tui.tools.copying.address import HostPath
from tfckpt_tui.tools.copying.destination import Destination, Placed
from tfckpt_tui.tools.copying.destination_state import list_copied, refuse_other_model
from tfckpt_tui.tools.copying.local_destination import LocalDestination
from tfckpt_tui.tools.copying.source import (
    SourceCheckpoint,
    SourceFile,
    open_checkpoint,
    raise_open_file_limit,
    require_unchanged,
    verify_source,
)
from tfckpt_tui.tools.copying.ssh_destination import SshDestination

Phase = Callable[[str], Progress]
"""Called with what is being done; returns what is told its bytes done and in total."""


@dataclass
class Part:
    """What is left to do for one checkpoint.

    Attributes:
        missing: Files that the destination does not have under their names.
        arrived: Bytes of them that an earlier copy left.
        useless: Paths of what is no part of a file, or of one that is there already: a command that
            was cut off may have gone on for a moment beside the next copy.
    """

    source: SourceCheckpoint
    staging: str
    missing: list[SourceFile] = field(default_factory=list)
    arrived: dict[str, int] = field(default_factory=dict)
    useless: list[str] = field(default_factory=list)

    @property
    def needed_bytes(self) -> int:
        """Bytes to send."""
        return sum(file.size - self.arrived.get(file.name, 0) for file in self.missing)

    def placed(self, files: Sequence[SourceFile]) -> list[Placed]:
        """Returns files with where each is until all are there."""
        return [(file, self.staged(file)) for file in files]

    def staged(self, file: SourceFile) -> str:
        """Returns where a file is until all are there."""
        folder, slash, name = file.name.rpartition("/")
        # `.tfckpt/workers/NAME/…` and `.tfckpt/records/…`; no two of them share a name.
        return (
            f"{self.staging}/{folder.split('/')[1]}/{name}" if slash else f"{self.staging}/{name}"
        )


def plan_copy(
    run: RunDirectory,
    destination: Destination,
    sources: Sequence[SourceCheckpoint],
    phase: Phase,
) -> tuple[list[Part], int]:
    """Finds out what a destination lacks; returns it with the free space there.

    Raises:
        RefusedError: The destination has other files of these names, or too little space.
        TfckptError: It cannot be read.
    """
    parts = [Part(source, _staging(run, source.name)) for source in sources]
    paths = [path for part in parts for f in part.source.files for path in (f.name, part.staged(f))]
    # The next start there would complete or discard such a save, and with it a copy of this name.
    saves = {source.name: f".tfckpt/saving/{source.name}.json" for source in sources}
    survey = destination.survey(list(saves), [*paths, *saves.values()])
    for part in parts:
        name = part.source.name
        strays = [path for path in survey.others if path.startswith(f"{name}.")]
        strays += [saves[name]] if saves[name] in survey.sizes else []
        there = [file for file in part.source.files if file.name in survey.sizes]
        wrong = [file for file in there if survey.sizes[file.name] != file.size]
        if there:
            phase(f"comparing {name} with {destination.label}")
        if strays or wrong or (there and destination.differing([(f, f.name) for f in there])):
            raise _taken(destination, name)
        part.missing += [file for file in part.source.files if file.name not in survey.sizes]
        part.useless += [part.staged(f) for f in there if part.staged(f) in survey.sizes]
        for file in part.missing:
            arrived = survey.sizes.get(part.staged(file), 0)
            if 0 < arrived <= file.size:
                part.arrived[file.name] = arrived
            elif arrived:
                part.useless.append(part.staged(file))
    return parts, _require_space(destination, parts, survey.free_bytes)


def _taken(destination: Destination, name: str) -> RefusedError:
    return RefusedError(
        f"{destination.label} has other files named {name}: another checkpoint, or a damaged copy. "
        "Move them away, or copy to another directory."
    )


def _require_space(destination: Destination, parts: Sequence[Part], free: int) -> int:
    needed = sum(part.needed_bytes for part in parts)
    if needed > free:
        raise RefusedError(
            f"{destination.label} has {units.size(free)} free; the copy needs "
            f"{units.size(needed)}. Make room there, or copy fewer checkpoints."
        )
    return free


def _staging(run: RunDirectory, name: str) -> str:
    """Returns a directory for the parts of a checkpoint, which no other source shares."""
    origin = f"{host_name()}:{run.root}:{os.getuid()}".encode(errors="surrogateescape")
    return f".tfckpt/copying/{name}.{hashlib.sha256(origin).hexdigest()[:8]}"


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
    if isinstance(place, Path) and resolve_named(place) == run.root:
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
    for part in parts:
        if part.useless:
            destination.discard(part.useless, part.staging)
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
