"""The list of runs: state, progress, loss, rate, alerts, disk and last activity."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from tfckpt_trainer.rundir.heartbeats.health import HAS_ENDED, RunState
from tfckpt_tui.app.widgets.base.columns import Column, Layout, choose, stretched
from tfckpt_tui.app.widgets.base.icons import MARK, Icon, run_icon
from tfckpt_tui.app.widgets.base.list_pane import match_note
from tfckpt_tui.app.widgets.base.marks import Marks
from tfckpt_tui.app.widgets.base.styled_text import Span, StyledLine, line, shorten, shorten_middle
from tfckpt_tui.app.widgets.base.table_pane import TablePane
from tfckpt_tui.formats import units
from tfckpt_tui.formats.sort_order import Order, SortBy, SortOrders
from tfckpt_tui.formats.sparkline import sparkline
from tfckpt_tui.formats.text import clean, strategy_words
from tfckpt_tui.services.runs.account import Glance, RunAccount

_MARK = Column("mark", "", 1)
_STATE = Column("state", "state", 10, align="<")
_COLUMNS = (
    Column("step", "step", 9, rank=3),
    Column("branch", "branch", 6, rank=6),
    Column("share", "done", 5, rank=1),
    Column("loss", "loss", 8),
    Column("curve", "recent", 8, rank=2, align="<"),
    Column("rate", "rate", 7, rank=4),
    Column("left", "left", 5, rank=3),
    Column("age", "active", 7, rank=3),
    Column("disk", "disk", 8, rank=4),
)
_STRATEGY = Column("strategy", "strategy", 18, rank=6, align="<")
_ALERTS = Column("alerts", "problem", 16, rank=1, align="<")
"""Instead of the strategy, in lists in which a run has an alert."""

_HOST = Column("host", "host", 12, rank=5, align="<")
_JOB = Column("host", "batch job", 16, rank=1, align="<")
"""Instead of the host, in lists in which a run has a batch job."""

_PATH = Column("path", "run", 18, align="<")

_UNKNOWN_RANK = 10
"""Added to the rank of columns in which no run has a value: these are left out first."""


def key_of_run(run: RunAccount) -> str:
    """Returns the key of a run in the list: its directory."""
    return str(run.root)


_ORDERS = SortOrders[RunAccount](
    {
        "state": SortBy(lambda run: run.words, descending=False),
        "step": SortBy(lambda run: run.step),
        "share": SortBy(lambda run: _share(run)),
        "loss": SortBy(lambda run: run.loss, descending=False),
        "rate": SortBy(lambda run: run.rate),
        "left": SortBy(lambda run: run.seconds_left, descending=False),
        "age": SortBy(lambda run: run.active_at),
        "disk": SortBy(lambda run: run.glance.disk_used if run.glance is not None else None),
        "alerts": SortBy(lambda run: len(run.alerts)),
        "host": SortBy(lambda run: _place(run), descending=False),
        "path": SortBy(key_of_run, descending=False),
    }
)


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
        super().__init__(_ORDERS, key_of_run, id=id)
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
        selected = self.selected
        return self.marked or ((selected,) if selected is not None else ())

    @property
    def needle(self) -> str:
        """The search."""
        return self._needle

    def show_runs(self, runs: Sequence[RunAccount], at: float, left_out: str = "") -> None:
        """Shows the runs.

        Args:
            runs: The runs.
            at: When they were read, in seconds since the epoch.
            left_out: What was not searched for runs, in words.
        """
        self._all, self._at, self._is_read = tuple(runs), at, True
        self._left_out = left_out
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
            runs = [run for run in runs if all(word in _searchable_text(run) for word in words)]
        self._known = {key for run in runs for key in _known(run)}
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
        return _Texts(run, words, job, _alerts(run), _strategy(run), _place(run), path)

    def note(self) -> Sequence[Span]:
        """Returns the number of runs, of those that train, with alerts and marked; or matches.

        Also what was not searched: there may be runs.
        """
        if self._needle:
            return (*match_note(self.row_count(), len(self._all), self._needle), *self._marked())
        spans: list[Span] = [(units.count(len(self._all), "run"), "label")]
        trains = sum(run.state is RunState.TRAINING for run in self._all)
        alarming = sum(bool(run.alerts) for run in self._all)
        if trains:
            spans += [(" · ", "faint"), (f"{trains:,} training", "label")]
        if alarming:
            spans += [(" · ", "faint"), (f"{alarming:,} with problems", "bad")]
        spans += self._marked()
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
        return (
            line(("no runs yet", "muted")),
            StyledLine(),
            line(("n", "value"), ("                     launches one", "muted")),
            line(("tfckpt-tui demo", "value"), ("       starts one", "muted")),
            line(("tfckpt-tui DIRECTORY", "value"), ("  opens one", "muted")),
        )

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
        yield self.with_arrow(replace(_STATE, width=max(_STATE.width, longest)))
        for column in _COLUMNS:
            rank = column.rank if column.key in self._known else column.rank + _UNKNOWN_RANK
            yield self.with_arrow(replace(column, rank=rank))
        if any(run.alerts for run in self.rows):
            yield self._stretched(_ALERTS, [one.alerts for one in texts])
        else:
            yield self._stretched(_STRATEGY, [one.strategy for one in texts])
        has_jobs = any(one.job for one in texts)
        yield self._stretched(_JOB if has_jobs else _HOST, [one.place for one in texts])
        # A name that is cut tells little: it comes before columns that can be left out.
        path = replace(_PATH, width=max(_PATH.width, width // 3))
        yield self._stretched(path, [one.path for one in texts])

    def _stretched(self, column: Column, texts: Iterable[str]) -> Column:
        """Returns a column that takes as much of the spare width as its texts need."""
        return self.with_arrow(stretched(column, texts))

    def cells(self, row: RunAccount, layout: Layout) -> Mapping[str, Sequence[Span]]:
        """Returns the texts of a run by column."""
        share, glance = _share(row), row.glance or Glance()
        age = units.age(max(0.0, self._at - row.active_at)) if row.active_at else "–"
        left = "–" if row.seconds_left is None else units.age(row.seconds_left)
        used = "–" if glance.disk_used is None else units.size(glance.disk_used)
        sign = Icon("✗", "bad", "") if row.alerts else run_icon(row)
        alerts = _alerts(row)
        path = shorten_middle(self._path_of(row), layout.width_of("path"))
        rate = "–" if row.rate is None else units.rate(row.rate)
        value = "muted" if row.state in HAS_ENDED else "value"
        return {
            "mark": ((MARK, "accent"),) if key_of_run(row) in self._marks else (),
            "state": sign.with_word(row.words),
            "step": (("–" if row.step is None else f"{row.step:,}", value),),
            "branch": ((str(row.branch), "muted"),),
            "share": (("–" if share is None else f"{share:.0%}", value),),
            "loss": (("–" if row.loss is None else units.metric(row.loss), value),),
            "curve": ((sparkline(glance.losses, layout.width_of("curve")), "muted"),),
            "rate": ((rate, value),),
            "left": ((left, value),),
            "age": ((age, "muted"),),
            "disk": ((used, "muted"),),
            "alerts": ((alerts, "bad"),),
            "strategy": ((_strategy(row), "muted"),),
            "host": ((_place(row), "muted"),),
            "path": ((path, "strong"),),
        }


def _share(run: RunAccount) -> float | None:
    """Returns which part of the steps is done, 0 to 1."""
    return (
        min(1.0, run.step / run.total_steps) if run.step is not None and run.total_steps else None
    )


def _known(run: RunAccount) -> Iterator[str]:
    """Yields the columns that can be empty in which a run has a value."""
    values = {
        "step": run.step,
        "branch": run.branch,
        "share": _share(run),
        "loss": run.loss,
        "curve": run.glance.losses or None if run.glance is not None else None,
        "rate": run.rate,
        "left": run.seconds_left,
        "age": run.active_at or None,
        "disk": run.glance.disk_used if run.glance is not None else None,
    }
    return (key for key, value in values.items() if value is not None)


def _place(run: RunAccount) -> str:
    """Returns the batch job, or else the host of a run that goes on."""
    chief = run.chief
    host = chief.status.host if chief is not None and run.state not in HAS_ENDED else ""
    return clean(run.job_in_short or host)


def _searchable_text(run: RunAccount) -> str:
    words = str(run.root), run.words, _strategy(run), _place(run), _alerts(run)
    return " ".join(words).casefold()


def _strategy(run: RunAccount) -> str:
    return strategy_words(run.info.strategy) if run.info is not None else ""


def _alerts(run: RunAccount) -> str:
    """Returns the alerts in a few words each, the most urgent first."""
    return clean(", ".join(alert.title for alert in run.alerts))
