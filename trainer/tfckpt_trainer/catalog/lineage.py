"""Branches: what follows a return to an older step never overwrites what was there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tfckpt_trainer.catalog.retention.trash import list_trash
from tfckpt_trainer.catalog.scan.checkpoint_files import FileScanner, scan_files_if_present
from tfckpt_trainer.catalog.scan.checkpoints import Checkpoint
from tfckpt_trainer.catalog.scan.history import Records, ResumePoint, read_head
from tfckpt_trainer.rundir.paths import RunDirectory, parse_checkpoint_name


class Branches:
    """The steps that each branch of a run ever reached, as far as its files still tell.

    Damaged checkpoints count, and so do those in the trash: their names are taken.
    """

    def __init__(self, run: RunDirectory) -> None:
        self._records = Records(run).look()
        head = read_head(run)
        self._begun = head.branch if head else 0
        self._tips: dict[int, int] = {}
        for record in self._records.values():
            self._reached(record.branch, record.step)
        for name in _names(run):
            said = parse_checkpoint_name(name)
            if said is not None:
                self._reached(said.branch, said.step)

    def after_restore(self, name: str) -> int:
        """Returns the branch on which training goes on after a restore of checkpoint `name`.

        From the newest step of a branch it is that branch; from an older one it is a new one.
        """
        record = self._records.get(name)
        said = parse_checkpoint_name(name)
        branch = record.branch if record else said.branch if said else 0
        step = record.step if record else said.step if said else 0
        return branch if step >= self._tips.get(branch, 0) else self.next()

    def next(self) -> int:
        """Returns the lowest number above those of all branches that ever saved or began."""
        return max(self._begun, *self._tips, 0) + 1

    def _reached(self, branch: int, step: int) -> None:
        self._tips[branch] = max(step, self._tips.get(branch, step))


def branch_after_restore(run: RunDirectory, name: str) -> int:
    """Returns the branch on which training goes on after a restore of checkpoint `name`."""
    return Branches(run).after_restore(name)


def branch_of(run: RunDirectory, resumed: ResumePoint) -> int:
    """Returns the branch on which a start goes on."""
    known = resumed.branch
    return known if known is not None else branch_after_restore(run, resumed.checkpoint)


def lineage(checkpoints: Sequence[Checkpoint], name: str) -> tuple[str, ...]:
    """Returns checkpoint `name`, its parent, the parent of that, and so on to the first.

    A parent that is not there any more is the last one named.
    """
    parents = {checkpoint.name: checkpoint.parent for checkpoint in checkpoints}
    chain = {name: None}
    parent = parents.get(name)
    # A damaged record may name one of its own descendants.
    while parent is not None and parent not in chain:
        chain[parent] = None
        parent = parents.get(parent)
    return tuple(chain)


def _names(run: RunDirectory) -> Iterator[str]:
    yield from scan_files_if_present(FileScanner(run.root))
    yield from scan_files_if_present(FileScanner(run.saving_directory))
    for manifest in list_trash(run):
        for trashed in manifest.checkpoints:
            yield trashed.name
