"""The tree of branches beside the history, drawn as version control draws it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tfckpt_trainer.catalog.scan.checkpoints import Checkpoint
from tfckpt_tui.app.widgets.base.pane import branch_style
from tfckpt_tui.app.widgets.base.styled_text import Span

MOST_LANES = 8
"""More branches side by side than this share the last lane."""


@dataclass(frozen=True)
class _Lane:
    """Where one branch runs: its column, from its first row down to where it forks off."""

    branch: int
    column: int
    top: int
    bottom: int
    fork: int | None


class BranchTree:
    """The lanes of all branches over a list of checkpoints, newest first."""

    def __init__(self, checkpoints: Sequence[Checkpoint], current: int) -> None:
        self._checkpoints = checkpoints
        self._kept = _ancestry(checkpoints, current)
        self._lanes = _lanes(checkpoints)
        self._column_of = {lane.branch: lane.column for lane in self._lanes}
        self._first_kept: dict[int, int] = {}
        for row, checkpoint in enumerate(checkpoints):
            if checkpoint.name in self._kept:
                self._first_kept.setdefault(checkpoint.branch, row)

    @property
    def width(self) -> int:
        """Cells that each row takes."""
        return 2 * max((lane.column + 1 for lane in self._lanes), default=1) - 1

    def is_kept(self, row: int) -> bool:
        """Whether what is trained now came through the checkpoint in `row`."""
        return self.has_kept(self._checkpoints[row])

    def has_kept(self, checkpoint: Checkpoint) -> bool:
        """Whether what is trained now came through a checkpoint."""
        return checkpoint.name in self._kept

    def node(self, checkpoint: Checkpoint) -> Span:
        """Returns the sign of a checkpoint: of the current one, of one kept, of one given up."""
        kept = self.has_kept(checkpoint)
        glyph = "◉" if checkpoint.is_head else "●" if kept else "○"
        return glyph, branch_style(checkpoint.branch, past=not kept)

    def row(self, row: int) -> list[Span]:
        """Returns the drawing of one row, `width` cells wide."""
        checkpoint = self._checkpoints[row]
        cells: list[Span] = [(" ", "")] * self.width
        own = self._column_of[checkpoint.branch]
        for lane in self._lanes:
            past = row < self._first_kept.get(lane.branch, len(self._checkpoints))
            style = branch_style(lane.branch, past=past)
            if lane.top < row < lane.bottom and lane.column != own:
                cells[2 * lane.column] = ("│", style)
        for lane in self._lanes:
            if lane.fork == row:
                _draw_fork(cells, own, lane)
        cells[2 * own] = self.node(checkpoint)
        return cells


class Nodes:
    """The signs of checkpoints that are not all, or in another order: lanes would be wrong."""

    width = 1

    def __init__(self, checkpoints: Sequence[Checkpoint], tree: BranchTree) -> None:
        self._checkpoints = checkpoints
        self._tree = tree

    def is_kept(self, row: int) -> bool:
        """Whether what is trained now came through the checkpoint in `row`."""
        return self._tree.has_kept(self._checkpoints[row])

    def row(self, row: int) -> list[Span]:
        """Returns the sign of one row."""
        return [self._tree.node(self._checkpoints[row])]


def kept_until(checkpoints: Sequence[Checkpoint], current: int) -> dict[int, float]:
    """Returns for each branch up to which step it led to where training is now."""
    steps: dict[int, float] = {current: math.inf}
    kept = _ancestry(checkpoints, current)
    for checkpoint in checkpoints:
        if checkpoint.name in kept and checkpoint.step is not None:
            before = steps.get(checkpoint.branch, -math.inf)
            steps[checkpoint.branch] = max(before, checkpoint.step)
    return steps


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
    rows = {checkpoint.name: row for row, checkpoint in enumerate(checkpoints)}
    spans: dict[int, tuple[int, int]] = {}
    forks: dict[int, int | None] = {}
    for row, checkpoint in enumerate(checkpoints):
        top, _ = spans.get(checkpoint.branch, (row, row))
        spans[checkpoint.branch] = (top, row)
        parent = rows.get(checkpoint.parent) if checkpoint.parent is not None else None
        elsewhere = parent is not None and checkpoints[parent].branch != checkpoint.branch
        forks[checkpoint.branch] = (
            parent if elsewhere and parent is not None and parent > row else None
        )
    lanes: list[_Lane] = []
    for branch in sorted(spans):
        top, bottom = spans[branch]
        fork = forks[branch]
        end = bottom if fork is None else fork
        origin = None if fork is None else checkpoints[fork].branch
        base = next((lane.column + 1 for lane in lanes if lane.branch == origin), 0)
        taken = {lane.column for lane in lanes if not (lane.bottom < top or end < lane.top)}
        column = next(c for c in range(base, len(spans) + base + 1) if c not in taken)
        lanes.append(_Lane(branch, min(column, MOST_LANES - 1), top, end, fork))
    return lanes


def _ancestry(checkpoints: Sequence[Checkpoint], current: int) -> frozenset[str]:
    """Names of the checkpoints through which training reached where it is."""
    rows = {checkpoint.name: row for row, checkpoint in enumerate(checkpoints)}
    row = next((i for i, c in enumerate(checkpoints) if c.is_head), None)
    if row is None:
        row = next((i for i, c in enumerate(checkpoints) if c.branch == current), None)
    kept: set[str] = set()
    while row is not None and checkpoints[row].name not in kept:
        checkpoint = checkpoints[row]
        kept.add(checkpoint.name)
        if checkpoint.parent in rows:
            row = rows[checkpoint.parent]
        else:
            # Its parent was pruned or never recorded: what is older on its branch came before it.
            older = range(row + 1, len(checkpoints))
            row = next((i for i in older if checkpoints[i].branch == checkpoint.branch), None)
    return frozenset(kept)
