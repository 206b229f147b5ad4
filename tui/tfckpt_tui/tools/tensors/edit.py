"""Edits the tensors of a checkpoint into a new one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tfckpt_trainer.bundle.analysis.contents import read_contents
from tfckpt_trainer.bundle.index import read_index
from tfckpt_trainer.bundle.object_graph import KEY, has_registered_savers, read_object_graph
from tfckpt_trainer.bundle.writing.bundle_writer import BundleWriter
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.errors import RefusedError, UsageError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.tools.tensors.edit import Edit, EditSource, write_edit
from tfckpt_tui.formats import units
from tfckpt_tui.services.checkpoints.look_up import require_restorable
from tfckpt_tui.services.control.request import FrontEnd
from tfckpt_tui.tools.tensors.new_checkpoint import (
    NewName,
    choose_name,
    derive,
)


@dataclass(frozen=True)
class Changes:
    """The wanted changes, in the order in which they are applied.

    Attributes:
        copies: Other checkpoint, tensor there, tensor here.
        casts: Pattern and type.
        drops: Patterns.
        renames: Old and new path or name.
    """

    copies: Sequence[tuple[Checkpoint, str, str]] = ()
    casts: Sequence[tuple[str, str]] = ()
    drops: Sequence[str] = ()
    renames: Sequence[tuple[str, str]] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be changed."""
        return not (self.copies or self.casts or self.drops or self.renames)


@dataclass(frozen=True)
class EditPlan:
    """An edit that can be written.

    Attributes:
        new: The name and step of the new checkpoint.
        others: The checkpoints that tensors are copied from.
    """

    new: NewName
    checkpoint: Checkpoint
    others: tuple[Checkpoint, ...]
    source: EditSource
    edit: Edit


def plan_edit(
    run: RunDirectory, checkpoint: Checkpoint, changes: Changes, name: str | None = None
) -> EditPlan:
    """Checks that the changes are possible; reads only indexes and object graphs.

    Raises:
        UsageError: Nothing is to be changed, or a tensor does not exist.
        RefusedError: A change is not possible, a checkpoint is damaged, or the name is taken.
        BundleError: An index or an object graph is damaged.
        OSError: An index cannot be read.
    """
    if changes.is_empty:
        raise UsageError("Nothing to change: give --rename, --drop, --cast or --copy.")
    source = source_of(run, checkpoint)
    nodes = None
    if KEY in source.index.entries:
        nodes = read_object_graph(source.prefix, source.index)
        if has_registered_savers(source.prefix, source.index) and (
            changes.renames or changes.drops or changes.copies
        ):
            raise RefusedError(
                f"{checkpoint.name} has objects with a saver of their own "
                "(tf.train.experimental.register_checkpoint_saver). Only --cast is possible."
            )
    edit = Edit(source, nodes)
    others: dict[str, Checkpoint] = {}
    for other, wanted, target in changes.copies:
        others[other.name] = other
        edit.copy(source_of(run, other), wanted, target)
    for pattern, dtype in changes.casts:
        edit.cast(pattern, dtype)
    for pattern in changes.drops:
        edit.drop(pattern)
    edit.rename_all(changes.renames)
    if not edit.changes:
        raise UsageError("Nothing would change: every tensor has that type already.")
    named = choose_name(run, "edited", checkpoint, name)
    return EditPlan(named, checkpoint, tuple(others.values()), source, edit)


def edit(
    run: RunDirectory,
    plan: EditPlan,
    *,
    through: FrontEnd,
    on_read: Callable[[int], None] = lambda size: None,
    on_verified: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[CheckpointRecord, tuple[str, ...]]:
    """Writes a planned edit, verifies it, and adds it to the run.

    Returns:
        The record of the new checkpoint, and warnings.

    Raises:
        RefusedError: The name was taken in the meantime, or an integer does not fit.
        TfckptError: A checkpoint is damaged.
        OSError: A file cannot be read or written.
    """
    overflown = 0

    def write(writer: BundleWriter, show: Callable[[int], None]) -> None:
        nonlocal overflown
        overflown = write_edit(writer, plan.edit, plan.source, show)

    record, told = derive(
        run,
        plan.new,
        "edit",
        [(other, None) for other in (*plan.others, plan.checkpoint)],
        write,
        changes=plan.edit.changes,
        variables=plan.source.variables,
        needed=plan.edit.size,
        message=f"Edited {plan.checkpoint.name} into {plan.new.name}.",
        through=through,
        on_read=on_read,
        on_verified=on_verified,
    )
    return record, tuple(filter(None, [overflow_words(overflown), told]))


def overflow_words(count: int) -> str:
    """Returns a sentence about finite values that became infinite; empty if none did."""
    values = units.count(count, "value")
    return f"{values} became infinite: too large for the new type." if count else ""


def source_of(run: RunDirectory, checkpoint: Checkpoint) -> EditSource:
    """Returns a checkpoint that tensors are taken from.

    Raises:
        RefusedError: It is damaged or being written.
        BundleError: Its index is damaged.
        OSError: Its index cannot be read.
    """
    require_restorable(checkpoint)
    prefix = run.root / checkpoint.name
    index = read_index(prefix)
    return EditSource(prefix, index, read_contents(prefix, index).variables)
