"""All panes of the dashboard. Each gets every snapshot, and redraws what changed."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from textual import getters
from textual.app import ComposeResult
from textual.layout import Layout
from textual.widget import Widget
from textual.widgets import Input

from tfckpt_trainer.words.counts import MOST_JOINED, few_of
from tfckpt_tui.app.protocols import key_of, run_app_of
from tfckpt_tui.app.widgets.base.dashboard_layout import (
    SMALLEST,
    DashboardLayout,
    chart_id,
    failure_width,
    most_progress_lines,
)
from tfckpt_tui.app.widgets.base.keybar import KeyBar
from tfckpt_tui.app.widgets.base.pane import Pane
from tfckpt_tui.app.widgets.base.styled_text import StyledLine, line, shorten
from tfckpt_tui.app.widgets.charts.chart import Chart
from tfckpt_tui.app.widgets.checkpoints.history import History
from tfckpt_tui.app.widgets.run.events import Events
from tfckpt_tui.app.widgets.run.failure_card import FailureCard
from tfckpt_tui.app.widgets.run.header import RunHeader
from tfckpt_tui.app.widgets.run.progress import Progress, raise_toasts
from tfckpt_tui.app.widgets.run.workers import Workers
from tfckpt_tui.charting.measurements import Measurement, measurements, named
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.snapshot import RunSnapshot

_EXAMPLE = "step>1000 state:verified pinned branch:2 loss<0.5 age<2h -name:b1"


class TooSmall(Pane):
    """A centred message; keys still work."""

    boxed = False

    def body(self, width: int, height: int) -> Sequence[StyledLine]:
        """Returns the message, the most important line first."""
        words = (
            f"This terminal is {self.size.width}×{self.size.height}.",
            f"tfckpt-tui needs {SMALLEST.width}×{SMALLEST.height}; 80×24 is better.",
            f"Training continues. Press {key_of(self, 'detach')} to detach.",
        )
        shown = [
            line((shorten(text, width), "value" if i else "warn")) for i, text in enumerate(words)
        ]
        centred = [line((" " * max(0, (width - row.width) // 2), ""), *row.spans) for row in shown]
        return [StyledLine()] * max(0, (height - len(words)) // 2) + centred


class DashboardPanes(Widget):
    """Header, workers, charts or what happened, checkpoints, events, progress and keys."""

    header = getters.query_one("#header", RunHeader)
    worker_table = getters.query_one("#workers", Workers)
    filter = getters.query_one("#filter", Input)
    history = getters.query_one("#history", History)
    failure = getters.query_one("#failure", FailureCard)
    events = getters.query_one("#events", Events)
    progress = getters.query_one("#progress", Progress)
    keys = getters.query_one("#keys", KeyBar)

    def __init__(self, *, read_only: bool, charts: Sequence[str]) -> None:
        """Makes the panes.

        Args:
            read_only: Whether actions that change the run are disabled.
            charts: The names of the measurements that the charts show.
        """
        super().__init__(id="dashboard")
        self._read_only = read_only
        self._charts = tuple(charts)
        self._arranged = DashboardLayout(len(self._charts))

    @property
    def layout(self) -> Layout:
        """A layout that sizes panes by their content."""
        return self._arranged

    def compose(self) -> ComposeResult:
        """Makes the panes, in the focus order of the tab key."""
        yield RunHeader(read_only=self._read_only, id="header")
        metrics = run_app_of(self).config.result_columns
        yield History(read_only=self._read_only, metrics=metrics, id="history")
        yield Input(placeholder=_EXAMPLE, id="filter", compact=True)
        yield FailureCard(id="failure")
        yield Workers(id="workers")
        for place, name in enumerate(self._charts):
            yield Chart(named(name, ()), id=chart_id(place))
        yield Events(id="events")
        yield Progress(id="progress")
        yield KeyBar(id="keys")
        yield TooSmall(id="too-small")

    def show(self, snapshot: RunSnapshot) -> None:
        """Shows a snapshot in every pane, and fits their sizes."""
        files_only = not (snapshot.tracked or snapshot.workers)
        metrics = snapshot.samples.metrics
        shown = files_only, len(metrics)
        if shown != (self._arranged.files_only, self._arranged.metrics):
            self._arranged.files_only, self._arranged.metrics = shown
            self.keys.refresh(layout=True, repaint=False)
        for pane in self.query(Pane):
            pane.show(snapshot)
        charted = [named(name, metrics) for name in self._charts]
        if files_only and metrics:
            charted = _charted_of_files(charted, metrics)
        for chart, measured in zip(self.query(Chart), charted, strict=False):
            chart.nothing = _unknown_metric(measured, metrics)
            if chart.measurements != (measured,):
                chart.show_measurements(measured)
        self.fit()

    def show_filter(self, *, is_open: bool) -> None:
        """Opens or closes the filter line."""
        self._arranged.filtering = is_open
        self.keys.refresh(layout=True, repaint=False)
        self._keep_focus_visible()
        # `focus` takes effect too late for a key that is typed right after.
        self.screen.set_focus(self.filter if is_open else self.history)

    @property
    def is_filtering(self) -> bool:
        """Whether the filter line is open."""
        return self._arranged.filtering

    def on_resize(self) -> None:
        """Fits the heights to the new size; a snapshot may come before the first one."""
        self.fit()

    def fit(self) -> None:
        """Fits the height of workers, card, checkpoints and progress to their content."""
        lines = self.progress.line_count(self.size.width)
        # More than the screen has lines make no difference.
        rows = min(self.history.row_count(), self.size.height)
        card = self.failure.line_count(failure_width(self.size))
        needs = (self.worker_table.row_count(), rows, lines, card)
        raise_toasts(self.screen, min(lines, most_progress_lines(self.size.height)))
        arranged = self._arranged
        if needs != (arranged.workers, arranged.checkpoints, arranged.progress, arranged.failure):
            arranged.workers, arranged.checkpoints, arranged.progress, arranged.failure = needs
            # Textual lays this widget out again if a child asks for it.
            self.keys.refresh(layout=True, repaint=False)
        self._keep_focus_visible()

    def _keep_focus_visible(self) -> None:
        """Leaves panes without a place out of the tab order; their keys would act unseen."""
        places = self._arranged.places(self.size)
        if self.history.id not in places:
            return
        for pane in self.children:
            pane.can_focus = type(pane).can_focus and pane.id in places
        focused = self.screen.focused
        if focused in self.children and focused is not None and not focused.can_focus:
            self.screen.set_focus(self.history)


def _charted_of_files(
    charted: Sequence[Measurement], metrics: Collection[str]
) -> list[Measurement]:
    """Returns what charts show of event files: in place of what these do not have, others."""
    possible = [one for one in measurements(metrics) if one.key in metrics]
    chosen = [one for one in charted if one in possible]
    return [*chosen, *(one for one in possible if one not in chosen)][: len(charted)]


def _unknown_metric(measured: Measurement, metrics: Collection[str]) -> str:
    """Returns why a chart of the configuration stays empty: a metric may be misspelled there."""
    if not metrics or measured.key in metrics or not isinstance(measured.key, str):
        return ""
    names = clean(few_of(sorted(metrics), MOST_JOINED))
    return f"no metric {clean(measured.name)} yet; there are: {names}"
