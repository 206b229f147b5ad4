"""Makes a checkpoint from others: its name, record, files and event log entry."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tfckpt_trainer.bundle.analysis.contents import Variable
from tfckpt_trainer.bundle.analysis.finite import NonFiniteValues
from tfckpt_trainer.bundle.checksum import crc32c
from tfckpt_trainer.bundle.index import index_path
from tfckpt_trainer.bundle.links import open_inside
from tfckpt_trainer.bundle.writing.bundle_writer import BundleWriter
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.catalog.retention.emptying import trashed_bytes
from tfckpt_trainer.errors import RefusedError, TfckptError, UsageError
from tfckpt_trainer.rundir.full_disk import is_full
from tfckpt_trainer.rundir.paths import RunDirectory, parse_checkpoint_name
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, Derivation, SourceFacts
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.storage.documents import find_newer
from tfckpt_trainer.rundir.storage.parent_directory import without_links
from tfckpt_trainer.tools.tensors.derived import add_derived_checkpoint, require_free_name
from tfckpt_tui.formats import units
from tfckpt_tui.services.checkpoints.inspect import errors_by_path
from tfckpt_tui.services.control.request import FrontEnd, log_event

_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS}


@contextmanager
def explain_write_errors(
    directory: Path, needed: int, *, if_full: str, if_read_only: str
) -> Iterator[None]:
    """Replaces the errors of a full disk and of a directory that cannot be written.

    Args:
        directory: Where the file is written.
        needed: About how many bytes it takes.
        if_full: What to do if the disk or the quota is full, as a sentence.
        if_read_only: What to do if nothing can be written there, as a sentence.

    Raises:
        TfckptError: The disk or the quota is full, or the directory cannot be written.
    """
    try:
        yield
    except OSError as error:
        if is_full(error):
            free = units.size(shutil.disk_usage(directory).free)
            raise TfckptError(
                f"{directory}: {error.strerror}. Needed: about {units.size(needed)}; "
                f"free: {free}. Nothing was written. {if_full}"
            ) from error
        # It may also be a source that cannot be read.
        if error.errno in _REFUSED and not os.access(directory, os.W_OK | os.X_OK):
            raise TfckptError(
                f"{directory}: {os.strerror(error.errno)}. Nothing was written. {if_read_only}"
            ) from error
        raise


_MOST_TRIED = 1000
"""Default names that are tried."""


@dataclass(frozen=True)
class NewName:
    """Name and step of a new checkpoint.

    Attributes:
        taken: The default name that it would have, if that is taken; otherwise empty.
    """

    name: str
    step: int
    taken: str = ""

    @property
    def notice(self) -> str:
        """A sentence about the name that is taken; empty if none is."""
        if not self.taken:
            return ""
        return f"The name {self.taken} is taken, or was once, so the new checkpoint is {self.name}."


def choose_name(run: RunDirectory, word: str, newest: Checkpoint, name: str | None) -> NewName:
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
    if newest.step is None and newest.links:
        raise UsageError(f"The step of {newest.name} is unknown. {newest.problem}")
    if name is not None:
        require_free_name(run, name)
        said = parse_checkpoint_name(name)
        if newest.step is None and said is not None:
            return NewName(name, said.step)
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
        return NewName(name, newest.step)
    if newest.step is None:
        raise UsageError(
            f"The step of {newest.name} is unknown: it has no record and no step in its name. "
            f"Choose a name that ends in the step, such as --name {word}-500."
        )
    usual = f"{word}{branch}-{newest.step}"
    for number in range(1, _MOST_TRIED):
        free = usual if number == 1 else f"{word}{number}{branch}-{newest.step}"
        try:
            require_free_name(run, free)
        except RefusedError:
            continue
        return NewName(free, newest.step, taken="" if free == usual else usual)
    raise RefusedError("All default names are taken; choose one with --name.")


def derive(
    run: RunDirectory,
    new: NewName,
    operation: str,
    sources: Sequence[tuple[Checkpoint, float | None]],
    write: Callable[[BundleWriter, Callable[[int], None]], None],
    *,
    changes: Sequence[str] = (),
    variables: Sequence[Variable],
    needed: int,
    message: str,
    through: FrontEnd,
    on_read: Callable[[int], None],
    on_verified: Callable[[int, int], None],
    on_not_finite: Callable[[Sequence[NonFiniteValues]], None] = lambda tensors: None,
) -> tuple[CheckpointRecord, str]:
    """Writes a checkpoint made from others, verifies it, and adds it to the run.

    It gets the workers' own state of the newest.

    Args:
        run: The run directory.
        new: Its name and step.
        operation: See `Derivation`.
        sources: The checkpoints that it is made from with their weights, the newest last.
        write: Writes the tensors; calls the second argument with bytes read since the last call.
        changes: See `Derivation`.
        variables: The tensors that are read.
        needed: About how many bytes it takes.
        message: What was done, for the event log.
        through: The front end that asks, for the event log.
        on_read: Called with bytes read since the last call.
        on_verified: Called with bytes verified and in total.
        on_not_finite: Called with the tensors that have NaN or infinite values.

    Returns:
        The record as it was stored, and a sentence if the event log could not be written.

    Raises:
        RefusedError: The name was taken in the meantime.
        TfckptError: A source is damaged, or the disk is full.
        OSError: A file cannot be read or written.
    """

    def write_touching(writer: BundleWriter, touch: Callable[[], None]) -> None:
        def show(size: int) -> None:
            touch()
            on_read(size)

        write(writer, show)

    derivation = Derivation(
        operation=operation,
        sources=[source_facts(run, *source) for source in sources],
        changes=list(changes),
    )
    newest, _ = sources[-1]
    with (
        errors_by_path(variables),
        explain_write_errors(
            run.root,
            needed,
            if_full=_advice_on_full_disk(run),
            if_read_only=f"Use copies: `tfckpt-tui copy {run.shell_word} CKPT DIRECTORY`.",
        ),
        without_links(run.root),
    ):
        record = add_derived_checkpoint(
            run,
            _record_of(new, newest, derivation),
            write_touching,
            workers_of=newest.record,
            on_verified=on_verified,
            on_not_finite=on_not_finite,
        )
    return record, log_derived(run, record, message, through)


def log_derived(
    run: RunDirectory, record: CheckpointRecord, message: str, through: FrontEnd
) -> str:
    """Tells the event log of a checkpoint that was made; returns a sentence if that failed."""
    return log_event(
        run,
        EventKind.NOTE,
        message,
        through=through,
        step=record.step,
        branch=record.branch,
        checkpoint=record.name,
    )


def _record_of(new: NewName, newest: Checkpoint, derivation: Derivation) -> CheckpointRecord:
    """Returns the record of a checkpoint made from others; its place is beside the newest."""
    record = newest.record
    return CheckpointRecord(
        name=new.name,
        step=new.step,
        branch=newest.branch,
        sequence=newest.sequence or 0,
        saved_at=time.time(),
        trigger=derivation.operation,
        parent=newest.name,
        best=dict(record.best) if record is not None else {},
        state=dict(record.state) if record is not None else {},
        world=dict(record.world) if record is not None else {},
        contents=list(record.contents) if record is not None else [],
        per_worker=record.per_worker if record is not None else None,
        derived=derivation,
    )


def source_facts(
    run: RunDirectory, checkpoint: Checkpoint, weight: float | None = None
) -> SourceFacts:
    """Returns what the record of a new checkpoint says about one that it was made from.

    Raises:
        RefusedError: A newer release wrote its record.
        OSError: Its index or record cannot be read.
    """
    newer = find_newer(run.record(checkpoint.name))
    if newer:
        raise RefusedError(f"{newer} Nothing was written.")
    with open_inside(index_path(run.root / checkpoint.name)) as file:
        checksum = crc32c(file.read())
    return SourceFacts(
        name=checkpoint.name, step=checkpoint.step, weight=weight, index_crc32c=checksum
    )


def _advice_on_full_disk(run: RunDirectory) -> str:
    """Returns what to do if a new checkpoint of a run does not fit."""
    place = run.shell_word
    if trashed_bytes(run):
        return f"Free space with `tfckpt-tui trash {place} empty`."
    return f"Free space on this disk, such as with `tfckpt-tui prune {place} CKPT --delete`."
