"""The list of runs: state, progress, loss, rate, alerts, disk and last activity."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from tfckpt_trainer.rundir.heartbeats.health import HAS_ENDED, RunState
from tfckpt_tui.app.widgets.base.columns import Column, Layout, choose, column_of, stretched
from tfckpt_tui.app.widgets.base.empty_page import EmptyPage, Offer
from tfckpt_tui.app.widgets.base.icons import MARK, Icon, run_icon
from tfckpt_tui.app.widgets.base.list_pane import match_note
from tfckpt_tui.app.widgets.base.marks import Marks
from tfckpt_tui.app.widgets.base.styled_text import Span, StyledLine, line, shorten, shorten_middle
from tfckpt_tui.app.widgets.base.table_pane import TablePane
from tfckpt_tui.formats import run_columns, units
from tfckpt_tui.formats.sort_order import Order
from tfckpt_tui.formats.text import clean
from tfckpt_tui.services.runs.account import RunAccount

_PURPOSE = "Each has a line here, and the keys act on one or on all marked ones."
_FIRST_RUNS = (
    Offer(key="n", text="launch a run of your script"),
    Offer(text="tfckpt-tui demo", told="starts a small one"),
    Offer(text="tfckpt-tui browse .", told="lists those below the directory of your shell"),
)

BARS = "▁▂▃▄▅▆▇█"
_NOT_FINITE = "✗"


def sparkline(values: Sequence[float | None], width: int) -> str:
    """Returns values as bars, oldest first, in at most `width` cells.

    A bar is the mean of the values that share its cell. One that is not finite, or None, is a
    cross.

    Args:
        values: The values.
        width: The number of cells.
    """
    count = min(width, len(values))
    ends = [place * len(values) // count for place in range(count + 1)] if count else []
    means = [_mean(values[begin:end]) for begin, end in pairwise(ends)]
    finite = [mean for mean in means if mean is not None]
    if not finite:
        return _NOT_FINITE * len(means)
    low, high = min(finite), max(finite)
    return "".join(_NOT_FINITE if mean is None else _bar(mean, low, high) for mean in means)


def _mean(values: Sequence[float | None]) -> float | None:
    """Returns the mean; None if a value is not finite."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    # Divided first: a sum of large values is infinite.
    return sum(value / len(known) for value in known) if len(known) == len(values) else None


def _bar(value: float, low: float, high: float) -> str:
    # Halved: the difference of large values is infinite.
    span = high / 2 - low / 2
    share = (value / 2 - low / 2) / span if span > 0 else 0.0
    return BARS[min(len(BARS) - 1, round(share * (len(BARS) - 1)))]


_MARK = Column("mark", "", 1)
_COLUMNS = {
    column.key: column_of(column.key, column.cell)
    for column in run_columns.COLUMNS
    if column.cell is not None
}
_JOB = replace(_COLUMNS["host"], title="batch job", width=16, rank=1)
"""Instead of the host, in lists in which a run has a batch job."""

_UNKNOWN_RANK = 10
"""Added to the rank of columns in which no run has a value: these are left out first."""


def key_of_run(run: RunAccount) -> str:
    """Returns the key of a run in the list: its directory."""
    return str(run.root)


_TEXTS = {column.key: column.shown for column in run_columns.COLUMNS}

_OWN_CELLS = frozenset({"state", "curve", "path"})
"""Columns whose texts depend on the width, or have an icon."""

_SPECIAL = frozenset({"state", "alerts", "strategy", "host", "path"})
"""Columns whose width depends on their texts, or that stand for each other."""


@dataclass(frozen=True)
class RunListView:
    """What a user chose in a list of runs.

    Attributes:
        order: The sort order.
        needle: The search.
        marks: The marked runs.
        key: The selected run; None if there is none.
        cursor: Its row.
        top: The first visible row.
    """

    order: Order | None = None
    needle: str = ""
    marks: Marks[RunAccount] = field(default_factory=lambda: Marks(key_of_run))
    key: str | None = None
    cursor: int = 0
    top: int = 0


class _Texts(NamedTuple):
    """The texts of a run that decide which columns there are, and how wide."""

    run: RunAccount
    words: str
    job: str
    alerts: str
    strategy: str
    place: str
    path: str


