"""The comparison of two checkpoints: indexes first, sizes of the changes on request."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar

from msgspec.structs import replace
from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from tfckpt_trainer.bundle.analysis.compare import TensorChange, TensorComparison, TensorDifference
from tfckpt_trainer.bundle.dtypes import format_tensor, is_inexact
from tfckpt_trainer.bundle.index import TensorEntry
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.app.screens.page import Page
from tfckpt_tui.app.widgets.base.columns import GAP, Column, Layout, choose
from tfckpt_tui.app.widgets.base.keybar import KeyBar
from tfckpt_tui.app.widgets.base.list_pane import ListPane, TextPane
from tfckpt_tui.app.widgets.base.pane import is_open
from tfckpt_tui.app.widgets.base.styled_text import Span, StyledLine, line, shorten_middle
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.services.checkpoints.compare import (
    Comparison,
    Measured,
    compare_checkpoints,
    measure,
    worst_first,
)

_COLUMNS = (
    Column("sign", "", 1, align="<"),
    Column("name", "tensor", 24, align="<"),
    Column("difference", "difference", 11, align="<"),
    Column("change", "change", 10),
    Column("norms", "norm", 19, rank=3),
    Column("what", "type and shape", 14, rank=2, align="<", stretch=1),
)
_FIXED = sum(column.width + GAP for column in _COLUMNS if not column.rank and column.key != "name")
_SIGNS: Mapping[TensorDifference, tuple[str, str, str]] = {
    TensorDifference.ADDED: ("+", "good", "added"),
    TensorDifference.REMOVED: ("−", "bad", "removed"),
    TensorDifference.SHAPE: ("≠", "warn", "other shape"),
    TensorDifference.DTYPE: ("≠", "warn", "other type"),
    TensorDifference.CHANGED: ("~", "calm", "changed"),
    TensorDifference.EQUAL: ("=", "muted", "equal"),
}


class Differences(ListPane[TensorComparison]):
    """Tensors that differ, the largest change first once changes are measured."""

    title = "tensors"
    columns = _COLUMNS

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._tensors: Sequence[TensorComparison] = ()
        self._titles: Mapping[str, str] = {}
        self._damage: Mapping[str, str] = {}
        self._longest = 0
        self._changes: Mapping[str, TensorChange] = {}
        self._everything = False
        self._is_read = False

    def show_tensors(
        self,
        tensors: Sequence[TensorComparison],
        titles: Mapping[str, str],
        damage: Mapping[str, str],
    ) -> None:
        """Shows the tensors of both checkpoints.

        Args:
            tensors: The compared tensors.
            titles: Paths of variables, by the name of their tensor.
            damage: Problems of tensors, by name.
        """
        self._tensors, self._titles, self._is_read = tensors, titles, True
        self._damage = damage
        self._update_rows()

    def show_measured(self, measured: Sequence[Measured]) -> None:
        """Shows how much tensors changed, as far as they were measured."""
        changes = {tensor.name: tensor.change for tensor in measured if tensor.change is not None}
        unread = {tensor.name: tensor.problem for tensor in measured if tensor.problem}
        if len(changes) != len(self._changes) or not unread.keys() <= self._damage.keys():
            self._changes, self._damage = changes, {**self._damage, **unread}
            self._update_rows()

    def toggle_equal(self) -> None:
        """Shows or hides equal tensors."""
        self._everything = not self._everything
        self._update_rows()

    def note(self) -> Sequence[Span]:
        """Returns the number of visible tensors."""
        return ((f"{self.row_count():,} of {len(self._tensors):,}", "label"),)

    def row_key(self, row: int) -> str:
        """Returns the name of the tensor."""
        return self.rows[row].name

    def why_empty(self) -> str:
        """Returns a message if there are no rows."""
        return "all tensors are equal; press a to show them" if self._is_read else "reading…"

    def cells(self, row: TensorComparison, layout: Layout) -> Mapping[str, Sequence[Span]]:
        """Returns one tensor."""
        name = shorten_middle(self._path(row), layout.width_of("name"))
        cells = _cells(row, name, self._changes.get(row.name))
        if row.name in self._damage:
            cells["difference"] = (("damaged", "bad"),)
        return cells

    def _path(self, row: TensorComparison) -> str:
        return clean(self._titles.get(row.name, row.name))

    def column_layout(self, width: int) -> Layout:
        """Returns the columns, with names as wide as they need: cut ones look the same."""
        sign, name, *others = self.columns
        needed = max(name.width, min(self._longest, width - _FIXED))
        return choose((sign, replace(name, width=needed), *others), width)

    def _update_rows(self) -> None:
        shown = [
            tensor
            for tensor in self._tensors
            if self._everything
            or tensor.difference is not TensorDifference.EQUAL
            or tensor.name in self._damage
        ]
        if self._changes or self._damage:
            shown.sort(key=lambda tensor: worst_first(self._damage, self._changes, tensor))
        self._longest = max((cell_len(self._path(tensor)) for tensor in shown), default=0)
        self.show_rows(shown)


def _cells(
    tensor: TensorComparison, name: str, change: TensorChange | None
) -> dict[str, Sequence[Span]]:
    sign, style, word = _SIGNS[tensor.difference]
    cells: dict[str, Sequence[Span]] = {
        "sign": ((sign, style),),
        "name": ((name, "value"),),
        "difference": ((word + ("?" if tensor.unknown else ""), style),),
        "what": ((_what(tensor.before, tensor.after), "muted"),),
    }
    if change is not None:
        percent = f"{100 * change.relative:.3g} %" if math.isfinite(change.relative) else "from 0"
        moved = "not finite" if change.not_finite else percent
        before, after = units.metric(change.norm_before), units.metric(change.norm_after)
        cells["change"] = ((moved, "bad" if change.not_finite else "strong"),)
        cells["norms"] = ((f"{before} → {after}", "muted"),)
        if change.not_finite:
            cells["norms"] = ((f"{change.not_finite:,} not finite", "bad"),)
    return cells


def _what(before: TensorEntry | None, after: TensorEntry | None) -> str:
    sides = [
        format_tensor(entry.dtype, entry.shape) for entry in (before, after) if entry is not None
    ]
    return " → ".join(dict.fromkeys(sides))


_POLL_SECONDS = 0.2


class CompareScreen(Page):
    """Shows what changed between two checkpoints."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "n",
            "measure",
            "by how much",
            tooltip="Reads the changed tensors: how far each moved, and whether it became NaN.",
        ),
        Binding("a", "everything", "equal ones too", tooltip="Shows or hides equal tensors."),
        Binding("d", "close", "Back", show=False),
    ]
    caption = "the comparison"
    AUTO_FOCUS = "#differences"

    def __init__(self, run: RunDirectory, before: Checkpoint, after: Checkpoint) -> None:
        super().__init__()
        self._run = run
        self._before = before
        self._after = after
        self._comparison: Comparison | None = None
        self._problem = ""
        self._measured: list[Measured] = []
        self._measuring = False
        self._stopped = threading.Event()

    def compose(self) -> ComposeResult:
        """Makes the facts, the table and the keys."""
        yield TextPane(boxed=False, id="facts")
        yield Differences(id="differences")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        """Starts to read both indexes in a thread."""
        work = partial(compare_checkpoints, self._run, self._before, self._after)
        self.run_app.start_job("compare", work, self._show_comparison, self._fail)
        self.set_interval(_POLL_SECONDS, self._poll)
        # `is_open` is true only after this handler.
        self.call_later(self._update)

    def on_unmount(self) -> None:
        """Stops reading tensors."""
        self._stopped.set()

    def show(self, snapshot: RunSnapshot) -> None:
        """Ignores snapshots: the comparison does not change."""
        del snapshot

    def action_everything(self) -> None:
        """Shows or hides equal tensors."""
        self.query_one(Differences).toggle_equal()

    def action_measure(self) -> None:
        """Reads the changed tensors; the table fills while it reads."""
        has_failed = bool(self._problem) and self._comparison is None
        if not (has_failed or self._measuring or self._measured):
            self._measuring = True
            self._begin_to_measure()
            self._update()

    def _begin_to_measure(self) -> None:
        """Starts to read tensors, if that is wanted and the indexes were read."""
        if self._measuring and self._comparison is not None:
            work = partial(self._measure, self._comparison)
            self.run_app.start_job("compare", work, self._end, self._fail)

    def _measure(self, comparison: Comparison) -> None:
        for measurement in measure(self._run, comparison):
            if self._stopped.is_set():
                return
            # Safe without a lock: this thread only appends, the other only reads.
            self._measured.append(measurement)

    def _show_comparison(self, comparison: Comparison) -> None:
        if is_open(self):
            self._comparison = comparison
            self.query_one(Differences).show_tensors(
                comparison.tensors, comparison.titles, comparison.damage
            )
            self._begin_to_measure()
            self._update()

    def _end(self, nothing: None) -> None:
        del nothing
        self._measuring = False
        self._show_measured()

    def _fail(self, problem: str) -> None:
        self._problem, self._measuring = problem, False
        self._update()

    def _poll(self) -> None:
        if self._measuring:
            self._show_measured()

    def _show_measured(self) -> None:
        if is_open(self):
            self.query_one(Differences).show_measured(tuple(self._measured))
            self._update()

    def _update(self) -> None:
        if not is_open(self):
            return
        lines = [_title(self._before, self._after)]
        if self._comparison is not None:
            lines.append(_counts(self._comparison))
            lines += [
                line(("✗ ", "bad"), (clean(problem), "bad"))
                for problem in self._comparison.problems
            ]
        if self._problem:
            lines.append(line(("✗ ", "bad"), (self._problem, "bad")))
        elif self._comparison is not None:
            lines.append(self._measure_line(self._comparison))
        head = self.query_one("#facts", TextPane)
        head.styles.height = len(lines)
        head.show_lines(lines)

    def _measure_line(self, comparison: Comparison) -> StyledLine:
        changed = comparison.count(TensorDifference.CHANGED)
        if self._measuring:
            done = f"{len(self._measured):,} of {changed:,} read"
            return line(("◌ ", "busy"), (done, "value"))
        if self._measured:
            read = [tensor.change for tensor in self._measured if tensor.change is not None]
            return line(_distance(comparison, read), *_unread(self._measured))
        if changed:
            return line(
                ("n", "key"),
                (" reads what changed, and shows by how much", "label"),
            )
        return line(("✓ ", "good"), ("nothing to measure", "muted"))


