"""Branches: what follows a return to an older step never overwrites what was there."""

from __future__ import annotations

from collections.abc import Iterator

from tfckpt_trainer.catalog.files import look
from tfckpt_trainer.catalog.scan import Records
from tfckpt_trainer.catalog.trash import list_trash
from tfckpt_trainer.rundir.documents import load_if_there
from tfckpt_trainer.rundir.paths import RunDirectory, parse_checkpoint_name
from tfckpt_trainer.rundir.records import Head


def branch_after_restore(run: RunDirectory, name: str) -> int:
    """Returns the branch on which training goes on after a restore of checkpoint `name`.

    From the newest step of a branch it is that branch; from an older one it is a new branch.
    Damaged checkpoints count, and so do those in the trash: their names are taken.
    """
    steps = _steps_by_branch(run)
    record = Records(run).look().get(name)
    said = parse_checkpoint_name(name)
    branch = record.branch if record else said.branch if said else 0
    step = record.step if record else said.step if said else 0
    if step >= max(steps.get(branch, {0})):
        return branch
    return next_branch(run)


def next_branch(run: RunDirectory) -> int:
    """Returns the lowest number above those of all branches that ever saved or began."""
    head = load_if_there(run.head_file, Head)
    begun = head.branch if head else 0
    return max(begun, *_steps_by_branch(run), 0) + 1


def _steps_by_branch(run: RunDirectory) -> dict[int, set[int]]:
    steps: dict[int, set[int]] = {}
    for record in Records(run).look().values():
        steps.setdefault(record.branch, set()).add(record.step)
    for name in _names(run):
        said = parse_checkpoint_name(name)
        if said is not None:
            steps.setdefault(said.branch, set()).add(said.step)
    return steps


def _names(run: RunDirectory) -> Iterator[str]:
    yield from look(run.root)
    for manifest in list_trash(run):
        for trashed in manifest.checkpoints:
            yield trashed.name
