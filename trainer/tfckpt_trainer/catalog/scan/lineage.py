"""Branches, ancestry, and the plan of a restore.

A branch is a line of checkpoints that training saved one after the other. A restore of the last
step of a branch continues it. A restore of an older step starts a new branch, so that no
checkpoint is ever overwritten.

Everything here is computed from what a `Catalog` found; nothing is read from the disk.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint, is_trained
from tfckpt_trainer.catalog.directory.history import ResumePoint
from tfckpt_trainer.catalog.directory.packed_record import PackedRecord
from tfckpt_trainer.errors import RefusedError
from tfckpt_trainer.rundir.paths import checkpoint_name, parse_checkpoint_name
from tfckpt_trainer.rundir.records.run import Head
from tfckpt_trainer.rundir.records.trash import TrashManifest


class BranchStep(NamedTuple):
    """Where training is: a branch, and a step on it."""

    branch: int
    step: int


class BranchTips(msgspec.Struct, frozen=True):
    """The tip of each branch of a run, as far as the files tell.

    Attributes:
        steps: The highest step that was saved on each branch.
        highest: The highest branch number in use. That branch may have no checkpoint yet. A branch
            that is only planned for the next start is not in use.
    """

    steps: Mapping[int, int] = {}
    highest: int = 0

    @property
    def next(self) -> int:
        """The number of the next new branch."""
        return self.highest + 1

    def after_restore(self, checkpoint: Checkpoint) -> int:
        """Returns the branch on which training continues after a restore of `checkpoint`."""
        is_tip = (checkpoint.step or 0) >= self.steps.get(checkpoint.branch, 0)
        return checkpoint.branch if is_tip else self.next

    def at_start(self, checkpoint: Checkpoint, resumed: ResumePoint | None) -> int:
        """Returns the branch on which a start from `checkpoint` continues.

        Args:
            checkpoint: The checkpoint that the start restores.
            resumed: The recorded end of the run. It may name another checkpoint, if that one is
                damaged.
        """
        is_recorded = resumed is not None and resumed.checkpoint == checkpoint.name
        recorded = resumed.branch if resumed is not None and is_recorded else None
        return self.after_restore(checkpoint) if recorded is None else recorded


def find_branch_tips(
    checkpoints: Iterable[Checkpoint],
    records: Iterable[PackedRecord],
    taken: Iterable[str],
    trash: Iterable[TrashManifest],
    head: Head | None,
) -> BranchTips:
    """Returns the tips of the branches of a run.

    Damaged checkpoints, unfinished saves and checkpoints in the trash count, because an undo or a
    repair brings their names back.

    Args:
        checkpoints: All checkpoints of the run, in whatever state.
        records: All readable records.
        taken: Names of files that are no checkpoint.
        trash: All prunes whose checkpoints are in the trash.
        head: The last restore.
    """
    steps: dict[int, int] = {}
    highest = head.highest_branch if head is not None else 0
    places = [BranchStep(c.branch, c.step or 0) for c in checkpoints]
    places += [BranchStep(record.branch, record.step) for record in records]
    names = [*filter(_is_of_save, taken), *(record.name for record in records)]
    names += [name for manifest in trash for name in manifest.names]
    for name in names:
        said = parse_checkpoint_name(name)
        if said is not None:
            places.append(BranchStep(said.branch, said.step))
    for branch, step in places:
        steps[branch] = max(step, steps.get(branch, step))
    return BranchTips(steps, max([highest, *steps]))


def _is_of_save(name: str) -> bool:
    """Whether a save of this library may take a name."""
    said = parse_checkpoint_name(name)
    return said is not None and checkpoint_name(said.step, said.branch) == name


class Lineage(msgspec.Struct, frozen=True):
    """A checkpoint or a position, and everything that training passed before it.

    Attributes:
        names: The checkpoints, newest first. Pruned ones are left out.
        last_steps: The last step passed on each branch. Pruned checkpoints count.
    """

    names: tuple[str, ...] = ()
    last_steps: Mapping[int, int] = {}


def lineage_of(checkpoints: Sequence[Checkpoint], name: str) -> Lineage:
    """Returns the lineage of checkpoint `name`.

    Args:
        checkpoints: All checkpoints of the run, newest first.
        name: One of them.
    """
    row = next((row for row, c in enumerate(checkpoints) if c.name == name), None)
    return _trace(checkpoints, row, {})


def lineage_at(checkpoints: Sequence[Checkpoint], position: BranchStep | None) -> Lineage:
    """Returns the lineage of a position.

    Args:
        checkpoints: All checkpoints of the run, newest first.
        position: Where training is. By default, the checkpoint from which a start continues.
    """
    if position is None:
        return _trace(checkpoints, _head_row(checkpoints), {})
    row = _newest(checkpoints, 0, position)
    # A branch without a checkpoint started at the last restore.
    row = _head_row(checkpoints) if row is None else row
    return _trace(checkpoints, row, {position.branch: position.step})


def current_lineage(checkpoints: Sequence[Checkpoint], branch: int) -> Lineage:
    """Returns the lineage of the checkpoint from which a start continues.

    Args:
        checkpoints: All checkpoints of the run, newest first.
        branch: The branch in training. Its newest checkpoint is taken if none can be restored.
    """
    row = _head_row(checkpoints)
    if row is None:
        row = _next_trained(checkpoints, 0, branch)
    return _trace(checkpoints, row, {})


def fork_points(checkpoints: Sequence[Checkpoint]) -> dict[int, str]:
    """Returns the checkpoint at which each branch forked from another branch, by branch.

    Args:
        checkpoints: All checkpoints of the run, newest first.
    """
    oldest: dict[int, Checkpoint] = {}
    for checkpoint in reversed(checkpoints):
        if checkpoint.branch not in oldest and is_trained(checkpoint):
            oldest[checkpoint.branch] = checkpoint
    parents = {checkpoint.parent for checkpoint in oldest.values()}
    branch_of = {c.name: c.branch for c in checkpoints if c.name in parents}
    return {
        branch: checkpoint.parent
        for branch, checkpoint in oldest.items()
        if checkpoint.parent is not None and branch_of.get(checkpoint.parent, branch) != branch
    }


def unsaved_steps(checkpoints: Sequence[Checkpoint], position: BranchStep) -> int:
    """Returns how many steps would be lost if training ended now without a save.

    Args:
        checkpoints: All checkpoints of the run, newest first.
        position: Where training is.
    """
    return _unsaved_steps(checkpoints, lineage_at(checkpoints, position), position)


def _unsaved_steps(checkpoints: Sequence[Checkpoint], passed: Lineage, position: BranchStep) -> int:
    ancestors = frozenset(passed.names)
    saved = 0
    for checkpoint in checkpoints:
        step = checkpoint.step or 0
        # The newest has the highest step: the others are not looked at any further.
        if step > saved and checkpoint.name in ancestors and checkpoint.restorable:
            saved = step
    return max(0, position.step - saved)


class RestorePlan(msgspec.Struct, frozen=True):
    """What a restore does to the branches of a run.

    Attributes:
        target: The checkpoint to restore.
        position: Where training is; None if no worker reported it.
        branch: The branch on which training continues.
        is_new_branch: Whether the restore starts that branch.
        steps_back: How many steps training goes back; 0 if it goes forward.
        unsaved_steps: How many steps since the newest checkpoint are lost.
        passed: The lineage of where training is.
        kept: The lineage of the target.
        left_behind: Checkpoints that stop being ancestors, newest first.
    """

    target: Checkpoint
    position: BranchStep | None
    branch: int
    is_new_branch: bool
    steps_back: int
    unsaved_steps: int
    passed: Lineage
    kept: Lineage
    left_behind: tuple[str, ...]


def plan_restore(
    checkpoints: Sequence[Checkpoint],
    tips: BranchTips,
    target: Checkpoint,
    position: BranchStep | None,
) -> RestorePlan:
    """Returns what a restore of `target` does.

    Args:
        checkpoints: All checkpoints of the run, newest first.
        tips: The tips of its branches.
        target: The checkpoint to restore, one of `checkpoints`.
        position: Where training is; None if no worker reported it.

    Raises:
        RefusedError: The checkpoint cannot be restored.
    """
    if not target.restorable:
        reason = f"{target.name} is {target.state.value} and cannot be restored"
        raise RefusedError(f"{reason}: {target.problem}" if target.problem else f"{reason}.")
    if target.stranger:
        raise RefusedError(
            f"{target.name} belongs to {target.stranger}, who added it to a directory with the "
            "sticky bit: the next start would pass over it. To restore it, copy its files under "
            "another name."
        )
    if target.step is None:
        raise RefusedError(
            f"{target.name} cannot be restored: it has neither a record nor a step in its name. "
            f"Rename its files to {target.name}-STEP, such as {target.name}-500.index."
        )
    branch = tips.after_restore(target)
    passed = lineage_at(checkpoints, position)
    kept = lineage_of(checkpoints, target.name)
    kept_names = frozenset(kept.names)
    return RestorePlan(
        target=target,
        position=position,
        branch=branch,
        is_new_branch=branch != target.branch,
        steps_back=max(0, position.step - target.step) if position is not None else 0,
        unsaved_steps=_unsaved_steps(checkpoints, passed, position) if position is not None else 0,
        passed=passed,
        kept=kept,
        left_behind=tuple([name for name in passed.names if name not in kept_names]),
    )


def _trace(checkpoints: Sequence[Checkpoint], row: int | None, steps: dict[int, int]) -> Lineage:
    """Follows the parents from `row` on; `steps` are those passed already."""
    rows = {checkpoint.name: row for row, checkpoint in enumerate(checkpoints)}
    names: dict[str, None] = {}
    # A damaged record may name a descendant as its parent. A run has thousands of checkpoints:
    # little is called for each.
    while row is not None and (name := checkpoints[row].name) not in names:
        checkpoint = checkpoints[row]
        names[name] = None
        step, branch, parent = checkpoint.step, checkpoint.branch, checkpoint.parent
        if step is not None and step > steps.get(branch, -math.inf):
            steps[branch] = step
        if parent is not None and parent in rows:
            row = rows[parent]
        else:
            row = _row_before(checkpoints, row, steps)
    return Lineage(tuple(names), steps)


def _row_before(checkpoints: Sequence[Checkpoint], row: int, steps: dict[int, int]) -> int | None:
    """Returns the row of the nearest ancestor of a checkpoint whose parent is not there."""
    checkpoint = checkpoints[row]
    parent = checkpoint.parent
    said = parse_checkpoint_name(parent) if parent is not None else None
    if said is not None:
        pruned = BranchStep(said.branch, said.step)
        _record_step(steps, pruned)
        return _newest(checkpoints, row + 1, pruned)
    is_first = checkpoint.packed is not None and parent is None
    if is_first or not is_trained(checkpoint):
        return None
    return _next_trained(checkpoints, row + 1, checkpoint.branch)


def _next_trained(checkpoints: Sequence[Checkpoint], first: int, branch: int) -> int | None:
    """Returns the row of the next checkpoint that training saved on a branch."""
    rows = range(first, len(checkpoints))
    return next(
        (i for i in rows if checkpoints[i].branch == branch and is_trained(checkpoints[i])), None
    )


def _newest(checkpoints: Sequence[Checkpoint], first: int, position: BranchStep) -> int | None:
    """Returns the row of the newest one that training saved at or before a position."""
    for row in range(first, len(checkpoints)):
        checkpoint = checkpoints[row]
        is_before = checkpoint.step is not None and checkpoint.step <= position.step
        if is_before and checkpoint.branch == position.branch and is_trained(checkpoint):
            return row
    return None


def _head_row(checkpoints: Sequence[Checkpoint]) -> int | None:
    return next((row for row, c in enumerate(checkpoints) if c.is_head), None)


def _record_step(steps: dict[int, int], position: BranchStep) -> None:
    steps[position.branch] = max(position.step, steps.get(position.branch, position.step))