def _title(before: Checkpoint, after: Checkpoint) -> StyledLine:
    return line(
        ("from ", "label"), (clean(before.name), "title"), _step(before),
        ("  to ", "label"), (clean(after.name), "title"), _step(after),
    )  # fmt: skip


def _step(checkpoint: Checkpoint) -> Span:
    return (f" step {checkpoint.step:,}" if checkpoint.step is not None else "", "muted")


def _counts(comparison: Comparison) -> StyledLine:
    spans: list[Span] = []
    for kind, style in _STYLES.items():
        count = comparison.count(kind)
        if count:
            spans += [(f"{count:,} ", "value"), (_WORDS[kind], style), ("   ", "")]
    return StyledLine(tuple(spans))


def _unread(measured: Sequence[Measured]) -> list[Span]:
    problems = [tensor.problem for tensor in measured if tensor.problem]
    if not problems:
        return []
    more = f", and {len(problems) - 1:,} more" if len(problems) > 1 else ""
    return [("   ✗ ", "bad"), (f"{clean(problems[0])}{more}", "bad")]


def _distance(comparison: Comparison, measured: Sequence[TensorChange]) -> Span:
    """Returns the total distance; without counters such as the step, which would dominate."""
    inexact = {
        t.name for t in comparison.tensors if t.after is not None and is_inexact(t.after.dtype)
    }
    measured = [change for change in measured if change.name in inexact]
    apart = math.hypot(*(change.distance for change in measured if math.isfinite(change.distance)))
    before = math.hypot(
        *(change.norm_before for change in measured if math.isfinite(change.norm_before))
    )
    part = f"{100 * (apart / before):.3g} %" if before else "from zero"
    return (
        f"all tensors together changed by {part} of their norm {units.metric(before)}",
        "muted",
    )


_WORDS = {
    TensorDifference.CHANGED: "changed",
    TensorDifference.EQUAL: "equal",
    TensorDifference.ADDED: "added",
    TensorDifference.REMOVED: "removed",
    TensorDifference.SHAPE: "other shape",
    TensorDifference.DTYPE: "other dtype",
}
_STYLES = {
    TensorDifference.CHANGED: "calm",
    TensorDifference.EQUAL: "muted",
    TensorDifference.ADDED: "good",
    TensorDifference.REMOVED: "bad",
    TensorDifference.SHAPE: "warn",
    TensorDifference.DTYPE: "warn",
}
