"""The list of runs: state, progress and last activity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tfckpt_tui.app.widgets.base.columns import Column, Layout, choose
from tfckpt_tui.app.widgets.base.icons import Icon, run_icon
from tfckpt_tui.app.widgets.base.list_pane import ListPane, match_note
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


class RunList(ListPane[RunAccount]):
    """Runs: those with live processes first, then the most recently active."""

    title = "runs"
    columns = _COLUMNS

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._all: Sequence[RunAccount] = ()
        self._needle = ""
        self._at = 0.0
        self._is_read = False

    def show_runs(self, runs: Sequence[RunAccount], at: float) -> None:
        """Shows the runs; `at` is the time of reading, in seconds since the epoch."""
        self._all, self._at, self._is_read = runs, at, True
        self.search(self._needle)

    def search(self, text: str) -> None:
        """Shows only runs whose line contains all words of `text`."""
        self._needle = text
        words = text.casefold().split()
        self.show_rows([run for run in self._all if all(w in _searchable_text(run) for w in words)])

    def note(self) -> Sequence[Span]:
        """Returns the number of runs, or of matches."""
        if not self._needle:
            return ((units.count(self.row_count(), "run"), "label"),)
        return match_note(self.row_count(), len(self._all), self._needle)

    def row_key(self, row: int) -> str:
        """Returns the run directory."""
        return str(self.rows[row].root)

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

    def column_layout(self, width: int) -> Layout:
        """Returns the columns; alerts and batch jobs have one if there are any."""
        state, *columns, strategy, path = self.columns
        # Beside the icon and a blank.
        longest = 2 + max((len(run.words) for run in self.rows), default=0)
        columns.insert(0, replace(state, width=max(state.width, longest)))
        columns.append(_ALERTS if any(run.alerts for run in self.rows) else strategy)
        if any(run.job_in_short for run in self.rows):
            columns.append(_JOB)
        return choose((*columns, path), width)

    def cells(self, row: RunAccount, layout: Layout) -> Mapping[str, Sequence[Span]]:
        """Returns row run."""
        share = "–"
        if row.step is not None and row.total_steps:
            share = f"{min(1.0, row.step / row.total_steps):.0%}"
        age = units.age(max(0.0, self._at - row.active_at)) if row.active_at else "–"
        sign = Icon("✗", "bad", "") if row.alerts else run_icon(row)
        alerts = _alerts(row)
        return {
            "state": sign.with_word(row.words),
            "step": (("–" if row.step is None else f"{row.step:,}", "value"),),
            "branch": ((str(row.branch), "muted"),),
            "share": ((share, "value"),),
            "loss": (("–" if row.loss is None else units.metric(row.loss), "value"),),
            "age": ((age, "muted"),),
            "job": ((clean(row.job_in_short), "muted"),),
            "strategy": ((alerts, "bad") if alerts else (_strategy(row), "muted"),),
            "path": ((shorten_middle(clean(str(row.root)), layout.width_of("path")), "strong"),),
        }


def _searchable_text(run: RunAccount) -> str:
    words = str(run.root), run.words, _strategy(run), run.job_in_short, _alerts(run)
    return " ".join(words).casefold()


def _strategy(run: RunAccount) -> str:
    return strategy_words(run.info.strategy) if run.info is not None else ""


def _alerts(run: RunAccount) -> str:
    """Returns the alerts in a few words each, the most urgent first."""
    return clean(", ".join(alert.title for alert in run.alerts))