class RunList(TablePane[RunAccount, RunAccount]):
    """Runs: those with live processes first, then the most recently active."""

    title = "runs"

    def __init__(
        self,
        below: Path | None = None,
        view: RunListView | None = None,
        *,
        id: str | None = None,  # noqa: A002
    ) -> None:
        """Makes the list.

        Args:
            below: The directory that was searched for the runs; None if none was.
            view: What a user chose in an earlier list.
            id: ID of the widget.
        """
        super().__init__(run_columns.sort_orders(), key_of_run, id=id)
        self._below = below
        view = view or RunListView()
        self._order, self._needle, self._marks = view.order, view.needle, view.marks
        self._key, self._cursor, self._top = view.key, view.cursor, view.top
        # The first results of a search are seldom the first rows.
        self.follows_first = view.key is None
        self._all: tuple[RunAccount, ...] = ()
        self._texts: dict[Path, _Texts] = {}
        self._layouts: dict[int, Layout] = {}
        self._known: AbstractSet[str] = frozenset()
        self._at = 0.0
        self._is_read = False
        self._left_out = ""
        self._unseen = 0

    @property
    def view(self) -> RunListView:
        """What the user chose."""
        return RunListView(self._order, self._needle, self._marks, self._key, self.cursor, self.top)

    @property
    def all_items(self) -> tuple[RunAccount, ...]:
        """All runs."""
        return self._all

    @property
    def shown_items(self) -> Sequence[RunAccount]:
        """The runs that match the search."""
        return self.rows

    @property
    def selected_item(self) -> RunAccount | None:
        """The run under the cursor."""
        return self.selected

    @property
    def chosen(self) -> tuple[RunAccount, ...]:
        """The runs that an action applies to: the marked ones, or else the selected one."""
        if self.marked or self.marks_are_gone or self.selected is None:
            return self.marked
        return (self.selected,)

    @property
    def needle(self) -> str:
        """The search."""
        return self._needle

    def show_runs(
        self, runs: Sequence[RunAccount], at: float, left_out: str = "", unseen: int = 0
    ) -> None:
        """Shows the runs.

        Args:
            runs: The runs.
            at: When they were read, in seconds since the epoch.
            left_out: What was not searched for runs, in words.
            unseen: How many runs were found and not read yet.
        """
        self._all, self._at, self._is_read = tuple(runs), at, True
        self._left_out, self._unseen = left_out, unseen
        self._texts = {run.root: self._texts_of(run) for run in runs}
        self.choose_rows()

    def search(self, text: str) -> None:
        """Shows only runs whose line contains all words of `text`."""
        self._needle = text
        self.choose_rows()

    def choose_rows(self) -> None:
        """Lists the runs that match the search, in the sort order."""
        words = self._needle.casefold().split()
        runs: Sequence[RunAccount] = self._all
        if words:
            runs = [
                run
                for run in runs
                if all(word in run_columns.searchable_text(run) for word in words)
            ]
        self._known = {
            column.key
            for column in run_columns.COLUMNS
            if any(column.value(run) is not None for run in runs)
        }
        self.show_rows(self.in_order(runs))

    def repaint(self) -> None:
        """Chooses the columns anew, and redraws the lines that changed."""
        self._layouts.clear()
        super().repaint()

    def heading(self) -> Sequence[Span]:
        """Returns the title, and below which directory the runs are."""
        if self._below is None:
            return super().heading()
        room = max(0, self.size.width - 20 - line(*self.note()).width)
        below = shorten_middle(clean(str(self._below)), room)
        return (*super().heading(), (" below ", "label"), (below, "muted"))

    def _path_of(self, run: RunAccount) -> str:
        """Returns the path of a run, in the directory that was searched."""
        below = self._below
        if below is None or run.root == below or below not in run.root.parents:
            return run.path
        return clean(str(run.root.relative_to(below)))

    def _texts_of(self, run: RunAccount) -> _Texts:
        """Returns the texts of a run; those of before while its account is the same one."""
        known = self._texts.get(run.root)
        if known is not None and known.run is run:
            return known
        path = self._path_of(run)
        words, job = run.words, run.job_in_short
        alerts, strategy, place = (_TEXTS[key](run, 0.0) for key in ("alerts", "strategy", "host"))
        return _Texts(run, words, job, alerts, strategy, place, path)

    def note(self) -> Sequence[Span]:
        """Returns the number of runs, of those that train, with alerts and marked; or matches.

        Also what was not searched: there may be runs.
        """
        if self._needle:
            return (*match_note(self.row_count(), len(self._all), self._needle), *self._marked())
        seen = [run for run in self._all if run.remembered_for is None]
        spans: list[Span] = [(units.count(len(self._all), "run"), "label")]
        trains = sum(run.state is RunState.TRAINING for run in seen)
        alarming = sum(bool(run.alerts) for run in seen)
        if trains:
            spans += [(" · ", "faint"), (f"{trains:,} training", "label")]
        if alarming:
            spans += [(" · ", "faint"), (f"{alarming:,} with problems", "bad")]
        spans += self._marked()
        if self._unseen:
            spans += [(" · ", "faint"), (f"{self._unseen:,} not read yet", "label")]
        if self._left_out:
            spans += [(" · ", "faint"), (f"not searched: {self._left_out}", "label")]
        return spans

    def _marked(self) -> Sequence[Span]:
        count = len(self.marked)
        return ((" · ", "faint"), (f"{MARK} {count:,} marked", "accent")) if count else ()

    def row_key(self, row: int) -> str:
        """Returns the run directory."""
        return key_of_run(self.rows[row])

    def empty_lines(self, width: int) -> Sequence[StyledLine]:
        """Returns how to open a first run."""
        if self._all:
            words = f"no run matches {clean(self._needle)}; esc shows all"
            return (line((shorten(words, width), "muted")),)
        if not self._is_read:
            return (line(("searching for runs …", "muted")),)
        below = "" if self._below is None else f" below {clean(str(self._below))}"
        return EmptyPage(
            purpose=f"There are no runs{below} yet. {_PURPOSE}", offers=_FIRST_RUNS
        ).lines(width, self)

    def head_lines(self, width: int) -> Sequence[StyledLine]:
        """Returns the headings of the columns."""
        return (self.column_layout(width).head(),) if self.rows else ()

    def column_layout(self, width: int) -> Layout:
        """Returns the columns; marks, alerts and batch jobs have one if there are any."""
        if width not in self._layouts:
            self._layouts[width] = choose([*self._columns(width)], width)
        return self._layouts[width]

    def _columns(self, width: int) -> Iterator[Column]:
        if self.marked:
            yield _MARK
        texts = [self._texts[run.root] for run in self.rows]
        # Beside the icon and a blank.
        longest = 2 + max((len(one.words) for one in texts), default=0)
        state = _COLUMNS["state"]
        yield self.with_arrow(replace(state, width=max(state.width, longest)))
        for key, column in _COLUMNS.items():
            if key not in _SPECIAL:
                rank = column.rank if key in self._known else column.rank + _UNKNOWN_RANK
                yield self.with_arrow(replace(column, rank=rank))
        if any(run.alerts for run in self.rows):
            # Instead of the strategy.
            yield self._stretched(_COLUMNS["alerts"], [one.alerts for one in texts])
        else:
            yield self._stretched(_COLUMNS["strategy"], [one.strategy for one in texts])
        has_jobs = any(one.job for one in texts)
        place = _JOB if has_jobs else _COLUMNS["host"]
        yield self._stretched(place, [one.place for one in texts])
        # A name that is cut tells little: it comes before columns that can be left out.
        path = _COLUMNS["path"]
        path = replace(path, width=max(path.width, width // 3))
        yield self._stretched(path, [one.path for one in texts])

    def _stretched(self, column: Column, texts: Iterable[str]) -> Column:
        """Returns a column that takes as much of the spare width as its texts need."""
        return self.with_arrow(stretched(column, texts))

    def cells(self, row: RunAccount, layout: Layout) -> Mapping[str, Sequence[Span]]:
        """Returns the texts of a run by column."""
        is_past = row.remembered_for is not None
        sign = Icon("✗", "bad", "") if row.alerts else run_icon(row)
        sign = Icon(sign.glyph, "muted", "") if is_past else sign
        value = "muted" if is_past or row.state in HAS_ENDED else "value"
        losses = row.glance.losses if row.glance is not None else ()
        cells: dict[str, Sequence[Span]] = {}
        for column in run_columns.COLUMNS:
            if column.cell is not None and column.key not in _OWN_CELLS:
                style = column.cell.style if column.cell.style != "value" else value
                cells[column.key] = ((column.shown(row, self._at), style),)
        return {
            **cells,
            "mark": ((MARK, "accent"),) if key_of_run(row) in self._marks else (),
            "state": sign.with_word(row.words),
            "curve": ((sparkline(losses, layout.width_of("curve")), "muted"),),
            "path": ((shorten_middle(self._path_of(row), layout.width_of("path")), "strong"),),
        }
