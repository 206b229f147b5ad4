"""The tree of branches beside the history, drawn as Git tools draw it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint, is_derived
from tfckpt_trainer.catalog.scan.lineage import Lineage, fork_points
from tfckpt_tui.app.widgets.base.styled_text import Span, branch_style

MOST_LANES = 8
"""If more branches run side by side, they share the last lane."""


class _Lane(msgspec.Struct, frozen=True):
    """The column and the rows of one branch, from its newest checkpoint down to its fork."""

    branch: int
    column: int
    top: int
    bottom: int
    fork: int | None


class BranchTree:
    """The lanes of all branches beside a list of checkpoints, newest first."""

    def __init__(self, checkpoints: Sequence[Checkpoint], lineage: Lineage) -> None:
        self._checkpoints = checkpoints
        self._ancestors = frozenset(lineage.names)
        self._lanes = _lanes(checkpoints)
        self._column_of = {lane.branch: lane.column for lane in self._lanes}
        self._newest_ancestor = {
            checkpoint.branch: row
            for row, checkpoint in _oldest_first(checkpoints)
            if checkpoint.name in self._ancestors
        }

    @property
    def width(self) -> int:
        """The width of each row in cells."""
        return 2 * max((lane.column + 1 for lane in self._lanes), default=1) - 1

    def is_ancestor_row(self, row: int) -> bool:
        """Whether the checkpoint in `row` is an ancestor of the model in training."""
        return self.is_ancestor(self._checkpoints[row])

    def is_ancestor(self, checkpoint: Checkpoint) -> bool:
        """Whether a checkpoint is an ancestor of the model in training."""
        return checkpoint.name in self._ancestors

    def node(self, checkpoint: Checkpoint) -> Span:
        """Returns the symbol of a checkpoint: current, ancestor or neither; made from others."""
        ancestor = self.is_ancestor(checkpoint)
        trained = "●" if ancestor else "○"
        glyph = "◉" if checkpoint.is_head else "◇" if is_derived(checkpoint) else trained
        return glyph, branch_style(checkpoint.branch, past=not ancestor)

    def row(self, row: int) -> list[Span]:
        """Returns one row of the tree, `width` cells wide."""
        checkpoint = self._checkpoints[row]
        cells: list[Span] = [(" ", "")] * self.width
        own = self._column_of[checkpoint.branch]
        for lane in self._lanes:
            past = row < self._newest_ancestor.get(lane.branch, len(self._checkpoints))
            style = branch_style(lane.branch, past=past)
            if lane.top < row < lane.bottom and lane.column != own:
                cells[2 * lane.column] = ("│", style)
        for lane in self._lanes:
            if lane.fork == row:
                _draw_fork(cells, own, lane)
        cells[2 * own] = self.node(checkpoint)
        return cells


class Nodes:
    """The symbols of a filtered or sorted list, in which lanes would be wrong."""

    width = 1

    def __init__(self, checkpoints: Sequence[Checkpoint], tree: BranchTree) -> None:
        self._checkpoints = checkpoints
        self._tree = tree

    def is_ancestor_row(self, row: int) -> bool:
        """Whether the checkpoint in `row` is an ancestor of the model in training."""
        return self._tree.is_ancestor(self._checkpoints[row])

    def row(self, row: int) -> list[Span]:
        """Returns the symbol of one row."""
        return [self._tree.node(self._checkpoints[row])]


def _draw_fork(cells: list[Span], own: int, lane: _Lane) -> None:
    style = branch_style(lane.branch)
    for column in range(2 * own + 1, 2 * lane.column):
        if cells[column][0] == " ":
            cells[column] = ("─", style)
        elif cells[column][0] == "│":
            cells[column] = ("┼", cells[column][1])
        elif cells[column][0] == "╯":
            cells[column] = ("┴", cells[column][1])
    cells[2 * lane.column] = ("╯", style)


def _lanes(checkpoints: Sequence[Checkpoint]) -> list[_Lane]:
    tops = {checkpoint.branch: row for row, checkpoint in _oldest_first(checkpoints)}
    bottoms = {checkpoint.branch: row for row, checkpoint in enumerate(checkpoints)}
    forks = fork_points(checkpoints)
    fork_names = {*forks.values()}
    rows = {c.name: row for row, c in enumerate(checkpoints) if c.name in fork_names}
    lanes: list[_Lane] = []
    for branch in sorted(tops):
        top, bottom = tops[branch], bottoms[branch]
        fork = rows[forks[branch]] if branch in forks else None
        # A damaged record may name a newer checkpoint as the parent.
        if fork is not None and fork <= bottom:
            fork = None
        end = bottom if fork is None else fork
        origin = None if fork is None else checkpoints[fork].branch
        base = next((lane.column + 1 for lane in lanes if lane.branch == origin), 0)
        taken = {lane.column for lane in lanes if not (lane.bottom < top or end < lane.top)}
        column = next(c for c in range(base, len(tops) + base + 1) if c not in taken)
        lanes.append(_Lane(branch, min(column, MOST_LANES - 1), top, end, fork))
    return lanes


def _oldest_first(checkpoints: Sequence[Checkpoint]) -> Iterator[tuple[int, Checkpoint]]:
    """Returns the rows from the last one up: of a branch, the newest comes last."""
    return zip(range(len(checkpoints) - 1, -1, -1), reversed(checkpoints), strict=True)
