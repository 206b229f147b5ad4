"""The history: every checkpoint, newest first, beside the tree of branches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tfckpt_trainer.catalog.scan.checkpoints import Checkpoint
from tfckpt_tui.app.widgets.base.columns import Column, Layout, choose
from tfckpt_tui.app.widgets.base.glyphs import CHECKPOINT, MARK, PIN, Sign
from tfckpt_tui.app.widgets.base.listing import Listing
from tfckpt_tui.app.widgets.base.painting import Line, Span, line, shorten
from tfckpt_tui.app.widgets.checkpoints.branches import BranchTree, Nodes
from tfckpt_tui.formats import units
from tfckpt_tui.formats.checkpoint_filter import Filter
from tfckpt_tui.formats.checkpoint_order import Order, next_order
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot

_COLUMNS = (
    Column("name", "checkpoint", 12, align="<"),
    Column("pin", "", 1, align="<"),
    Column("step", "step", 9, rank=3),
    Column("branch", "branch", 6, rank=9),
    Column("state", "state", 12, align="<"),
    Column("age", "age", 5),
    Column("size", "size", 8, rank=1),
    Column("shards", "shards", 6, rank=5),
    Column("loss", "loss", 8, rank=2),
    Column("trigger", "why saved", 14, rank=4, align="<", stretch=1),
    Column("metrics", "other metrics", 13, rank=6, align="<", stretch=1),
    Column("duration", "took", 6, rank=10),
)


class History(Listing):
    """The table of checkpoints; its cursor says which one a command is about."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._all: tuple[Checkpoint, ...] = ()
        self._checkpoints: tuple[Checkpoint, ...] = ()
        self._rows: dict[str, int] = {}
        self._whole_tree = BranchTree((), 0)
        self._tree: BranchTree | Nodes = self._whole_tree
        self._filter = Filter("")
        self._order: Order | None = None
        self._columns: tuple[int, Layout] | None = None
        self._at = 0.0
        self._marked: list[str] = []

    @property
    def marked(self) -> list[Checkpoint]:
        """The marked checkpoints, in the order in which they were marked."""
        known = {c.name: c for c in self._all if c.name in self._marked}
        return [known[name] for name in self._marked if name in known]

    def turn_mark(self) -> None:
        """Marks the selected checkpoint or takes its mark off, and goes on to the next."""
        if self.selected is not None:
            name = self.selected.name
            if name in self._marked:
                self._marked.remove(name)
            else:
                self._marked.append(name)
            self.move_to(self.cursor + 1)
            self.repaint()

    def turn_all_marks(self) -> None:
        """Marks all that are shown; takes all marks off where they are marked already."""
        shown = [checkpoint.name for checkpoint in self._checkpoints]
        new = [name for name in shown if name not in self._marked]
        self._marked = [*self._marked, *new] if new else []
        self.repaint()

    def unmark(self) -> None:
        """Takes off all marks."""
        self._marked.clear()
        self.repaint()

    @property
    def selected(self) -> Checkpoint | None:
        """The checkpoint under the cursor."""
        return self._checkpoints[self.cursor] if self._checkpoints else None

    def select(self, name: str) -> None:
        """Puts the cursor on the checkpoint called `name`, if it is there."""
        row = self._rows.get(name)
        if row is not None:
            self.move_to(row)

    @property
    def filter(self) -> Filter:
        """Which checkpoints are shown."""
        return self._filter

    def filter_by(self, wanted: Filter) -> None:
        """Shows only what fulfils `wanted`."""
        self._filter = wanted
        self._choose_rows()

    def sort_next(self, places: int) -> None:
        """Sorts by a column so many further; the order of the history itself is one of them."""
        self._order = next_order(self._order, places)
        self._choose_rows()

    def turn_order(self) -> None:
        """Sorts the other way round."""
        if self._order is not None:
            self._order = replace(self._order, descending=not self._order.descending)
            self._choose_rows()

    def go_to_step(self, step: int) -> None:
        """Puts the cursor on the newest checkpoint whose step is nearest to `step`."""
        known = [
            (abs(c.step - step), row)
            for row, c in enumerate(self._checkpoints)
            if c.step is not None
        ]
        if known:
            self.move_to(min(known)[1])

    def show(self, snapshot: RunSnapshot) -> None:
        """Takes a new snapshot; the tree is built anew only when the checkpoints changed."""
        self.snapshot = snapshot
        self._at = snapshot.at
        is_other = snapshot.checkpoints != self._all
        if is_other:
            self._all = snapshot.checkpoints
            self._whole_tree = BranchTree(self._all, snapshot.branch)
        if is_other or self._filter.tests:
            # What a filter says of ages and marks changes by itself.
            was_first = self.cursor == 0 and self.top == 0
            self._choose_rows()
            if was_first and not self.has_moved:
                self.move_to(0)
        self.repaint()

    def _choose_rows(self) -> None:
        chosen: Sequence[Checkpoint] = self._all
        if self._filter.tests:
            marked = frozenset(self._marked)
            chosen = [c for c in chosen if self._filter.matches(c, self._at, marked)]
        if self._order is not None:
            chosen = self._order.apply(chosen)
        self._checkpoints = tuple(chosen)
        self._rows = {c.name: row for row, c in enumerate(self._checkpoints)}
        is_whole = self._order is None and not self._filter.tests
        self._tree = self._whole_tree if is_whole else Nodes(self._checkpoints, self._whole_tree)
        self._columns = None
        self.rows_changed()
        self.repaint()

    has_moved = False
    """Whether the person ever moved the cursor; until then it stays on the newest."""

    def move_to(self, row: int) -> None:
        """Puts the cursor on `row`."""
        super().move_to(row)
        self.has_moved = self.cursor != 0

    def heading(self) -> Sequence[Span]:
        """Returns the title, and what is wrong with the selected checkpoint."""
        selected = self.selected
        if selected is None or not selected.problem:
            return (("history", "title"),)
        problem = f"{clean(selected.name)}: {clean(selected.problem)}"
        room = max(0, self.size.width - 46)
        return (("history", "title"), ("  ✗ ", "bad"), (shorten(problem, room), "bad"))

    def note(self) -> Sequence[Span]:
        """Returns how many there are, what is pinned and what is in the trash."""
        snapshot = self.snapshot
        if snapshot is None:
            return ()
        spans = [*self._count(len(snapshot.checkpoints))]
        pinned = sum(checkpoint.pinned for checkpoint in snapshot.checkpoints)
        if pinned:
            spans += [(" · ", "faint"), (f"{PIN} ", "pin"), (f"{pinned} pinned", "label")]
        if self.marked:
            spans += [(" · ", "faint"), (f"{MARK} ", "accent")]
            spans += [(f"{len(self.marked)} marked", "label")]
        if snapshot.diagnostics:
            warns = any(diagnostic.severity == "warning" for diagnostic in snapshot.diagnostics)
            text = units.count(len(snapshot.diagnostics), "diagnostic")
            spans += [(" · ", "faint"), (f"! {text}", "warn" if warns else "label")]
        trashed = sum(len(manifest.checkpoints) for manifest in snapshot.trash)
        if trashed:
            spans += [(" · ", "faint"), (f"{trashed} in the trash", "label")]
        return spans

    def _count(self, count: int) -> Sequence[Span]:
        noun = " checkpoint" if count == 1 else " checkpoints"
        if not self._filter.tests:
            return ((f"{count:,}", "value"), (noun, "label"))
        shown = f"{len(self._checkpoints):,} of {count:,}"
        return (
            (shown, "value"),
            (noun, "label"),
            (" match ", "label"),
            (clean(self._filter.text), "accent"),
        )

    def row_count(self) -> int:
        """Returns how many checkpoints are shown."""
        return len(self._checkpoints)

    def row_key(self, row: int) -> str:
        """Returns the checkpoint's name."""
        return self._checkpoints[row].name

    def find_row(self, key: str) -> int | None:
        """Returns the row of the checkpoint called `key`."""
        return self._rows.get(key)

    def head_lines(self, width: int) -> Sequence[Line]:
        """Returns the titles of the columns."""
        if not self._checkpoints:
            return ()
        margin = (" " * (self._tree.width + 1), "")
        return (Line((margin, *self._layout(width).head().spans)),)

    def empty_lines(self, width: int) -> Sequence[Line]:
        """Returns what to do when there is no checkpoint."""
        if self.snapshot is None:
            return ()
        if self._all:
            words = f"no checkpoint matches {clean(self._filter.text)}; esc shows all"
            return (line((shorten(words, width), "muted")),)
        words = (
            "no checkpoint yet; press s to save one now"
            if self.snapshot.trainer_answers
            else "no checkpoint in this directory"
        )
        return (line((shorten(words, width), "muted")),)

    def row_line(self, row: int, width: int) -> Line:
        """Returns one checkpoint."""
        checkpoint = self._checkpoints[row]
        kept = self._tree.is_ancestor_row(row)
        cells = self._layout(width).row(
            _cells(checkpoint, self._at, kept=kept, marked=checkpoint.name in self._marked)
        )
        return Line((*self._tree.row(row), (" ", ""), *cells.spans))

    def _layout(self, width: int) -> Layout:
        """Returns the columns that fit, which are the same for all rows of a picture."""
        if self._columns is None or self._columns[0] != width:
            self._columns = width, self._choose_columns(width)
        return self._columns[1]

    def _choose_columns(self, width: int) -> Layout:
        longest = max((len(c.name) for c in self._checkpoints[:200]), default=12)
        others = max((len(_others(c.metrics)) for c in self._checkpoints[:50]), default=0)
        widths = {
            "name": max(10, min(longest, width // 4)),
            "metrics": max(13, min(others, 40)),
        }
        columns = [
            self._titled(replace(column, width=widths.get(column.key, column.width)))
            for column in _COLUMNS
            if column.key != "metrics" or others
        ]
        return choose(columns, width - self._tree.width - 1)

    def _titled(self, column: Column) -> Column:
        """Marks the column by which the rows are sorted, and keeps it in sight."""
        order = self._order
        if order is None or order.column != column.key:
            return column
        title = f"{column.title} {'▼' if order.descending else '▲'}"
        return replace(column, title=title, width=max(column.width, len(title)), rank=0)


def _cells(
    checkpoint: Checkpoint, at: float, *, kept: bool, marked: bool
) -> dict[str, Sequence[Span]]:
    sign = CHECKPOINT[checkpoint.state]
    value = "value" if kept else "muted"
    duration = checkpoint.record.duration_seconds if checkpoint.record else None
    loss = checkpoint.metrics.get("loss", _MISSING)
    why = clean(checkpoint.trigger) if not checkpoint.problem else clean(checkpoint.problem)
    return {
        "name": ((clean(checkpoint.name), "strong" if checkpoint.is_head else value),),
        "pin": ((MARK, "accent"),) if marked else ((PIN, "pin"),) if checkpoint.pinned else (),
        "step": ((f"{checkpoint.step:,}" if checkpoint.step is not None else "–", value),),
        "branch": ((str(checkpoint.branch), value),),
        "state": ((f"{sign.glyph} ", sign.style), (checkpoint.state.value, _tone(sign, value))),
        "age": ((units.age(max(0.0, at - checkpoint.saved_at)), "muted"),),
        "size": ((units.size(checkpoint.size), value),),
        "shards": ((str(checkpoint.shards), value),),
        "loss": (("–" if loss is _MISSING else units.metric(loss), value),),
        "trigger": ((why, "bad" if checkpoint.problem else "muted"),),
        "metrics": ((_others(checkpoint.metrics), "muted"),),
        "duration": (("–" if duration is None else units.step_time(duration), "muted"),),
    }


_MISSING = float("-inf")


def _tone(sign: Sign, otherwise: str) -> str:
    """The word of a good state is calm; what needs a look has the colour of its glyph."""
    return sign.style if sign.style in {"bad", "warn", "busy"} else otherwise


def _others(metrics: Mapping[str, float | None]) -> str:
    return "  ".join(
        f"{clean(name)} {units.metric(value)}"
        for name, value in sorted(metrics.items())
        if name != "loss"
    )
