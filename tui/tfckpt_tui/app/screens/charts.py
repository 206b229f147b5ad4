"""One chart on the whole screen, with zoom and scrolling, by step or by time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from tfckpt_trainer.rundir.records.event import SeriesPoint
from tfckpt_tui.app.screens.page import Page
from tfckpt_tui.app.widgets.base.keybar import KeyBar
from tfckpt_tui.app.widgets.base.styled_text import Line, Span, line
from tfckpt_tui.app.widgets.base.text_pane import TextPane
from tfckpt_tui.app.widgets.charts.axis import Window, pan, zoom
from tfckpt_tui.app.widgets.charts.chart import Chart
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean
from tfckpt_tui.monitor.series import main_metric
from tfckpt_tui.monitor.snapshot import RunSnapshot

_STRIDE = 0.25


@dataclass(frozen=True)
class Measurement:
    """A quantity that a chart can draw.

    Attributes:
        name: Its name.
        value_of: Returns its value at a point of the run; None for not-a-number.
        show: Formats a value.
        from_zero: Whether the axis starts at zero.
    """

    name: str
    value_of: Callable[[SeriesPoint], float | None]
    show: Callable[[float | None], str] = units.metric
    from_zero: bool = False


def measurements(points: Sequence[SeriesPoint]) -> list[Measurement]:
    """Returns all measurements: the main metric, others by name, throughput, step time."""
    first = main_metric(points)
    names = {name for point in points for name in point.metrics} - {first}
    return [
        *(Measurement(name, _metric(name)) for name in (first, *sorted(names))),
        Measurement(
            "throughput",
            lambda point: point.examples_per_second,
            lambda value: units.rate(value, " examples"),
            from_zero=True,
        ),
        Measurement("step time", lambda point: point.step_seconds, units.step_time, from_zero=True),
    ]


class ChartsScreen(Page):
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
            tooltip="Shows the next metric; ↑ the previous one.",
        ),
        Binding("up,k,shift+tab", "turn(-1)", "Previous", show=False),
        Binding(
            "t", "turn_axis", "steps or time", tooltip="Switches the axis between steps and time."
        ),
        Binding("c", "close", "Back", show=False),
    ]
    caption = "the charts"

    def __init__(self, snapshot: RunSnapshot) -> None:
        super().__init__()
        self._snapshot = snapshot
        self._chosen = main_metric(snapshot.points)
        self._window: Window | None = None
        self._by_time = False

    def compose(self) -> ComposeResult:
        """Makes the chart, a line of statistics and the keys."""
        yield Chart(self._chosen, _metric(self._chosen), id="chart")
        figures = TextPane(boxed=False, id="figures")
        # The arrow keys belong to the chart.
        figures.can_focus = False
        yield figures
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        """Shows the snapshot."""
        self.show(self._snapshot)

    def show(self, snapshot: RunSnapshot) -> None:
        """Shows a newer snapshot."""
        self._snapshot = snapshot
        self.query_one(Chart).show(snapshot)
        self._update()

    def action_turn(self, places: int) -> None:
        """Shows the next or the previous measurement."""
        names = [one.name for one in measurements(self._snapshot.points)]
        place = names.index(self._chosen) if self._chosen in names else 0
        self._chosen = names[(place + places) % len(names)]
        self._update()

    def action_turn_axis(self) -> None:
        """Switches between steps and time, and shows the whole run."""
        self._by_time, self._window = not self._by_time, None
        self._update()

    def action_zoom(self, factor: float) -> None:
        """Zooms in or out."""
        whole = self.query_one(Chart).whole
        if whole is not None:
            self._window = zoom(self._window, whole, factor)
            self._update()

    def action_move(self, direction: int) -> None:
        """Scrolls forward or back."""
        whole = self.query_one(Chart).whole
        if whole is not None:
            self._window = pan(self._window, whole, direction * _STRIDE)
            self._update()

    def action_whole(self) -> None:
        """Shows the whole run."""
        self._window = None
        self._update()

    def _update(self) -> None:
        known = measurements(self._snapshot.points)
        shown = next((one for one in known if one.name == self._chosen), known[0])
        chart = self.query_one(Chart)
        chart.show_metric(clean(shown.name), shown.value_of, shown.show, from_zero=shown.from_zero)
        chart.show_window(self._window, by_time=self._by_time)
        self.query_one("#figures", TextPane).show_lines([self._statistics(shown)])

    def _statistics(self, shown: Measurement) -> Line:
        """Returns the visible range, and statistics of its values."""
        window = self._window
        points = [
            p
            for p in self._snapshot.points
            if window is None or window.contains(p.at if self._by_time else float(p.step))
        ]
        values = [value for value in map(shown.value_of, points) if value is not None]
        if not points or not values:
            return line(("no measurements in this range", "muted"))
        steps = f"{points[0].step:,} to {max(point.step for point in points):,}"
        spans: list[Span] = [("steps ", "label"), (steps, "value")]
        spans += [("  in ", "label"), (units.duration(points[-1].at - points[0].at), "value")]
        for word, value in (
            ("lowest", min(values)),
            ("highest", max(values)),
            ("last", values[-1]),
        ):
            spans += [(f"   {word} ", "label"), (shown.show(value), "value")]
        return Line(tuple(spans))


def _metric(name: str) -> Callable[[SeriesPoint], float | None]:
    return lambda point: point.metrics.get(name)
