"""The screens with one chart: what they share, and the measurements of the run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from tfckpt_trainer.rundir.records.event import SeriesPoint
from tfckpt_tui.app.screens.page import Page
from tfckpt_tui.app.widgets.base.keybar import KeyBar
from tfckpt_tui.app.widgets.base.pane import is_open
from tfckpt_tui.app.widgets.base.styled_text import Line, Span, flow, line
from tfckpt_tui.app.widgets.base.text_pane import TextPane
from tfckpt_tui.app.widgets.charts.axis import Window, pan, zoom
from tfckpt_tui.app.widgets.charts.chart import Chart
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean, clean_message, csv_line
from tfckpt_tui.monitor.series import main_metric, metric_of
from tfckpt_tui.monitor.snapshot import RunSnapshot

_STRIDE = 0.25


@dataclass(frozen=True)
class Measurement:
    """A quantity that a chart can draw.

    Attributes:
        name: Its name.
        value_of: Returns its value at a point; None if it has none.
        show: Formats a value.
        from_zero: Whether the axis starts at zero.
    """

    name: str
    value_of: Callable[[SeriesPoint], float | None]
    show: Callable[[float | None], str] = units.metric
    from_zero: bool = False


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
        self._window: Window | None = None
        self._by_time = False

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
        shown = self.shown
        yield Chart(clean(shown.name), shown.value_of, id="chart")
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
        self._by_time, self._window = not self._by_time, None
        self.update_chart()

    def action_zoom(self, factor: float) -> None:
        """Zooms in or out."""
        whole = self.query_one(Chart).whole
        if whole is not None:
            self._window = zoom(self._window, whole, factor)
            self.update_chart()

    def action_move(self, direction: int) -> None:
        """Scrolls forward or back."""
        whole = self.query_one(Chart).whole
        if whole is not None:
            self._window = pan(self._window, whole, direction * _STRIDE)
            self.update_chart()

    def action_whole(self) -> None:
        """Shows the whole run."""
        self._window = None
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
        chart.show_metric(clean(shown.name), shown.value_of, shown.show, from_zero=shown.from_zero)
        chart.show_window(self._window, by_time=self._by_time)
        self.query_one("#figures", TextPane).show_lines([self._statistics(shown)])

    def _visible(self) -> list[SeriesPoint]:
        window = self._window
        return [
            point
            for point in self.points()
            if window is None or window.contains(point.at if self._by_time else float(point.step))
        ]

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


def measurements(points: Sequence[SeriesPoint]) -> list[Measurement]:
    """Returns all measurements: the main metric, others by name, throughput, step time."""
    first = main_metric(points)
    names = {name for point in points for name in point.metrics} - {first}
    return [
        *(Measurement(name, metric_of(name)) for name in (first, *sorted(names))),
        Measurement(
            "throughput",
            lambda point: point.examples_per_second,
            lambda value: units.rate(value, " examples"),
            from_zero=True,
        ),
        Measurement("step time", lambda point: point.step_seconds, units.step_time, from_zero=True),
    ]


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
