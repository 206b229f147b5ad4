"""The screens with one chart: what they share, and the measurements of the run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from tfckpt_trainer.rundir.records.event import SeriesPoint
from tfckpt_tui.app.screens.page import Page
from tfckpt_tui.app.widgets.base.keybar import KeyBar
from tfckpt_tui.app.widgets.base.pane import is_open
from tfckpt_tui.app.widgets.base.styled_text import Line, Span, flow, line
from tfckpt_tui.app.widgets.base.text_pane import TextPane
from tfckpt_tui.app.widgets.charts.chart import Chart
from tfckpt_tui.charting.axis import pan, zoom
from tfckpt_tui.charting.curves import Across
from tfckpt_tui.charting.measurements import Measurement, main_metric, measurements
from tfckpt_tui.charting.view import View
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean, clean_message, csv_line
from tfckpt_tui.monitor.snapshot import RunSnapshot

_STRIDE = 0.25


class ChartPage(Page):
    """One chart; the arrows scroll it and choose the measurement."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("plus,equals_sign", "zoom(0.5)", "closer", key_display="+", tooltip="Zooms in."),
        Binding("minus", "zoom(2.0)", "wider", key_display="-", tooltip="Zooms out."),
        Binding("left,h", "move(-1)", "earlier", tooltip="Scrolls back."),
        Binding("right,l", "move(1)", "later", tooltip="Scrolls forward."),
        Binding("0", "whole", "all", tooltip="Shows the whole run."),
        Binding(
            "down,j,tab",
            "turn(1)",
            "next",
            key_display="↓",
            tooltip="Shows the next chart; ↑ the previous one.",
        ),
        Binding("up,k,shift+tab", "turn(-1)", "Previous", show=False),
        Binding("t", "turn_axis", "time axis", tooltip="Switches the axis between steps and time."),
        Binding("y", "copy", "copy", tooltip="Copies the values as CSV."),
        Binding("c", "close", "Back", show=False),
    ]

    def __init__(self, chosen: str) -> None:
        """Makes the screen.

        Args:
            chosen: The name of the measurement that is drawn first.
        """
        super().__init__()
        self._chosen = chosen
        self._view = View()

    # -- for subclasses ----------------------------------------------------------------------

    def points(self) -> Sequence[SeriesPoint]:
        """Returns the points, oldest first."""
        raise NotImplementedError

    def measurements(self) -> Sequence[Measurement]:
        """Returns what the chart can draw; at least one measurement."""
        raise NotImplementedError

    def csv_lines(self) -> Iterable[str]:
        """Returns what the copy key copies; by default the visible values of the measurement."""
        shown = self.shown
        yield csv_line(("step", "branch", "at", shown.name))
        for point in self._visible():
            value = shown.value_of(point)
            if value is not None:
                yield csv_line((point.step, point.branch, point.at, value))

    # -- shared behaviour --------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        """Makes the chart, a line of statistics and the keys."""
        yield Chart(self.shown, id="chart")
        figures = TextPane(boxed=False, id="figures")
        # The arrow keys belong to the chart.
        figures.can_focus = False
        yield figures
        yield KeyBar(id="keys")

    @property
    def shown(self) -> Measurement:
        """The measurement that is drawn."""
        measurements = self.measurements()
        return next(
            (measurement for measurement in measurements if measurement.name == self._chosen),
            measurements[0],
        )

    def action_turn(self, places: int) -> None:
        """Shows the next or the previous measurement."""
        names = [measurement.name for measurement in self.measurements()]
        place = names.index(self._chosen) if self._chosen in names else 0
        self._chosen = names[(place + places) % len(names)]
        self.update_chart()

    def action_turn_axis(self) -> None:
        """Switches between steps and time, and shows the whole run."""
        by_steps = self._view.across is Across.STEPS
        across = Across.TIME if by_steps else Across.STEPS
        self._view = replace(self._view, across=across, window=None)
        self.update_chart()

    def action_zoom(self, factor: float) -> None:
        """Zooms in or out."""
        whole = self.query_one(Chart).whole
        if whole is not None:
            self._view = replace(self._view, window=zoom(self._view.window, whole, factor))
            self.update_chart()

    def action_move(self, direction: int) -> None:
        """Scrolls forward or back."""
        whole = self.query_one(Chart).whole
        if whole is not None:
            window = pan(self._view.window, whole, direction * _STRIDE)
            self._view = replace(self._view, window=window)
            self.update_chart()

    def action_whole(self) -> None:
        """Shows the whole run."""
        self._view = replace(self._view, window=None)
        self.update_chart()

    def action_copy(self) -> None:
        """Copies values as CSV."""
        header, *rows = [*self.csv_lines()] or [""]
        if not rows:
            self.notify("There are no values to copy.", severity="warning", markup=False)
            return
        self.app.copy_to_clipboard("\n".join(map(clean, (header, *rows))))
        told = f"Copied {units.count(len(rows), 'row')} as CSV: {header.replace(',', ', ')}."
        self.notify(clean_message(told), markup=False)

    def update_chart(self) -> None:
        """Draws the measurement in the visible range, and shows its statistics."""
        shown = self.shown
        chart = self.query_one(Chart)
        chart.show_measurements(shown)
        chart.show_view(self._view)
        self.query_one("#figures", TextPane).show_lines([self._statistics(shown)])

    def _visible(self) -> list[SeriesPoint]:
        return [point for point in self.points() if self._view.shows(point)]

    def _statistics(self, shown: Measurement) -> Line:
        """Returns the visible range, and statistics of its values."""
        values_at = [(point, shown.value_of(point)) for point in self._visible()]
        points = [point for point, value in values_at if value is not None]
        values = [value for _, value in values_at if value is not None and math.isfinite(value)]
        if not points or not values:
            return line(("no measurements in this range", "muted"))
        steps = f"{points[0].step:,} to {max(point.step for point in points):,}"
        duration = units.duration(points[-1].at - points[0].at)
        groups: list[list[Span]] = [
            [("steps ", "label"), (steps, "value"), ("  in ", "label"), (duration, "value")]
        ]
        for word, value in (
            ("lowest", min(values)),
            ("highest", max(values)),
            ("last", values[-1]),
        ):
            groups.append([(f"{word} ", "label"), (shown.show(value), "value")])
        return Line(flow(groups, self.query_one("#figures", TextPane).inner_size[0], "   "))

    def on_resize(self) -> None:
        """Shows as many statistics as fit."""
        self.call_after_refresh(self._resized)

    def _resized(self) -> None:
        if is_open(self):
            self.update_chart()


class ChartsScreen(ChartPage):
    """The measurements of the run."""

    caption = "the charts"

    def __init__(self, snapshot: RunSnapshot) -> None:
        super().__init__(main_metric(snapshot.points))
        self._snapshot = snapshot

    def on_mount(self) -> None:
        """Shows the snapshot."""
        self.show(self._snapshot)

    def show(self, snapshot: RunSnapshot) -> None:
        """Shows a newer snapshot."""
        self._snapshot = snapshot
        self.query_one(Chart).show(snapshot)
        self.update_chart()

    def points(self) -> Sequence[SeriesPoint]:
        """Returns the measurements of the run."""
        return self._snapshot.points

    def measurements(self) -> Sequence[Measurement]:
        """Returns the metrics, throughput and step time."""
        return measurements(self._snapshot.points)
