"""The list of runs: state, progress and last activity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tfckpt_tui.app.widgets.base.columns import Column, Layout, choose
from tfckpt_tui.app.widgets.base.icons import Icon, run_icon
from tfckpt_tui.app.widgets.base.list_pane import ListPane
from tfckpt_tui.app.widgets.base.styled_text import Line, Span, line, shorten, shorten_middle
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean, strategy_words
from tfckpt_tui.services.runs.account import RunAccount

_COLUMNS = (
    Column("state", "state", 12, align="<"),
    Column("step", "step", 9),
    Column("branch", "branch", 6, rank=3),
    Column("share", "done", 5, rank=1),
    Column("loss", "loss", 8, rank=2),
    Column("age", "active", 7),
    Column("strategy", "strategy", 18, rank=3, align="<", stretch=1),
    Column("path", "run", 24, align="<", stretch=3),
)
_ALERTS = Column("strategy", "problem", 18, rank=1, align="<", stretch=1)
"""Instead of the strategy, in lists in which a run has an alert."""

_JOB = Column("job", "batch job", 16, rank=1, align="<", stretch=1)
"""Only in lists in which a run has a batch job."""


class RunList(ListPane):
    """Runs: those with live processes first, then the most recently active."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._all: Sequence[RunAccount] = ()
        self._runs: Sequence[RunAccount] = ()
        self._needle = ""
        self._at = 0.0
        self._is_read = False

    @property
    def selected(self) -> RunAccount | None:
        """The run under the cursor."""
        return self._runs[self.cursor] if self._runs else None

    def show_runs(self, runs: Sequence[RunAccount], at: float) -> None:
        """Shows the runs; `at` is the time of reading, in seconds since the epoch."""
        self._all, self._at, self._is_read = runs, at, True
        self.search(self._needle)

    def search(self, text: str) -> None:
        """Shows only runs whose line contains all words of `text`."""
        self._needle = text
        words = text.casefold().split()
        self._runs = [one for one in self._all if all(w in _searchable_text(one) for w in words)]
        self.rows_changed()
        self.repaint()

    def heading(self) -> Sequence[Span]:
        """Returns the title."""
        return (("runs", "title"),)

    def note(self) -> Sequence[Span]:
        """Returns the number of runs, or of matches."""
        if not self._needle:
            return ((units.count(len(self._runs), "run"), "label"),)
        found = f"{len(self._runs):,} of {len(self._all):,} match "
        return ((found, "label"), (clean(self._needle), "accent"))

    def row_count(self) -> int:
        """Returns the number of runs."""
        return len(self._runs)

    def row_key(self, row: int) -> str:
        """Returns the run directory."""
        return str(self._runs[row].root)

    def head_lines(self, width: int) -> Sequence[Line]:
        """Returns the titles of the columns."""
        return (self._layout(width).head(),) if self._runs else ()

    def empty_lines(self, width: int) -> Sequence[Line]:
        """Returns how to open a first run."""
        if self._all:
            words = f"no run matches {clean(self._needle)}; esc shows all"
            return (line((shorten(words, width), "muted")),)
        if not self._is_read:
            return (line(("searching for runs …", "muted")),)
        return (
            line(("no runs yet", "muted")),
            Line(),
            line(("n", "value"), ("                     launches one", "muted")),
            line(("tfckpt-tui demo", "value"), ("       starts one", "muted")),
            line(("tfckpt-tui DIRECTORY", "value"), ("  opens one", "muted")),
        )

    def _layout(self, width: int) -> Layout:
        state, *columns, strategy, path = _COLUMNS
        # Beside the icon and a blank.
        longest = 2 + max((len(one.words) for one in self._runs), default=0)
        columns.insert(0, replace(state, width=max(state.width, longest)))
        columns.append(_ALERTS if any(one.alerts for one in self._runs) else strategy)
        if any(one.job_in_short for one in self._runs):
            columns.append(_JOB)
        return choose((*columns, path), width)

    def row_line(self, row: int, width: int) -> Line:
        """Returns one run."""
        one = self._runs[row]
        layout = self._layout(width)
        room = next(size for column, size in layout.columns if column.key == "path")
        share = "–"
        if one.step is not None and one.total_steps:
            share = f"{min(1.0, one.step / one.total_steps):.0%}"
        age = units.age(max(0.0, self._at - one.active_at)) if one.active_at else "–"
        sign = Icon("✗", "bad", "") if one.alerts else run_icon(one)
        alerts = _alerts(one)
        return layout.row(
            {
                "state": sign.with_word(one.words),
                "step": (("–" if one.step is None else f"{one.step:,}", "value"),),
                "branch": ((str(one.branch), "muted"),),
                "share": ((share, "value"),),
                "loss": (("–" if one.loss is None else units.metric(one.loss), "value"),),
                "age": ((age, "muted"),),
                "job": ((clean(one.job_in_short), "muted"),),
                "strategy": ((alerts, "bad") if alerts else (_strategy(one), "muted"),),
                "path": ((shorten_middle(clean(str(one.root)), room), "strong"),),
            }
        )


def _searchable_text(one: RunAccount) -> str:
    words = str(one.root), one.words, _strategy(one), one.job_in_short, _alerts(one)
    return " ".join(words).casefold()


def _strategy(one: RunAccount) -> str:
    return strategy_words(one.info.strategy) if one.info is not None else ""


def _alerts(one: RunAccount) -> str:
    """Returns the alerts in a few words each, the most urgent first."""
    return clean(", ".join(alert.title for alert in one.alerts))
